"""Runs of an opened target, each a run directory of its own inside the search's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from loadtest.errors import InvalidError
from loadtest.record import begin, finish, planned_info, require_written
from loadtest.replay.abort import HOPELESS
from loadtest.search.reference import Unloaded, measured_unloaded
from loadtest.search.virtual import MIN_REQUESTS, counted_of, run_length
from loadtest.search.windows import Windows
from loadtest.target import OnProgress, Target
from loadtest.workload import fresh_salt
from metrics import rundir
from metrics.errors import MetricsError
from metrics.hopeless import allowed_misses
from metrics.latency import e2e_s, is_ok
from metrics.objective import Family, Objective
from metrics.records import RecordTable
from metrics.rundir import Run
from metrics.runinfo import STOPPED_BY_USER
from metrics.search import Counted
from metrics.slo import NOT_MEASURABLE, SLO
from metrics.summary import summarise
from workloads.schedule import Schedule, plan

IDLE_REQUESTS: Final = 12
IDLE_OUTPUT: Final = 32  # tokens; enough for a token time, soon over
TOO_SHORT: Final = 2.0  # a first run so many times shorter than its requests ask for is made again
IDLE_PAUSE: Final = 2.0  # times the longest request seen so far


class StoppedByUser(Exception):
    """The user ended a run; what came before it stays."""


@dataclass
class LiveRuns:
    """Runs `number` of an opened target; the folder of an unfinished one is cleared before it is made again."""

    target: Target
    windows: Windows
    objective: Objective
    directory: Path
    command: list[str]
    least_requests: int = MIN_REQUESTS
    workers: int = 1
    progress: Callable[[Schedule], OnProgress | None] | None = None
    unloaded: Unloaded | None = None
    _median_s: float = field(default=0.0, init=False)

    def __call__(self, rate_per_s: float, number: int) -> Counted:
        """A whole run."""
        return self._run(rate_per_s, number, "")

    def bracketing(self, rate_per_s: float, number: int) -> Counted:
        """A run that ends as soon as it is lost. With several workers none sees all misses, so it goes to its end."""
        early = self.workers == 1 and isinstance(self.objective, SLO)
        return self._run(rate_per_s, number, f"{HOPELESS}{self.objective}" if early else "")

    def recall(self, counted: Counted) -> None:
        """Take over what an earlier run taught, when a search is resumed."""
        self._median_s = counted.median_e2e_s or self._median_s

    def _run(self, rate_per_s: float, number: int, abort_on: str) -> Counted:
        known = self._median_s > 0
        requests = run_length(rate_per_s, self._median_s, self.least_requests)
        run = self.record(self.windows.schedule(number, rate_per_s, requests), f"run-{number:02d}", abort_on)
        found = self._counted(run)
        self._median_s = found.median_e2e_s or self._median_s
        needed = run_length(rate_per_s, self._median_s, self.least_requests)
        if known or found.aborted or needed < TOO_SHORT * requests:
            return found
        again = self._run(rate_per_s, number, abort_on)  # over before a queue could build up, it would flatter
        spent = {"requests": found.requests + again.requests, "seconds": found.seconds + again.seconds}
        return msgspec.structs.replace(again, **spent)

    def table(self, rate_per_s: float, number: int) -> RecordTable:
        """The rows of a whole run."""
        schedule = self.windows.schedule(number, rate_per_s, run_length(rate_per_s, 0.0, self.least_requests))
        return self.record(schedule, f"run-{number:02d}").table

    def record(self, schedule: Schedule, name: str, abort_on: str = "") -> Run:
        """Offer a schedule into a folder of that name; raises StoppedByUser, or what the target died of."""
        folder = self.directory / name
        _clear(folder)
        rundir.create(folder)
        info = msgspec.structs.replace(
            planned_info(self.target, schedule),
            name=name,
            command=self.command,
            slo=str(self.objective) if isinstance(self.objective, SLO) else "",
            warmup_s=float(schedule.scheduled_s[~schedule.warmup].min()),
        )
        begin(schedule, info, folder)
        progress = self.progress(schedule) if self.progress is not None else None
        run = finish(info, folder, self.target.measure(schedule, folder, progress, abort_on=abort_on))
        died = self.target.died()
        if died is not None:
            raise died
        if run.info.stop_reason == STOPPED_BY_USER:
            raise StoppedByUser
        require_written(run.info)
        return run

    def _counted(self, run: Run) -> Counted:
        slo = self.objective if isinstance(self.objective, SLO) else None
        told = msgspec.structs.replace(run.info, slo="" if slo is None else str(slo))
        found = summarise(Run(told, run.table), slo).validity.findings
        unsound = [finding.code for finding in found if finding.level == "invalid"]
        unknown = [finding for finding in found if finding.code.endswith(NOT_MEASURABLE) and finding.level == "invalid"]
        if unknown:
            raise InvalidError(unknown[0].message, code=unknown[0].code)
        counted = counted_of(run.table, self.objective, self._reference(), run.info.stopped_at_s)
        if run.info.stopped_at_s is not None:
            counted = self._aborted(run, counted)
        unsound += [code for code in counted.unsound if code not in unsound]
        return msgspec.structs.replace(counted, unsound=unsound, folder=run.info.name)

    def _aborted(self, run: Run, counted: Counted) -> Counted:
        """The most that could still have been good, and what was offered until the stop."""
        assert isinstance(self.objective, SLO)
        rows, stop_s = run.table.rows, run.info.stopped_at_s or 0.0
        total = int((~rows["warmup"]).sum())
        return msgspec.structs.replace(
            counted,
            good=total - allowed_misses(total, self.objective.share) - 1,
            total=total,
            requests=int((rows["scheduled_s"] <= stop_s).sum()),
            seconds=stop_s,
            aborted=True,
            limits=[],
        )

    def _reference(self) -> Unloaded | None:
        if not isinstance(self.objective, Family) or not self.objective.needs_reference:
            return None
        if self.unloaded is None:
            raise MetricsError("slowdowns need the idle server's times", code="no_reference")
        return self.unloaded


class LiveUsers:
    """Closed loops on a live server: all requests at once under a cap, judged from the moment each was sent."""

    def __init__(self, record: Callable[[int, int], Run], slo: SLO) -> None:
        self._record, self._slo = record, slo

    def __call__(self, users: int, number: int) -> Counted:
        """A run of so many users; the first fifth to be sent is warm-up."""
        run = self._record(users, number)
        rows = run.table.rows.copy()
        rows["scheduled_s"] = np.where(np.isnan(rows["sent_s"]), rows["scheduled_s"], rows["sent_s"])
        rows["warmup"] = np.argsort(np.argsort(rows["scheduled_s"], kind="stable"), kind="stable") < 0.2 * len(rows)
        counted = counted_of(RecordTable(rows, None, run.table.errors), self._slo)
        return msgspec.structs.replace(counted, folder=run.info.name)


def measure_idle(runs: LiveRuns) -> Unloaded:
    """Send requests of the workload's lengths one at a time, with short answers, and learn what they take alone."""
    one = runs.record(_spaced(runs.windows, 1, 1.0), "idle-00")
    longest = np.nanmax(e2e_s(one.table.rows), initial=0.0) or 1.0
    run = runs.record(_spaced(runs.windows, IDLE_REQUESTS, IDLE_PAUSE * float(longest)), "idle-01")
    if is_ok(run.table.rows).sum() < IDLE_REQUESTS / 2:
        raise InvalidError("most requests to the idle server failed", hint=f"see {runs.directory}", code="idle_failed")
    return measured_unloaded(run.table)


def _spaced(windows: Windows, requests: int, gap_s: float) -> Schedule:
    """Prompts at even steps of the workload's lengths, the longest first and alone, so that pauses are long enough."""
    trace = windows.trace(0, 1.0, MIN_REQUESTS)
    steps = np.quantile(trace.prompt_tokens, np.linspace(0.95, 0.05, requests)).astype(np.int32)
    count = np.arange(requests)
    spaced = replace(
        trace,
        arrival_ns=np.rint(count * gap_s * 1e9).astype(np.int64),
        prompt_tokens=steps,
        output_tokens=np.full(requests, IDLE_OUTPUT, dtype=np.int32),
        session=None,
        turn=None,
        slo_class=None,
        line=None,
        prefix=None,
    )
    return plan(spaced, seed=windows.seed, salt=fresh_salt())


def _clear(folder: Path) -> None:
    """An unfinished run leaves its files; a folder of this search may be used again."""
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink()
