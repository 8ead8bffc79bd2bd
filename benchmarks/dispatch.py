"""How late requests leave: a thousand a second beside 500 live streams, a trace, a burst of 1,000, and long prompts.

Send lag is `sent - scheduled` as `goodput run` records it, the client on one CPU and the C mock server on another. In
a burst every request is due at one instant, so its lag is the time to hand them all to the kernel: shown apart. The
floor is a process that does nothing but wake at a thousand instants a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.mock import mock_server, pinned
from benchmarks.targets import Target, conclude, say
from loadtest import clock
from loadtest.replay.reactor import EpollReactor
from metrics import rundir
from metrics.records import Outcome

SERVER_CPU, CLIENT_CPU = 1, 0
SERVER = ["--ttft", "20", "--itl", "25"]
LIVE, RATE_PER_S, SECONDS = 500, 1000, 5
LONG_PROMPT = 256_000
PERCENTILES = (50, 99, 99.9, 100)
Row = tuple[float, int, int]
Lags = tuple[float, ...]  # one for each of PERCENTILES


def steady() -> Iterable[Row]:
    """500 streams of ten seconds, then 1,000 short requests a second."""
    yield from ((i / LIVE, 16, 400) for i in range(LIVE))
    yield from ((1.5 + i / RATE_PER_S, 16, 2) for i in range(RATE_PER_S * SECONDS))


def burst() -> Iterable[Row]:
    """A thousand first requests at one instant."""
    return ((1.0, 16, 4) for _ in range(1000))


def long() -> Iterable[Row]:
    """The same 500 streams, 100 short requests a second, and a prompt of 256,000 tokens every quarter of a second."""
    yield from ((i / LIVE, 16, 400) for i in range(LIVE))
    short = ((1.5 + i / 100, 16, 2) for i in range(100 * SECONDS))
    yield from sorted([*short, *((1.6 + i / 4, LONG_PROMPT, 3) for i in range(4 * SECONDS - 1))])


SCENES = {"steady": steady, "burst": burst, "long": long}


def main() -> int:
    """Interleaved rounds; medians of each scene's percentiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.floor:
        return _wake_only()
    lags: dict[str, list[Lags]] = {"floor": [], "steady": [], "trace": [], "burst": [], "long": []}
    for number in range(options.rounds):
        for scene, found in lags.items():
            found.append(_floor() if scene == "floor" else one_round(scene))
            half, most, nearly, last = found[-1]
            say(
                f"round {number + 1} {scene:<7} send lag p50 {half:.3f}  p99 {most:.3f}  p99.9 {nearly:.3f}  "
                f"max {last:.3f} ms"
            )
    targets = []
    for scene, half_limit, most_limit in (("steady", 0.1, None), ("trace", 0.3, 2.0)):
        targets.append(Target(f"send_lag_p50_ms.{scene}", _median(lags[scene], 0), half_limit, "ms"))
        if most_limit is not None:
            targets.append(Target(f"send_lag_p99_ms.{scene}", _median(lags[scene], 1), most_limit, "ms"))
    above = _median(lags["long"], 2) - _median(lags["floor"], 2)
    targets.append(Target("send_lag_p99.9_above_floor_ms.long", above, 1.0, "ms"))
    say(
        "medians (p50, p99, p99.9, max ms): "
        + str({scene: [_median(found, i) for i in range(len(PERCENTILES))] for scene, found in lags.items()})
    )
    return conclude("dispatch", targets)


def one_round(scene: str) -> Lags:
    """The send lag in ms, of the short answers where streams are only company."""
    with mock_server(*SERVER, cpu=SERVER_CPU) as server, tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.csv"
        words = ["--trace", "azure-conv", "--rate", "50", "--duration", "6s"]
        if scene in SCENES:
            lines = (f"{at:.6f},{prompt},{tokens}" for at, prompt, tokens in SCENES[scene]())
            trace.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *lines]) + "\n")
            words = ["--trace", str(trace)]
        command = [*pinned(CLIENT_CPU), sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", server.url]
        done = subprocess.run(
            [*command, *words, "--out", str(Path(folder) / "run"), "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        if not (Path(folder) / "run" / "records.npz").exists():
            raise SystemExit(f"bench: goodput run ended with {done.returncode}: {done.stderr[-500:]}")
        rows = rundir.load(Path(folder) / "run").table.rows
    if (rows["outcome"] != Outcome.OK).any():
        raise SystemExit(f"bench: {(rows['outcome'] != Outcome.OK).sum()} requests failed")
    short = rows["max_tokens"] < 400
    lag_ms = (rows["sent_s"] - rows["scheduled_s"])[short if scene in ("steady", "long") else slice(None)] * 1e3
    return tuple(np.percentile(lag_ms, PERCENTILES).tolist())


def _floor() -> Lags:
    command = [*pinned(CLIENT_CPU), sys.executable, "-m", "benchmarks.dispatch", "--floor"]
    return tuple(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def _wake_only() -> int:
    """Wake at RATE_PER_S instants a second and print how late, in ms."""
    reactor = EpollReactor()
    late_ns: list[int] = []
    first_ns = clock.monotonic_ns() + 100_000_000
    instants = [first_ns + i * 1_000_000_000 // RATE_PER_S for i in range(RATE_PER_S * 2)]

    def awake() -> None:
        late_ns.append(clock.monotonic_ns() - instants[len(late_ns)])
        if len(late_ns) < len(instants):
            deadline.arm(instants[len(late_ns)])

    deadline = reactor.deadline(awake)
    deadline.arm(instants[0])
    reactor.run_until(lambda: len(late_ns) == len(instants))
    say(json.dumps((np.percentile(late_ns, PERCENTILES) / 1e6).tolist()))
    return 0


def _median(found: list[Lags], which: int) -> float:
    return round(statistics.median(lag[which] for lag in found), 4)


if __name__ == "__main__":
    sys.exit(main())
