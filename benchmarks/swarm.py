"""One, two and four workers on the mock server with the same streams, and a master's memory over a million requests.

Every run offers the same schedule; a token's error is the client's stamp minus the server's logged send time. On a
machine with two cores, one of them the server's, more workers share the other: the figures then show what sharing
costs, not what more machines bring. Medians of interleaved rounds. The second part sends the journal of a million
requests through a courier into a master's copy, and looks at what this process holds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.mock import MockServer, mock_server
from benchmarks.replay import PACED, SERVER_CPU, Figures, _seen_by_ours, _write_trace, compare
from benchmarks.targets import Target, conclude, say
from loadtest.swarm.courier import Copy, Courier
from loadtest.swarm.protocol import Ack, Batch
from metrics import rundir
from metrics.journal import JournalWriter
from metrics.records import Outcome, empty_rows

SHOWN = ("stamp_error_p99_ms", "ttft_error_p99_ms", "send_lag_p50_ms", "send_lag_p99_ms", "cpu_us_per_event")
REQUESTS, EVENTS_EACH = 1_000_000, 20


def main() -> int:
    """Run the rounds, print a table, judge the targets."""
    options = _options()
    found: dict[int, list[Figures]] = {}
    for number in range(options.rounds):
        for workers in map(int, options.workers.split(",")):
            figures = one_round(workers, options.streams, options.tokens)
            found.setdefault(workers, []).append(figures)
            say(f"round {number + 1} workers {workers}  " + _line(figures))
    grown_mib = memory_growth_mib(options.requests)
    say(f"memory of a master: {grown_mib:.1f} MiB more after the journals of {options.requests} requests")
    targets = [Target("memory growth over all requests", grown_mib, 32.0, "MiB")]
    for workers, rounds in found.items():
        lag = statistics.median(figures.send_lag_p99_ms for figures in rounds)
        say(f"median workers {workers}: send lag p99 {lag:.3g} ms")
        targets.append(Target(f"send lag p99, {workers} workers", lag, 20.0, "ms"))
    return conclude("swarm", targets)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=100, help="per stream")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of the memory part")
    return parser.parse_args()


def one_round(workers: int, streams: int, tokens: int) -> Figures:
    """Start the server, run `goodput run --workers N` once, compare; SystemExit when a request was not answered."""
    with mock_server(*PACED, cpu=SERVER_CPU) as server, tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder) / "trace.csv", Path(folder) / "run"
        _write_trace(trace, streams, tokens)
        _offer(server, trace, out, workers)
        run = rundir.load(out)
        ok = int((run.table.rows["outcome"] == Outcome.OK).sum())
        truth = server.collect()
        if ok != streams or len(truth) != streams + 1:  # and the preflight's probe
            raise SystemExit(f"bench: {ok} of {streams} requests were answered, {len(truth) - 1} were sent")
        return compare(_seen_by_ours(run), truth)


def _offer(server: MockServer, trace: Path, out: Path, workers: int) -> None:
    command = [sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", server.url, "--json"]
    command += ["--trace", str(trace), "--out", str(out), "--workers", str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (out / rundir.RECORDS).exists():
        raise SystemExit(f"bench: goodput run ended with {done.returncode}: {done.stderr[-500:]}")


def memory_growth_mib(requests: int) -> float:
    """How much more this process needs at its peak after `requests` records went from a journal into a copy."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        writer = JournalWriter(journal, 0, "bench")
        copy = Copy(Path(folder) / "copy")
        letters: list[Batch] = []
        courier = Courier("bench", journal, letters.append)
        row, before = empty_rows(1)[0].tobytes(), 0
        for number in range(requests):
            writer.record(row, bytes(4 * EVENTS_EACH), bytes(2 * EVENTS_EACH), bytes(2 * EVENTS_EACH))
            if number % 1000 == 0:
                writer.flush()
                _exchange(courier, copy, letters)
            if number == requests // 100:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        writer.close()
        while not courier.delivered:
            _exchange(courier, copy, letters)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def _exchange(courier: Courier, copy: Copy, letters: list[Batch]) -> None:
    """A second of a run: what is new goes over, and is acknowledged."""
    courier.turn()
    for letter in letters:
        courier.heard(Ack("bench", copy.take(letter)))
    letters.clear()


def _line(figures: Figures) -> str:
    values = asdict(figures)
    return "  ".join(f"{name} {values[name]:.3g}" for name in SHOWN)


if __name__ == "__main__":
    raise SystemExit(main())
