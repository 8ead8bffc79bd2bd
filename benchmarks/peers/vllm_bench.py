"""`vllm bench serve`: one asyncio process, inside the whole of vLLM."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, document, only


def command(python: Path, ask: Ask) -> list[str]:
    """Random prompts of one length."""
    line = [str(python.with_name("vllm")), "bench", "serve", "--backend", "openai-chat", "--base-url", ask.url]
    line += ["--endpoint", "/v1/chat/completions", "--model", ask.model, "--tokenizer", str(ask.tokenizer)]
    line += ["--dataset-name", "random", "--random-input-len", str(ask.prompt_tokens)]
    line += ["--random-output-len", str(ask.tokens), "--num-prompts", str(ask.requests), "--ignore-eos"]
    line += ["--max-concurrency", str(ask.streams), "--percentile-metrics", "ttft,tpot,itl"]
    line += ["--metric-percentiles", "50,99", "--save-result", "--result-filename", "out.json", "--disable-tqdm"]
    return line


def read(ask: Ask, _printed: str) -> Reported:
    """Its result file."""
    said = document(only(ask.folder, "out.json"))
    return Reported(said["completed"], said["p50_ttft_ms"], said["p99_ttft_ms"], said["p99_itl_ms"])


PEER = Peer("vllm_bench", "vllm bench serve 0.32.0", command, read)
