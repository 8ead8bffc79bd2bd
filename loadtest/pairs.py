"""Pairs of runs in ABBA order, and the gate that asks for more of them until the data decide.

What is done to an opened target in one run is a `Probe`'s business (a replay, a ladder, a goodput search); in which
order, how often, what it took and when it is enough is decided here. Why ABBA: docs/gate.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest import clock
from loadtest.errors import Interrupted, TargetError
from loadtest.record import planned_info, record, require_written
from loadtest.sides import AGAIN, Side, StoredSide, VirtualSide
from loadtest.target import OnProgress, Target
from loadtest.workload import Workload, fresh_salt
from metrics import rundir
from metrics.gate.comparable import Pair, reasons
from metrics.gate.defaults import judged_rules
from metrics.gate.report import Cost, GateReport, PairRecord, Plan, SideFacts, decide, record_of, stopped
from metrics.gate.sample import Sample, sample_of
from metrics.rundir import Run
from metrics.slo import SLO
from metrics.summary import summarise
from workloads.schedule import Schedule
from workloads.trace import Trace

Order = Literal["abba", "abab"]
SPOILED = "limited_by_client"  # by a neighbour on the client's machine, as likely as not: worth a second try
MOST_SECOND_TRIES = 2
AROUND_RUN_S = 3.0  # start, preflight and drain of one run: for the estimate of the cost only
WARMUP_SHARE = 0.2

OnRun = Callable[[str, int, Sample], None]


class Probe(Protocol):
    """What one run of one side is."""

    def expected_s(self) -> float:
        """Seconds of load in one run."""

    def __call__(self, target: Target, number: int, folder: Path) -> Sample:
        """Load the opened target as run `number` of its side; artefacts go into `folder`, which exists."""

    def judge_stored(self, run: Run) -> Sample:
        """The same of a run that was made before."""


def order_of(number: int, order: Order) -> str:
    """Which side goes first in pair `number` (from 1): AB, BA, AB, ... or always AB."""
    return "BA" if order == "abba" and number % 2 == 0 else "AB"


@dataclass(frozen=True)
class Replay:
    """Replay a workload: the same arrivals and lengths in every run of both sides, fresh prompts in each.

    On the virtual clock, where nothing else varies, each pair gets arrivals of its own.
    """

    workload: Workload
    slo: SLO | None
    command: list[str]
    virtual: bool = False
    warmup_share: float = 0.0  # of the schedule's rows, when the workload itself has no warm-up
    schedule: Schedule | None = None  # that of stored runs, when the other side has them
    on_progress: Callable[[Schedule], OnProgress] | None = None
    say: Callable[[str], None] = lambda _: None  # told once what to know about the trace, before anything is sent
    _traces: dict[tuple[int, int | None], Trace] = field(default_factory=dict)

    def expected_s(self) -> float:
        """The length of the schedule."""
        return self._plan(1, None).duration_s

    def max_tokens(self) -> NDArray[np.integer]:
        """What each counted request of the first run asks for."""
        schedule = self._plan(1, None)
        return schedule.max_tokens[~schedule.warmup]

    def __call__(self, target: Target, number: int, folder: Path) -> Sample:
        """Record one run in `folder`; raises Interrupted when the user stops it."""
        limit = target.facts.max_model_len
        schedule = self._plan(number, limit)
        told = self.workload.facts(self._trace(number, limit)) if self.schedule is None else {}
        info = planned_info(target, schedule)
        info = msgspec.structs.replace(
            info,
            name=folder.name,
            command=self.command,
            slo="" if self.slo is None else str(self.slo),
            warmup_s=float(schedule.scheduled_s[schedule.warmup].max()) if schedule.warmup.any() else 0.0,
            **told | {"warnings": [*told.get("warnings", ()), *info.warnings]},
        )
        run = record(target, schedule, info, folder, self.on_progress(schedule) if self.on_progress else None)
        require_written(run.info)
        if run.info.state == "partial":
            raise Interrupted(f"stopped by the user; the runs so far are in {folder.parent}")
        return self.judge_stored(run)

    def judge_stored(self, run: Run) -> Sample:
        """The run's sample under this SLO, whatever it was recorded with."""
        told = msgspec.structs.replace(run.info, slo="" if self.slo is None else str(self.slo))
        return sample_of(summarise(Run(told, run.table), self.slo))

    def _plan(self, number: int, limit: int | None) -> Schedule:
        if self.schedule is not None:
            return replace(self.schedule, salt=fresh_salt())
        trace, workload = self._trace(number, limit), self._workload(number)
        if self.warmup_share:
            warmup_s = float(trace.arrival_ns[int(self.warmup_share * len(trace))]) / 1e9
            workload = msgspec.structs.replace(workload, warmup_s=warmup_s)
        return workload.schedule(trace)

    def _workload(self, number: int) -> Workload:
        seed = self.workload.seed + (number - 1 if self.virtual else 0)
        return msgspec.structs.replace(self.workload, seed=seed, salt=fresh_salt())

    def _trace(self, number: int, limit: int | None) -> Trace:
        """The trace of a run; of the first one that is read, what to know about it is said."""
        workload = self._workload(number)
        key = (workload.seed, limit)
        if key not in self._traces:
            self._traces[key] = workload.read(limit)
            for finding in workload.findings(self._traces[key]) if len(self._traces) == 1 else ():
                self.say(str(finding))
        return self._traces[key]


class Pairs:
    """The pairs measured so far, and how to get more."""

    def __init__(
        self, baseline: Side | StoredSide, candidate: Side | StoredSide, probe: Probe, directory: Path,
        order: Order = "abba", on_run: OnRun | None = None,
    ) -> None:  # fmt: skip
        self.baseline, self.candidate = baseline, candidate
        self.pairs: list[Pair] = []
        self.folders: list[tuple[str, str]] = []
        self.server_s = 0.0
        self.second_tries: list[int] = []  # pairs that were measured again
        self._probe, self._directory, self._order, self._on_run = probe, directory, order, on_run

    @property
    def limit(self) -> int | None:
        """How many pairs stored runs allow; None when there is no limit."""
        counts = [len(side.folders) for side in (self.baseline, self.candidate) if isinstance(side, StoredSide)]
        return min(counts) if counts else None

    def add(self) -> None:
        """One more pair; one that the client spoiled is measured once more, at most twice a gate."""
        number = len(self.pairs) + 1
        found = self._pair(number, "")
        if _spoiled(found) and self.limit is None and len(self.second_tries) < MOST_SECOND_TRIES:
            self.second_tries.append(number)
            found = self._pair(number, AGAIN)
        self.pairs.append((found["baseline"][0], found["candidate"][0]))
        self.folders.append((found["baseline"][1], found["candidate"][1]))

    def add_until(self, look: int, plan: Plan) -> None:
        """Pairs up to the next look, to the end of stored runs, or to a reason for INVALID."""
        while len(self.pairs) < min(look, self.limit or look):
            rules, _ = judged_rules(plan.rules, self.pairs)
            if reasons(self.pairs, rules):
                return
            self.add()

    def _pair(self, number: int, suffix: str) -> dict[str, tuple[Sample, str]]:
        """Both sides of a pair, each with the folder of its run, in the order that is their turn."""
        names = ("baseline", "candidate") if order_of(number, self._order) == "AB" else ("candidate", "baseline")
        return {name: self._run(name, number, suffix) for name in names}

    def records(self, plan: Plan) -> list[PairRecord]:
        """The pairs as the report shows them."""
        return [
            record_of(pair, number, order_of(number, self._order), plan.rules, baseline_run=a, candidate_run=b)
            for number, (pair, (a, b)) in enumerate(zip(self.pairs, self.folders, strict=True), start=1)
        ]

    def expected_minutes(self, pairs: int) -> float:
        """Minutes that a server will be held for this many pairs; 0 for stored and simulated runs."""
        live = [s for s in (self.baseline, self.candidate) if not isinstance(s, StoredSide | VirtualSide)]
        return pairs * len(live) * (self._probe.expected_s() + AROUND_RUN_S) / 60 if live else 0.0

    def _run(self, name: str, number: int, suffix: str) -> tuple[Sample, str]:
        side = self.baseline if name == "baseline" else self.candidate
        if isinstance(side, StoredSide):
            return self._probe.judge_stored(side.run(number)), str(side.folders[number - 1])
        folder = rundir.create(self._directory / f"pair-{number:02d}-{name}{suffix}")
        before_ns = clock.monotonic_ns()
        with side.open(folder) as target:
            sample = self._probe(target, number, folder)
        if not isinstance(side, VirtualSide):
            self.server_s += (clock.monotonic_ns() - before_ns) / 1e9
        if name == "baseline" and sample.requests and sample.failed == sample.requests:
            raise TargetError("every request to the baseline failed: there is nothing to compare with")
        if self._on_run is not None:
            self._on_run(name, number, sample)
        return sample, folder.name


def run_gate(pairs: Pairs, plan: Plan, on_look: Callable[[GateReport], None] | None = None, **about: Any) -> GateReport:
    """Measure pair after pair until a look decides, a reason for INVALID turns up, or the last look is over.

    Stopped by the user, the report comes back with state `partial` and the whole pairs so far.
    """
    cost = Cost(
        expected_least=pairs.expected_minutes(plan.looks[0]), expected_most=pairs.expected_minutes(plan.looks[-1])
    )

    def judged() -> GateReport:
        spent = msgspec.structs.replace(cost, server_minutes=pairs.server_s / 60)
        return decide(plan, pairs.pairs, pairs.records(plan), **_about(pairs, spent), **about)

    for look in plan.looks:
        try:
            pairs.add_until(look, plan)
        except (Interrupted, KeyboardInterrupt):
            return stopped(judged())
        report = judged()
        if on_look is not None:
            on_look(report)
        if report.verdict != "INCONCLUSIVE" or len(pairs.pairs) < look:
            break
    return report


def _about(pairs: Pairs, cost: Cost) -> dict[str, Any]:
    """The report's facts about the two sides, and the cost."""
    base, cand = pairs.pairs[0] if pairs.pairs else (Sample(), Sample())
    again = [f"pair {number} was measured again: its first run was {SPOILED}" for number in pairs.second_tries]
    sides = {"baseline": _facts(pairs.baseline, base), "candidate": _facts(pairs.candidate, cand)}
    return {**sides, "cost": cost, "notes": again}


def _spoiled(found: dict[str, tuple[Sample, str]]) -> bool:
    return any(finding.code == SPOILED for sample, _ in found.values() for finding in sample.unsound)


def _facts(side: Side | StoredSide, sample: Sample) -> SideFacts:
    return SideFacts(label=side.label, deployment=sample.deployment, model=sample.model, gpus=sample.gpus)
