"""`evalscope perf`: one asyncio process, inside the whole of EvalScope."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, document, only


def command(python: Path, ask: Ask) -> list[str]:
    """Random prompts of one length."""
    length, answer = str(ask.prompt_tokens), str(ask.tokens)
    line = [str(python.with_name("evalscope")), "perf", "--api", "openai", "--model", ask.model]
    line += ["--url", f"{ask.url}/v1/chat/completions", "--tokenizer-path", str(ask.tokenizer)]
    line += ["--dataset", "random", "--min-prompt-length", length, "--max-prompt-length", length]
    line += ["--max-tokens", answer, "--min-tokens", answer, "--stream", "--outputs-dir", "out"]
    return [*line, "--parallel", str(ask.streams), "--number", str(ask.requests), "--no-test-connection"]


def read(ask: Ask, _printed: str) -> Reported:
    """Its percentiles, a list of one object per percentile."""
    summary = document(only(ask.folder / "out", "benchmark_summary.json"))
    said = {row["Percentiles"]: row for row in document(only(ask.folder / "out", "benchmark_percentile.json"))}
    half, most = said["50%"], said["99%"]
    return Reported(summary["Success Requests"], half["TTFT (ms)"], most["TTFT (ms)"], most["ITL (ms)"])


PEER = Peer("evalscope_perf", "evalscope perf 1.14.1", command, read)
