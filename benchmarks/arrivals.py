"""Requests reach the server when the trace says: six runs of a minute against emulated backends.

The server stamps each request at its first byte; an arrival's error is that stamp minus the row's instant. Pass
`--trace FILE` (repeatable) to replay files; without, the two built-in workloads are replayed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.mock import pinned
from benchmarks.targets import Target, conclude, say
from loadtest.backends.server import command as server_command
from loadtest.supervise import Server
from metrics import rundir
from metrics.records import Outcome

ARRANGEMENTS = {
    "colocated": "emulated:colocated,instances=2",
    "chunked": "emulated:chunked,instances=2",
    "disaggregated": "emulated:disaggregated,prefill=1,decode=1",
}
SERVER_CPU, CLIENT_CPU = 1, 0
SLO = "ttft=1s,tpot=60ms"


def main() -> int:
    """Run every arrangement with every trace; judge arrival error, accounting and exit codes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", action="append")
    parser.add_argument("--duration", default="60s")
    options = parser.parse_args()
    targets = []
    for trace in options.trace or ["azure-conv", "azure-code"]:
        for name, deployment in ARRANGEMENTS.items():
            targets += one_run(f"{name}.{Path(trace).stem}", deployment, trace, options.duration)
    return conclude("arrivals", targets)


def one_run(name: str, deployment: str, trace: str, duration: str) -> list[Target]:
    """One run, judged against the server's own log of arrivals."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "arrivals.jsonl"
        argv = [*pinned(SERVER_CPU), *server_command(deployment, arrival_log=log)]
        with Server(argv, log=Path(folder) / "server.log") as server:
            code, document = _run_client(server.url, trace, duration, Path(folder) / "run")
        arrived = np.array([json.loads(line)["mono_ns"] for line in log.read_text().splitlines()])
        run = rundir.load(Path(folder) / "run")
    rows = run.table.rows
    due_ns = np.sort(rows["scheduled_s"]) * 1e9 + run.table.workers[0].zero_ns
    error_ms = (np.sort(arrived)[-len(rows) :] - due_ns) / 1e6
    p50, p99 = np.percentile(error_ms, [50, 99])
    by_outcome = document["requests"]["by_outcome"]
    lost = int(np.isin(rows["outcome"], (Outcome.NOT_SENT, Outcome.LOST_WORKER)).sum())
    say(f"{name}: {len(rows)} requests {by_outcome}, arrival error p50 {p50:.3f} p99 {p99:.3f} ms, exit {code}")
    return [
        Target(f"arrival_error_p99_ms.{name}", float(p99), 2.0, "ms"),
        Target(f"not_sent_or_lost.{name}", lost, 0, "requests"),
        Target(f"unaccounted.{name}", abs(len(rows) - sum(by_outcome.values())), 0, "requests"),
        Target(f"exit_code.{name}", code, 0, ""),
    ]


def _run_client(url: str, trace: str, duration: str, out: Path) -> tuple[int, dict[str, dict[str, dict[str, int]]]]:
    command = [*pinned(CLIENT_CPU), sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", url]
    command += ["--trace", trace, "--duration", duration, "--slo", SLO, "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"bench: stdout is not one JSON document: {done.stdout[:200]} {done.stderr[-300:]}") from None


if __name__ == "__main__":
    sys.exit(main())
