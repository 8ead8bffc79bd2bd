"""One `goodput search`: several deployments, or values of a flag, each searched in the same way and shown together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.search import store
from loadtest.search.concurrency import VirtualUsers, first_guess, most_users
from loadtest.search.live import LiveRuns, LiveUsers, StoppedByUser, measure_idle
from loadtest.search.procedure import QUICK_RUNS, SPREAD, Budget, Search, spread_of
from loadtest.search.saturation import saturation, saturation_of, start_rate
from loadtest.search.virtual import MIN_REQUESTS, VirtualRuns
from loadtest.search.windows import Windows, at_once
from loadtest.sides import LaunchedSide, Side, VirtualSide
from loadtest.target import OnProgress, Target
from metrics.decision import DecisionRow, decide
from metrics.goodput import GoodputEstimate, SweepPoint, sweep_goodput
from metrics.judge import judge_rows
from metrics.latency import counted, select
from metrics.names import short_names
from metrics.objective import Family, Objective
from metrics.search import (
    Attempt,
    Mode,
    SearchReport,
    SearchRow,
    extrapolation,
    marginals,
    mark_best,
    row_of,
    scale_of,
)
from metrics.slo import SLO, unknown_because
from metrics.tightness import tightness
from workloads.schedule import Schedule, plan

SATURATING_REQUESTS: Final = 1_000
UNKNOWN_START: Final = 1.0  # requests per second, for a server we know nothing of
LONG_DRAIN_S: Final = 3_600.0

OnRun = Callable[[str, Attempt, float], None]


@dataclass(frozen=True)
class Variant:
    """One row of the report."""

    label: str
    side: Side
    deployment: Deployment | None  # emulated, so that the model can say where to look; None for other servers
    gpus: int | None
    value: str = ""


@dataclass(frozen=True)
class SearchJob:
    """What is asked of every variant; rates in requests per second, and the model says where to begin without one."""

    mode: Mode
    trace: str
    objective: Objective | None
    directory: Path
    command: list[str]
    seed: int = 0
    rate_per_s: float | None = None
    rates: tuple[float, ...] = ()
    runs: int = QUICK_RUNS
    budget: Budget = field(default_factory=Budget)
    least_requests: int = MIN_REQUESTS
    workers: int = 1
    swept: str = ""
    progress: Callable[[Schedule], OnProgress | None] | None = None
    on_run: OnRun | None = None

    @property
    def share(self) -> float:
        """The share of requests that must be good; that of a family is in its limits."""
        return self.objective.share if isinstance(self.objective, SLO) else 0.9

    def run(self, variants: list[Variant], before: SearchReport | None = None) -> SearchReport:
        """Search every variant in turn; search.json is written after every run, so that nothing is measured twice.

        Stopped by the user, the report comes back with state `partial`.
        """
        report = self._empty(variants)
        if before is not None:
            _check_same(report, before)
        else:
            store.write(self.directory, report)
        for variant in variants:
            stored = next((row for row in before.rows if row.label == variant.label), None) if before else None
            try:
                row = self._row(variant, stored, report)
            except StoppedByUser:
                report = msgspec.structs.replace(store.read(self.directory), state="partial")
                store.write(self.directory, report)
                return report
            report = msgspec.structs.replace(report, rows=[*report.rows, row])
            store.write(self.directory, report)
        return self._conclude(report)

    def _empty(self, variants: list[Variant]) -> SearchReport:
        return SearchReport(
            mode=self.mode,
            clock="virtual" if all(isinstance(v.side, VirtualSide) for v in variants) else "live",
            trace=self.trace,
            slo="none" if self.objective is None else str(self.objective),
            seed=self.seed,
            share=self.share if self.objective is not None else None,
            command=self.command,
            swept=self.swept,
        )

    def _row(self, variant: Variant, stored: SearchRow | None, report: SearchReport) -> SearchRow:
        if isinstance(variant.side, VirtualSide):
            assert variant.deployment is not None
            return self._virtual(variant, variant.deployment, stored, report)
        folder = self.directory / _folder(variant.label)
        folder.mkdir(parents=True, exist_ok=True)
        if self.mode in ("concurrency", "saturation"):
            return self._live_loop(variant, folder, stored, report)
        with variant.side.open(folder) as target:
            runs = self._live_runs(target, folder)
            start = self._start(variant, runs.windows)
            return self._searched(variant, runs, start, stored, report)

    def _virtual(
        self, variant: Variant, deployment: Deployment, stored: SearchRow | None, report: SearchReport
    ) -> SearchRow:
        windows = Windows(self.trace, seed=self.seed, max_tokens=int(deployment["max_model_len"]))
        filled = saturation(deployment, windows)
        if self.objective is None:
            return msgspec.structs.replace(_bare(variant), saturation=filled)
        if self.mode == "concurrency":
            users = VirtualUsers(deployment, windows, _joint(self.objective), self.least_requests)
            return msgspec.structs.replace(self._most_users(variant, users, stored, report), saturation=filled)
        runs = VirtualRuns(deployment, windows, self.objective, least_requests=self.least_requests)
        row = self._searched(variant, runs, self._start(variant, windows), stored, report)
        return msgspec.structs.replace(row, saturation=filled)

    def _live_runs(self, target: Target, folder: Path) -> LiveRuns:
        assert self.objective is not None
        windows = Windows(self.trace, seed=self.seed, max_tokens=target.facts.max_model_len)
        runs = LiveRuns(
            target,
            windows,
            self.objective,
            folder,
            self.command,
            least_requests=self.least_requests,
            workers=self.workers,
            progress=self.progress,
        )
        if isinstance(self.objective, Family) and self.objective.needs_reference:
            runs.unloaded = measure_idle(runs)
        return runs

    def _start(self, variant: Variant, windows: Windows) -> float:
        if self.rate_per_s is not None:
            return self.rate_per_s
        if variant.deployment is None or self.mode in ("rates", "concurrency"):
            return UNKNOWN_START
        return start_rate(variant.deployment, windows)

    def _searched(
        self,
        variant: Variant,
        runs: VirtualRuns | LiveRuns,
        start: float,
        stored: SearchRow | None,
        report: SearchReport,
    ) -> SearchRow:
        if self.mode == "slo-scale":
            return self._scaled(variant, runs, start)
        resumed = store.Resumed(runs, stored.attempts if stored is not None else [])
        note = _Note(self, variant, report)
        if self.mode == "rates":
            return self._swept(variant, resumed, note)
        search = Search(
            resumed,
            self.share,
            note,
            bracketing=resumed.bracketing,
            budget=self.budget,
            spread=SPREAD if self.objective is None else spread_of(self.objective),
        )
        return row_of(variant.label, _text(variant), variant.gpus, search.run(start, self.runs), variant.value)

    def _swept(self, variant: Variant, runs: store.Resumed, note: _Note) -> SearchRow:
        """One run at each rate, lowest first."""
        attempts: list[Attempt] = []
        for number, rate in enumerate(sorted(self.rates)):
            if not self.budget.allows(attempts):
                break
            found = runs(rate, number)
            attempts.append(Attempt(**msgspec.structs.asdict(found), rate_per_s=rate, purpose="fit"))
            note(attempts[-1], rate)
        return self._row_of_sweep(variant, attempts)

    def _row_of_sweep(self, variant: Variant, attempts: list[Attempt]) -> SearchRow:
        points = [SweepPoint(a.rate_per_s, _worst_share(a, self.share), a.total) for a in attempts]
        found = sweep_goodput(points, self.share)
        row = msgspec.structs.replace(_bare(variant), sweep=found, attempts=attempts, marginals=marginals(attempts))
        return msgspec.structs.replace(row, unsound=sorted({code for a in attempts for code in a.unsound}))

    def _scaled(self, variant: Variant, runs: VirtualRuns | LiveRuns, rate: float) -> SearchRow:
        """How much tighter (or looser) the limits could be at one rate."""
        slo = _joint(self.objective)
        needed: list[float | None] = []
        for number in range(self.runs):
            table = runs.table(rate, number)
            rows = select(table.rows, counted(table.rows))
            judged = judge_rows(rows, slo.limits)
            needed.append(tightness(judged, slo).smallest if unknown_because(rows, judged) is None else None)
        return msgspec.structs.replace(_bare(variant), slo_scale=scale_of(rate, needed))

    def _most_users(
        self, variant: Variant, users: VirtualUsers | LiveUsers, stored: SearchRow | None, report: SearchReport
    ) -> SearchRow:
        before = list(stored.attempts) if stored is not None else []
        note = _Note(self, variant, report)

        def measure(count: int, number: int) -> Any:
            return before[number] if number < len(before) else users(count, number)

        guess = first_guess(4.0, self.rate_per_s or UNKNOWN_START)
        found, attempts = most_users(measure, self.share, guess, note, self.budget)
        row = msgspec.structs.replace(_bare(variant), sweep=found, attempts=attempts, marginals=marginals(attempts))
        return msgspec.structs.replace(row, unsound=sorted({code for a in attempts for code in a.unsound}))

    def _live_loop(self, variant: Variant, folder: Path, stored: SearchRow | None, report: SearchReport) -> SearchRow:
        """Runs that need settings of their own: a cap on what is in flight, or all requests at once."""

        def one(settings_of: dict[str, Any], name: str, requests: int, number: int) -> Any:
            side = with_sender(variant.side, drain_limit_s=LONG_DRAIN_S, **settings_of)
            with side.open(folder) as target:
                windows = Windows(self.trace, seed=self.seed, max_tokens=target.facts.max_model_len)
                trace = at_once(windows.trace(number, 1.0, requests))
                runs = LiveRuns(target, windows, self.objective or SLO(ttft_s=1.0), folder, self.command)
                runs.progress = self.progress
                return runs.record(plan(trace, seed=self.seed, salt=_salt()), name)

        if self.mode == "saturation":
            count = SATURATING_REQUESTS if self.least_requests == MIN_REQUESTS else self.least_requests
            run = one({}, "saturation", count, 0)
            return msgspec.structs.replace(_bare(variant), saturation=saturation_of(run.table, variant.gpus))
        users = LiveUsers(
            lambda count, number: one(
                {"max_in_flight": count}, f"run-{number:02d}", max(self.least_requests, 5 * count), number
            ),
            _joint(self.objective),
        )
        return self._most_users(variant, users, stored, report)

    def _conclude(self, report: SearchReport) -> SearchReport:
        rows, sentence = report.rows, ""
        if self.swept:
            rows, sentence = mark_best(rows)
        elif self.mode == "search" and len(rows) > 1:
            names = short_names([row.label for row in rows])
            told = [_decision_row(row, name, report.clock) for row, name in zip(rows, names, strict=True)]
            sentence = decide(told).sentence
        done = msgspec.structs.replace(
            report,
            rows=rows,
            sentence=sentence,
            warnings=[*report.warnings, *extrapolation(rows)],
            state="complete",
        )
        store.write(self.directory, done)
        return done


class _Note:
    """After every run: search.json with what is known, and a word to the user."""

    def __init__(self, job: SearchJob, variant: Variant, report: SearchReport) -> None:
        self._job, self._variant, self._report = job, variant, report
        self._attempts: list[Attempt] = []

    def __call__(self, attempt: Attempt, estimate: float) -> None:
        self._attempts.append(attempt)
        if not isinstance(self._variant.side, VirtualSide):  # a simulated run is made again sooner than it is read
            row = msgspec.structs.replace(_bare(self._variant), attempts=self._attempts)
            store.write(self._job.directory, msgspec.structs.replace(self._report, rows=[*self._report.rows, row]))
        if self._job.on_run is not None:
            self._job.on_run(self._variant.label, attempt, estimate)


def with_option(deployment: Deployment, key: str, value: str) -> Deployment:
    """The deployment with one option set; UsageError when it has no such option."""
    parts = [f"{name}={text}" for name, text in _options(deployment).items() if name != key]
    return Deployment.parse(",".join([f"{deployment.backend}:{deployment.arrangement}", *parts, f"{key}={value}"]))


def _options(deployment: Deployment) -> dict[str, str]:
    words = str(deployment).partition(":")[2].split(",")[1:]
    return dict(word.split("=", 1) for word in words)


def with_sender(side: Side, **options: Any) -> Side:
    """The side with other sender options."""
    settings = side.settings  # type: ignore[attr-defined]  # every side but a virtual one has them
    changed = dataclasses.replace(settings, options=msgspec.structs.replace(settings.options, **options))
    return dataclasses.replace(side, settings=changed)  # type: ignore[type-var]


def gpus_of(side: Side, deployment: Deployment | None, asked: int | None) -> int | None:
    """GPUs of all pools: of the deployment, the launch file, or what the user says."""
    if deployment is not None and deployment.gpus is not None:
        return deployment.gpus
    return asked or (side.file.gpus if isinstance(side, LaunchedSide) else None)


def _bare(variant: Variant) -> SearchRow:
    return SearchRow(label=variant.label, deployment=_text(variant), gpus=variant.gpus, value=variant.value)


def _text(variant: Variant) -> str:
    return str(variant.deployment) if variant.deployment is not None else variant.label


def _folder(label: str) -> str:
    return "".join(c if c.isalnum() or c in "._-=" else "_" for c in label)[:80]


def _joint(objective: Objective | None) -> SLO:
    if not isinstance(objective, SLO):
        raise UsageError(
            "--slo-scale and --over concurrency need joint limits, no percentiles",
            hint="write them like ttft=1s,tpot=45ms",
            code="joint_slo",
        )
    return objective


def _worst_share(attempt: Attempt, share: float) -> float | None:
    """Attainment; of a family, the joint share at which it just holds, so that passing means the same."""
    limits = attempt.counts(share)
    if not attempt.total:
        return None
    if len(limits) == 1:
        return attempt.good / attempt.total
    return share if all(limit.met for limit in limits) else min(share - 1e-6, attempt.good / attempt.total)


def _decision_row(row: SearchRow, name: str, clock: str) -> DecisionRow:
    per_gpu: GoodputEstimate | None = row.goodput_per_gpu
    return DecisionRow(
        label=name,
        deployment=row.deployment,
        gpus=row.gpus,
        goodput_per_s=row.goodput,
        goodput_per_gpu=per_gpu,
        validity="invalid" if row.unsound else "valid",
        goodput_from="virtual clock" if clock == "virtual" else "live",
    )


def _check_same(now: SearchReport, before: SearchReport) -> None:
    """A stored search goes on only with the options it was started with."""
    for name in ("mode", "clock", "trace", "slo", "seed", "swept"):
        if getattr(now, name) != getattr(before, name):
            raise UsageError(
                f"the stored search has {name} {getattr(before, name)}, not {getattr(now, name)}",
                hint="resume with the options the search was started with",
                code="other_search",
            )


def _salt() -> str:
    from loadtest.workload import fresh_salt

    return fresh_salt()
