"""Five gates between real servers on loopback (the fast emulated model), each with the verdict it must give."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.targets import Target, say
from loadtest import clock
from loadtest.pairs import Pairs, Replay, run_gate
from loadtest.replay.sender import SenderOptions
from loadtest.sides import LaunchedSide, LaunchFile
from loadtest.target import LoadSettings, Measurement, OnProgress
from loadtest.target import Target as Loaded
from loadtest.workload import Workload
from metrics.gate.looks import LOOKS
from metrics.gate.report import Plan
from metrics.gate.rules import DEFAULT_RULES, parse_rules
from metrics.gate.sample import Sample
from metrics.slo import SLO
from reports.gate_words import effect, interval
from workloads.schedule import Schedule

DEPLOYMENT = "emulated:chunked,model=demo-8b,instances=4,max_num_batched_tokens=512"
RATE, SECONDS = 16.0, 15.0
TARGETS = SLO.parse("ttft=250ms,tpot=20ms")
STALL_S, STALL_EVERY_S = 0.08, 0.2

# name: (options of the candidate's server, the verdict)
SCENARIOS = {
    "a/a": ([], "PASS"),
    "decode +15 %": (["--decode", "1.15"], "FAIL"),
    "prefill +30 %": (["--prefill", "1.3"], "FAIL"),
    "3 % fail": (["--fail", "0.03"], "FAIL"),
    "limited by the client": ([], "INVALID"),
}


class StalledTarget:
    """A live target whose client is too slow: this process sleeps through a part of every run."""

    def __init__(self, target: Loaded) -> None:
        self._target = target
        self.deployment = target.deployment
        self.facts = target.facts

    def measure(
        self, schedule: Schedule, directory: Path, on_progress: OnProgress | None = None, *, abort_on: str = ""
    ) -> Measurement:
        """Measure with the stalls."""
        import gevent
        from gevent.monkey import get_original

        sleep = get_original("time", "sleep")

        def stall() -> None:
            while True:
                gevent.sleep(STALL_EVERY_S)
                sleep(STALL_S)

        stalls = gevent.spawn(stall)
        try:
            return self._target.measure(schedule, directory, on_progress, abort_on=abort_on)
        finally:
            stalls.kill()


@dataclass(frozen=True)
class StalledSide:
    """The side whose client stalls."""

    side: LaunchedSide

    @property
    def label(self) -> str:
        return self.side.label

    @contextmanager
    def open(self, folder: Path) -> Iterator[StalledTarget]:
        with self.side.open(folder) as target:
            yield StalledTarget(target)


def side(name: str, words: list[str]) -> LaunchedSide:
    """A server of ours, with what is broken about it."""
    command = [sys.executable, "-m", "benchmarks.slowed", *words, "--deployment", DEPLOYMENT, "--port", "{port}"]
    return LaunchedSide(name, LaunchFile(command=command), LoadSettings(SenderOptions()))


def live(folder: Path, names: list[str]) -> list[Target]:
    """Run these scenarios; one target each: 0 when the verdict is the expected one."""
    trace = folder / "trace.csv"
    write_trace(trace)
    plan = Plan(rules=parse_rules(list(DEFAULT_RULES)), looks=list(LOOKS))
    probe = Replay(Workload(trace=str(trace)), TARGETS, [], warmup_share=0.2)
    targets = []
    for name in names:
        words, expected = SCENARIOS[name]
        directory = folder / name.replace("/", "").replace(" ", "-")
        candidate = side("candidate", words)
        other = StalledSide(candidate) if "client" in name else candidate
        pairs = Pairs(side("baseline", []), other, replace(probe), directory, on_run=told)  # type: ignore[arg-type]
        before_ns = clock.monotonic_ns()
        report = run_gate(pairs, plan)
        wall_min = (clock.monotonic_ns() - before_ns) / 60e9
        why = ", ".join(reason.code for reason in report.invalid) or report.sentence
        say(
            f"live, {name}: {report.verdict} after {len(report.pairs)} pairs, "
            f"{report.cost.server_minutes:.1f} server-minutes ({wall_min:.1f} min); {why}"
        )
        for result in report.rules:
            spread = f"sigma {result.sigma or 0:.3g}"
            say(f"    {result.rule}: {result.verdict}, {effect(result)} ({interval(result)}), {spread}")
        targets.append(Target(f"live.{name}", float(report.verdict != expected), 0, "wrong verdicts"))
    return targets


def told(name: str, number: int, sample: Sample) -> None:
    """A run that spoils the comparison is named at once."""
    for finding in sample.unsound:
        say(f"    pair {number} {name}: {finding.message}")


def write_trace(path: Path) -> None:
    """Poisson arrivals, prompts of about 600 tokens, answers of about 50: short runs that end soon."""
    rng = np.random.default_rng(5)
    at = np.cumsum(rng.exponential(1 / RATE, int(RATE * SECONDS)))
    prompt = np.exp(rng.normal(np.log(600), 0.7, len(at))).clip(16, 4000).astype(int)
    answer = np.exp(rng.normal(np.log(50), 0.5, len(at))).clip(4, 200).astype(int)
    rows = (f"{t:.6f},{p},{o}" for t, p, o in zip(at, prompt, answer, strict=True))
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
