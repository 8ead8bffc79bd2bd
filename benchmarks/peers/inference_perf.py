"""inference-perf: asyncio workers, told by a YAML file (JSON is YAML too)."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.peers.peer import Ask, Peer, Reported, document, only


def command(python: Path, ask: Ask) -> list[str]:
    """One worker, whose own cap is lifted to the number of streams; text completions, as `random` data needs."""
    fixed = {"std_dev": 0, "total_count": ask.requests}
    length = {"min": ask.prompt_tokens, "max": ask.prompt_tokens, "mean": ask.prompt_tokens, **fixed}
    answer = {"min": ask.tokens, "max": ask.tokens, "mean": ask.tokens, **fixed}
    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {"type": "random", "input_distribution": length, "output_distribution": answer},
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": ask.requests, "concurrency_level": ask.streams}],
            "num_workers": 1,
            "worker_max_concurrency": ask.streams,
        },
        "server": {"type": "vllm", "model_name": ask.model, "base_url": ask.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(ask.tokenizer)},
        "storage": {"local_storage": {"path": str(ask.folder / "reports")}},
    }
    (ask.folder / "config.yaml").write_text(json.dumps(config))
    return [str(python.with_name("inference-perf")), "--config_file", "config.yaml"]


def read(ask: Ask, _printed: str) -> Reported:
    """The summary report; its times are seconds."""
    said = document(only(ask.folder / "reports", "summary_lifecycle_metrics.json"))["successes"]
    latency = said["latency"]
    ttft, itl = latency["time_to_first_token"], latency["inter_token_latency"]
    return Reported(said["count"], ttft["median"] * 1e3, ttft["p99"] * 1e3, itl["p99"] * 1e3)


PEER = Peer("inference_perf", "inference-perf 0.7.0", command, read, python=(3, 12))
