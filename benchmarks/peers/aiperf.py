"""AIPerf: several processes and ZeroMQ between them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, document, only


def command(python: Path, ask: Ask) -> list[str]:
    """Synthetic prompts of one length, the server's token counts, no scraping of metrics."""
    line = [str(python.with_name("aiperf")), "profile", "--model", ask.model, "--url", ask.url, "--streaming"]
    line += ["--endpoint-type", "chat", "--tokenizer", str(ask.tokenizer), "--use-server-token-count"]
    line += ["--concurrency", str(ask.streams), "--request-count", str(ask.requests)]
    line += ["--synthetic-input-tokens-mean", str(ask.prompt_tokens), "--output-tokens-mean", str(ask.tokens)]
    line += ["--extra-inputs", "ignore_eos:true", "--artifact-dir", "out", "--ui", "none", "--no-server-metrics"]
    return [*line, "--no-gpu-telemetry"]


def read(ask: Ask, _printed: str) -> Reported:
    """What lies between two chunks it calls inter_chunk_latency; its inter_token_latency is a mean per request."""
    said = document(only(ask.folder / "out", "profile_export_aiperf.json"))
    ttft, gaps = said["time_to_first_token"], said["inter_chunk_latency"]
    return Reported(int(said["request_count"]["avg"]), ttft["p50"], ttft["p99"], gaps["p99"])


PEER = Peer("aiperf", "AIPerf 0.13.0", command, read)
