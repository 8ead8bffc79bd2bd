"""Our own client as one of the tools: the whole `goodput run`, held to N streams by --max-in-flight."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.peers.peer import Ask, Peer, Reported
from metrics import rundir
from metrics.records import Outcome


def command(python: Path, ask: Ask) -> list[str]:
    """Every request is due at once, and waits for its slot."""
    rows = [f"0,{ask.prompt_tokens},{ask.tokens}"] * ask.requests
    (ask.folder / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
    line = [str(python), "-P", "-m", "loadtest.cli.main", "run", "--target", ask.url, "--api", "chat"]
    line += ["--model", ask.model, "--trace", "trace.csv", "--max-in-flight", str(ask.streams), "--warmup", "0s"]
    return [*line, "--out", "run", "--json"]


def read(ask: Ask, _printed: str) -> Reported:
    """TTFT from the send, as the other tools count it; the gaps between token events."""
    table = rundir.load(ask.folder / "run").table
    rows, events = table.rows, table.events
    assert events is not None
    ok = rows["outcome"] == Outcome.OK
    ttft_ms = (rows["first_token_s"] - rows["sent_s"])[ok] * 1e3
    inner = np.ones(len(events.us), dtype=bool)
    inner[events.start[:-1][np.diff(events.start) > 0]] = False
    gaps_ms = np.diff(events.us.astype(np.int64), prepend=0)[inner] / 1e3
    p50, p99 = np.percentile(ttft_ms, [50, 99])
    return Reported(int(ok.sum()), float(p50), float(p99), float(np.percentile(gaps_ms, 99)))


PEER = Peer("ours", "goodput run", command, read, rounds=3, here=True)
