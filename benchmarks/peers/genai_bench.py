"""genai-bench: Locust users with `requests`; it reports no time between tokens."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, document, only


def command(python: Path, ask: Ask) -> list[str]:
    """One process of N users."""
    line = [str(python.with_name("genai-bench")), "benchmark", "--api-backend", "openai", "--api-base", ask.url]
    line += ["--api-key", "none", "--api-model-name", ask.model, "--task", "text-to-text"]
    line += ["--model-tokenizer", str(ask.tokenizer), "--traffic-scenario", f"D({ask.prompt_tokens},{ask.tokens})"]
    line += ["--num-concurrency", str(ask.streams), "--max-requests-per-run", str(ask.requests)]
    line += ["--max-time-per-run", "5", "--metrics-time-unit", "ms", "--experiment-base-dir", "out"]
    return line


def read(ask: Ask, _printed: str) -> Reported:
    """The one scenario's file."""
    said = document(only(ask.folder / "out", "D*.json"))["aggregated_metrics"]
    ttft = said["stats"]["ttft"]
    return Reported(said["num_completed_requests"], ttft["p50"], ttft["p99"])


PEER = Peer("genai_bench", "genai-bench 0.0.5", command, read)
