"""GuideLLM: several processes, httpx; it reports no percentile of the single gaps."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, document, only


def command(python: Path, ask: Ask) -> list[str]:
    """Synthetic prompts of one length."""
    line = [str(python.with_name("guidellm")), "run", "--disable-console"]
    line += ["--backend", f"kind=openai_http,target={ask.url},model={ask.model},request_format=/v1/chat/completions"]
    line += ["--profile", f"kind=concurrent,streams={ask.streams}"]
    line += ["--constraint", f"kind=max_requests,count={ask.requests}"]
    line += ["--tokenizer", f"kind=huggingface_auto,model={ask.tokenizer}"]
    line += ["--data", f"kind=synthetic_text,prompt_tokens={ask.prompt_tokens},output_tokens={ask.tokens}"]
    return [*line, "--output", "kind=json,path=out.json"]


def read(ask: Ask, _printed: str) -> Reported:
    """The only benchmark of its report."""
    metrics = document(only(ask.folder, "out.json"))["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    percentiles = ttft["percentiles"]
    return Reported(ttft["count"], percentiles["p50"], percentiles["p99"])


PEER = Peer("guidellm", "GuideLLM 0.8.1", command, read)
