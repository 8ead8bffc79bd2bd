"""SGLang's Rust client: an extension module in the sglang wheel, started without the rest of sglang."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, only

# `python -m sglang.benchmark.rust_client` imports the whole of sglang, torch and all, only to do this.
LAUNCH = """
import importlib.util, pathlib, sys, sysconfig
folder = pathlib.Path(sysconfig.get_path("platlib"), "sglang", "srt", "rust_extensions")
spec = importlib.util.spec_from_file_location("_bench", next(folder.glob("_bench.*")))
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)
client.run_argv(["sglang-bench", *sys.argv[1:]])
"""


def command(python: Path, ask: Ask) -> list[str]:
    """One Tokio thread, because it has one CPU."""
    line = [str(python), "-c", LAUNCH, "--backend", "sglang-oai-chat", "--base-url", ask.url, "--model", ask.model]
    line += ["--tokenizer", str(ask.tokenizer), "--dataset-name", "random-ids", "--random-range-ratio", "1"]
    line += ["--random-input-len", str(ask.prompt_tokens), "--random-output-len", str(ask.tokens)]
    line += ["--num-prompts", str(ask.requests), "--max-concurrency", str(ask.streams), "--request-rate", "inf"]
    return [*line, "--warmup-requests", "0", "--worker-threads", "1", "--output-file", "out.jsonl", "--disable-tqdm"]


def read(ask: Ask, _printed: str) -> Reported:
    """The last line of its result file."""
    said = json.loads(only(ask.folder, "out.jsonl").read_text().splitlines()[-1])
    return Reported(said["completed"], said["median_ttft_ms"], said["p99_ttft_ms"], said["p99_itl_ms"])


PEER = Peer("sglang_rust", "SGLang Rust client 0.5.23", command, read, no_deps=True, rounds=3)
