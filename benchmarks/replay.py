"""How true the client's times are and what they cost, beside other clients, against a server that logs the truth.

`goodput run`, a whole Locust worker with decoding and records, on one CPU; the C mock server on another. A token's
error is the client's stamp minus the server's logged send time of that token; TTFT error adds that of `sent`. Beside
it, on the same CPU in the same rounds: a bare recvmsg loop (the floor), an aiohttp and an httpx client. Medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.mock import MockServer, Truth, mock_server, pinned
from benchmarks.targets import Target, conclude, say
from metrics import rundir
from metrics.records import Outcome
from metrics.rundir import Run

SERVER_CPU, CLIENT_CPU = 1, 0
PACED = ["--ttft", "200", "--ttft-jitter", "0.5", "--itl", "25"]
MODES = {
    "plain": PACED,
    "sync": [*PACED, "--sync"],
    "flood": ["--ttft", "50", "--itl", "0", "--flood"],
    "long": PACED,
}
RAMP_S = 1.0
LONG_PROMPT, LONG_EVERY = 256_000, 25  # of mode long: megabytes among small requests
NO_LAG = np.iinfo(np.uint16).max


@dataclass
class Figures:
    """One round; times in milliseconds; NaN where a client does not know."""

    stamp_error_p50_ms: float
    stamp_error_p99_ms: float
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    gap_error_p99_ms: float
    cpu_us_per_event: float
    events_per_s: float
    send_lag_p50_ms: float
    send_lag_p99_ms: float
    loop_lag_p99_ms: float = float("nan")
    kernel_stamped: float = float("nan")
    coalesced: float = float("nan")


class Seen(NamedTuple):
    """What a client says: requests in the order of their sends, tokens ragged."""

    due_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    start: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    cpu_s: float


def main() -> int:
    """Run the rounds, print a table, judge the targets."""
    options = _options()
    found: dict[tuple[str, int, str], list[Figures]] = {}
    for number in range(options.rounds):
        for mode in options.modes.split(","):
            for streams in map(int, options.streams.split(",")):
                for client in options.clients.split(","):
                    figures = one_round(mode, streams, client, options)
                    found.setdefault((mode, streams, client), []).append(figures)
                    say(f"round {number + 1} {mode:<5} {streams:>5} {client:<8} {_line(figures)}")
    medians = {key: _medians(rounds) for key, rounds in found.items()}
    _table(medians)
    if options.out:
        rows = [{"mode": m, "streams": s, "client": c, **asdict(f)} for (m, s, c), f in medians.items()]
        Path(options.out).write_text(json.dumps(rows, indent=1) + "\n")
    return conclude("replay", _targets(medians, tls=options.tls))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="1000", help="numbers of streams, with commas")
    parser.add_argument("--modes", default="plain,sync", help=f"of {','.join(MODES)}")
    parser.add_argument("--clients", default="ours", help="of ours,bare,aiohttp,httpx")
    parser.add_argument("--tokens", type=int, default=200, help="per stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reactor", default="hub")
    parser.add_argument("--tls", action="store_true", help="over TLS (client ours only)")
    parser.add_argument("--ramp", type=float, default=RAMP_S, help="seconds over which the streams begin")
    parser.add_argument("--httpx", default=sys.executable, help="interpreter that has httpx and numpy")
    parser.add_argument("--out", help="file for the medians, as JSON")
    return parser.parse_args()


def one_round(mode: str, streams: int, client: str, options: argparse.Namespace) -> Figures:
    """Start the server, run the client once, compare."""
    server_of_mode = mock_server(*MODES[mode], cpu=SERVER_CPU, tls=options.tls)
    with server_of_mode as server, tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        _write_trace(trace, streams, options.tokens, options.ramp, LONG_EVERY if mode == "long" else 0)
        if client == "ours":
            run = _run_ours(server, trace, Path(folder) / "run", options.reactor)
            return _with_validity(compare(_seen_by_ours(run), server.collect()), run)
        interpreter = options.httpx if client == "httpx" else sys.executable
        return compare(_run_other(server, trace, Path(folder) / "seen.npz", client, interpreter), server.collect())


def _write_trace(path: Path, streams: int, tokens: int, ramp_s: float = RAMP_S, long_every: int = 0) -> None:
    """Prompts over `ramp_s`; lengths of answers differ, so that a request matched with the wrong truth is noticed."""
    prompts = (LONG_PROMPT if long_every and i % long_every == long_every // 2 else 16 for i in range(streams))
    rows = (f"{i * ramp_s / streams:.6f},{prompt},{tokens - 10 + i * 7 % 21}" for i, prompt in enumerate(prompts))
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")


def _run_ours(server: MockServer, trace: Path, out: Path, reactor: str) -> Run:
    command = [*pinned(CLIENT_CPU), sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", server.url]
    command += ["--trace", str(trace), "--out", str(out), "--reactor", reactor, "--json"]
    command += ["--ca-file", str(server.ca_file)] if server.ca_file else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (out / "records.npz").exists():
        raise SystemExit(f"bench: goodput run ended with {done.returncode}: {done.stderr[-500:]}")
    run = rundir.load(out)
    failed = int((run.table.rows["outcome"] != Outcome.OK).sum())
    if failed:
        raise SystemExit(f"bench: {failed} requests failed")
    return run


def _seen_by_ours(run: Run) -> Seen:
    rows, events = run.table.rows, run.table.events
    assert events is not None
    zero_ns = run.table.workers[0].zero_ns
    order = np.argsort(rows["sent_s"], kind="stable")
    sent_ns = np.rint(rows["sent_s"] * 1e9).astype(np.int64) + zero_ns
    counts = np.diff(events.start)
    at_ns = events.us.astype(np.int64) * 1000 + np.repeat(sent_ns, counts)
    parts = [at_ns[events.start[row] : events.start[row + 1]] for row in order]
    return Seen(
        np.rint(rows["scheduled_s"][order] * 1e9).astype(np.int64) + zero_ns,
        sent_ns[order],
        np.concatenate([[0], np.cumsum(counts[order])]),
        np.concatenate(parts),
        sum(worker.cpu_s for worker in run.table.workers),
    )


def _run_other(server: MockServer, trace: Path, out: Path, client: str, interpreter: str) -> Seen:
    command = [*pinned(CLIENT_CPU), interpreter, "-m", "benchmarks.clients", client, server.url, str(trace), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench: the {client} client failed: {done.stderr[-500:]}")
    with np.load(out) as saved:
        sent_ns, start, at_ns = saved["sent_ns"], saved["start"], saved["at_ns"]
        order = np.argsort(sent_ns, kind="stable")
        parts = [at_ns[start[row] : start[row + 1]] for row in order]
        starts = np.concatenate([[0], np.cumsum(np.diff(start)[order])])
        return Seen(sent_ns[order], sent_ns[order], starts, np.concatenate(parts), float(saved["cpu_s"]))


def compare(seen: Seen, truth: list[Truth]) -> Figures:
    """What a client saw against the server's log, request by request and token by token."""
    truth = _matched(seen, truth)
    true_ns = np.concatenate([true.tokens_ns for true in truth])
    received_ns = np.array([true.received_ns for true in truth])
    error = seen.at_ns - true_ns
    first = error[seen.start[:-1]] + received_ns - seen.sent_ns
    inner = np.ones(len(error), dtype=bool)
    inner[seen.start[:-1]] = False
    gaps = np.abs(np.diff(error, prepend=error[:1]))[inner]
    lag = seen.sent_ns - seen.due_ns
    span_s = (true_ns.max() - true_ns.min()) / 1e9
    return Figures(
        *_percentiles(error),
        *_percentiles(first),
        float(np.percentile(gaps, 99) / 1e6),
        seen.cpu_s * 1e6 / len(error),
        len(error) / span_s,
        *_percentiles(lag),
    )


def _percentiles(ns: NDArray[np.int64]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    half, most = np.percentile(ns, [50, 99]) / 1e6
    return float(half), float(most)


def _matched(seen: Seen, truth: list[Truth]) -> list[Truth]:
    """The log's requests in the client's order; requests sent within microseconds may arrive the other way round."""
    truth = truth[len(truth) - len(seen.sent_ns) :]  # what came before is the preflight's probe
    counts = np.diff(seen.start)
    for row in range(len(truth)):
        near = range(row, min(row + 50, len(truth)))
        right = next((other for other in near if len(truth[other].tokens_ns) == counts[row]), None)
        if right is None:
            raise SystemExit("bench: a request was matched with another one's log")
        truth[row : right + 1] = [truth[right], *truth[row:right]]
    return truth


def _with_validity(figures: Figures, run: Run) -> Figures:
    rows, events = run.table.rows, run.table.events
    assert events is not None
    kernel = events.lag_us != NO_LAG
    figures.loop_lag_p99_ms = float(np.percentile(events.lag_us[kernel], 99)) / 1e3 if kernel.any() else float("nan")
    figures.kernel_stamped = float(kernel.mean())
    figures.coalesced = float(rows["coalesced_reads"].sum() / rows["reads"].sum())
    return figures


def _line(figures: Figures) -> str:
    return (
        f"stamp {figures.stamp_error_p50_ms:.3f}/{figures.stamp_error_p99_ms:.3f} ms"
        f"  ttft {figures.ttft_error_p50_ms:.3f}/{figures.ttft_error_p99_ms:.3f} ms"
        f"  gap {figures.gap_error_p99_ms:.3f} ms  {figures.cpu_us_per_event:.1f} us/event"
    )


def _medians(found: list[Figures]) -> Figures:
    return Figures(*(statistics.median(getattr(figures, f.name) for figures in found) for f in fields(Figures)))


def _table(medians: dict[tuple[str, int, str], Figures]) -> None:
    say("\n| mode | streams | client | CPU us/event | stamp error p50/p99 ms | TTFT error p50/p99 ms | gap p99 ms |")
    say("|---|---|---|---|---|---|---|")
    for (mode, streams, client), f in medians.items():
        say(
            f"| {mode} | {streams} | {client} | {f.cpu_us_per_event:.1f} | {f.stamp_error_p50_ms:.3f} / "
            f"{f.stamp_error_p99_ms:.3f} | {f.ttft_error_p50_ms:.3f} / {f.ttft_error_p99_ms:.3f} | "
            f"{f.gap_error_p99_ms:.3f} |"
        )


def _targets(medians: dict[tuple[str, int, str], Figures], *, tls: bool) -> list[Target]:
    """How true 1,000 plain streams are in both modes; how many streams of either kind a core carries."""
    targets = []
    for (mode, streams, client), median in medians.items():
        if client != "ours" or mode == "flood":
            continue
        if mode == "plain" and (tls or streams > 1000):
            name = f"ttft_error_p99_ms.{'tls' if tls else mode}.{streams}"
            targets.append(Target(name, median.ttft_error_p99_ms, 1.0, "ms"))
        if mode == "long":
            targets.append(Target(f"ttft_error_p99_ms.long.{streams}", median.ttft_error_p99_ms, 1.0, "ms"))
        if tls or streams != 1000 or mode == "long":
            continue
        targets.append(Target(f"ttft_error_p50_ms.{mode}", median.ttft_error_p50_ms, 0.1, "ms"))
        targets.append(Target(f"ttft_error_p99_ms.{mode}", median.ttft_error_p99_ms, 0.5, "ms"))
        targets.append(Target(f"stamp_error_p99_ms.{mode}", median.stamp_error_p99_ms, 0.5, "ms"))
        if mode == "sync":
            targets.append(Target("gap_error_p99_ms.sync", median.gap_error_p99_ms, 0.1, "ms"))
    return targets


if __name__ == "__main__":
    sys.exit(main())
