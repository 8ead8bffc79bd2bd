"""How true the client's times are and what they cost: 1,000 streams against a server that logs the truth.

`goodput run`, a whole Locust worker with decoding and records, on one CPU; the C mock server on another. A token's
error is the client's stamp minus the server's logged send time of that token; TTFT error adds that of `sent`.
Medians of five interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.mock import MockServer, Truth, mock_server, pinned
from benchmarks.targets import Target, conclude, say
from metrics import rundir
from metrics.records import Outcome
from metrics.rundir import Run

SERVER_CPU, CLIENT_CPU = 1, 0
MODES = {"plain": [], "sync": ["--sync"]}
SERVER = ["--ttft", "200", "--ttft-jitter", "0.5", "--itl", "25"]
RAMP_S = 1.0


@dataclass
class Figures:
    """One round; times in milliseconds."""

    stamp_error_p50_ms: float
    stamp_error_p99_ms: float
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    gap_error_p99_ms: float
    send_lag_p50_ms: float
    send_lag_p99_ms: float
    loop_lag_p99_ms: float
    cpu_us_per_event: float
    kernel_stamped: float
    coalesced: float
    streams_at_once: float


def main() -> int:
    """Run the rounds, print a table, judge the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reactor", default="hub")
    options = parser.parse_args()
    rounds: dict[str, list[Figures]] = {mode: [] for mode in MODES}
    for number in range(options.rounds):
        for mode, flags in MODES.items():
            rounds[mode].append(one_round(flags, options))
            figures = rounds[mode][-1]
            say(
                f"round {number + 1} {mode:<6}"
                f"  stamp {figures.stamp_error_p50_ms:.3f}/{figures.stamp_error_p99_ms:.3f} ms"
                f"  ttft {figures.ttft_error_p50_ms:.3f}/{figures.ttft_error_p99_ms:.3f} ms"
                f"  {figures.cpu_us_per_event:.1f} us/event"
            )
    medians = {mode: _medians(found) for mode, found in rounds.items()}
    _table(medians)
    targets = []
    for mode, median in medians.items():
        targets.append(Target(f"ttft_error_p50_ms.{mode}", median.ttft_error_p50_ms, 0.1, "ms"))
        targets.append(Target(f"ttft_error_p99_ms.{mode}", median.ttft_error_p99_ms, 0.5, "ms"))
        targets.append(Target(f"stamp_error_p99_ms.{mode}", median.stamp_error_p99_ms, 0.5, "ms"))
    return conclude("replay", targets)


def one_round(flags: list[str], options: argparse.Namespace) -> Figures:
    """Start the server, run the client once, compare."""
    with mock_server(*SERVER, *flags, cpu=SERVER_CPU) as server, tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        _write_trace(trace, options.streams, options.tokens)
        run = _run_client(server, trace, Path(folder) / "run", options.reactor)
        return compare(run, server.collect())


def _write_trace(path: Path, streams: int, tokens: int) -> None:
    """Equal prompts over one second; lengths differ, so that a request matched with the wrong truth is noticed."""
    rows = (f"{i * RAMP_S / streams:.6f},16,{tokens - 10 + i * 7 % 21}" for i in range(streams))
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")


def _run_client(server: MockServer, trace: Path, out: Path, reactor: str) -> Run:
    command = [*pinned(CLIENT_CPU), sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", server.url]
    command += ["--trace", str(trace), "--out", str(out), "--reactor", reactor, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (out / "records.npz").exists():
        raise SystemExit(f"bench: goodput run ended with {done.returncode}: {done.stderr[-500:]}")
    return rundir.load(out)


def compare(run: Run, truth: list[Truth]) -> Figures:
    """The client's rows against the server's log, request by request and token by token."""
    rows, events = run.table.rows, run.table.events
    assert events is not None
    if (rows["outcome"] != Outcome.OK).any():
        raise SystemExit(f"bench: {(rows['outcome'] != Outcome.OK).sum()} requests failed")
    truth = truth[len(truth) - len(rows) :]  # what came before is the preflight's probe
    zero_ns = run.table.workers[0].zero_ns
    stamp, first, gaps = [], [], []
    for row, true in zip(np.argsort(rows["sent_s"], kind="stable"), truth, strict=True):
        sent_ns = round(float(rows["sent_s"][row]) * 1e9) + zero_ns
        us = events.us[events.start[row] : events.start[row + 1]].astype(np.int64)
        if len(us) != len(true.tokens_ns):
            raise SystemExit("bench: a request was matched with another one's log")
        error = us * 1000 + sent_ns - true.tokens_ns
        stamp.append(error)
        first.append(error[0] + true.received_ns - sent_ns)
        gaps.append(np.diff(error))
    stamp_ms, ttft_ms = np.concatenate(stamp) / 1e6, np.array(first) / 1e6
    gap_ms, lag_ms = np.abs(np.concatenate(gaps)) / 1e6, (rows["sent_s"] - rows["scheduled_s"]) * 1e3
    kernel = events.lag_us != np.iinfo(np.uint16).max
    return Figures(
        *np.percentile(stamp_ms, [50, 99]).tolist(),
        *np.percentile(ttft_ms, [50, 99]).tolist(),
        float(np.percentile(gap_ms, 99)),
        *np.percentile(lag_ms, [50, 99]).tolist(),
        float(np.percentile(events.lag_us[kernel], 99)) / 1e3,
        sum(worker.cpu_s for worker in run.table.workers) * 1e6 / len(stamp_ms),
        float(kernel.mean()),
        float(rows["coalesced_reads"].sum() / rows["reads"].sum()),
        _at_once(truth),
    )


def _at_once(truth: list[Truth]) -> float:
    starts = np.sort([true.received_ns for true in truth])
    ends = np.sort([true.tokens_ns[-1] for true in truth])
    return float(max(i + 1 - np.searchsorted(ends, start) for i, start in enumerate(starts)))


def _medians(found: list[Figures]) -> Figures:
    return Figures(*(statistics.median(getattr(figures, f.name) for figures in found) for f in fields(Figures)))


def _table(medians: dict[str, Figures]) -> None:
    say(f"\n{'median':<22}" + "".join(f"{mode:>12}" for mode in medians))
    for field in fields(Figures):
        say(f"{field.name:<22}" + "".join(f"{getattr(median, field.name):>12.4f}" for median in medians.values()))


if __name__ == "__main__":
    sys.exit(main())
