"""One test of `locust -f`: from Locust's options to a plan, and from the journals to a run directory."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from loadtest import clock
from loadtest.errors import ExitCode, UsageError
from loadtest.record import begin, finish, planned_info
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.swarm.coordinator import Coordinator, LoadPlan
from loadtest.target import LiveTarget, LoadSettings, Measurement, merged
from loadtest.workload import Workload
from metrics import rundir
from metrics.records import Outcome, RecordTable
from metrics.runinfo import RunInfo, run_id
from workloads.schedule import Schedule

N = TypeVar("N", int, float)


class Session:
    """The plan of a test and where its run directory is."""

    def __init__(self, plan: LoadPlan, schedule: Schedule, info: RunInfo) -> None:
        self.plan = plan
        self._schedule = schedule
        self._info = info

    @staticmethod
    def open(host: str, options: Namespace | None, workers: int) -> Session:
        """Preflight, plan, run directory; raises UsageError, TargetError, WorkloadError or MetricsError."""
        if not host or options is None:
            raise UsageError("no target", hint="give it with --host http://HOST:PORT")
        workload = Workload(
            trace=options.trace,
            rate_per_s=_number(options, "rate", float),
            duration_s=_number(options, "duration", float),
            requests=_number(options, "requests", int),
            seed=_number(options, "seed", int) or 0,
        )
        settings = LoadSettings(SenderOptions(slo=options.slo), workers)
        with LiveTarget(Endpoint.parse(host, model=options.model or None), settings) as target:
            trace = workload.read(target.facts.max_model_len)
            schedule = workload.schedule(trace)
            directory = (
                rundir.create(Path(options.out))
                if options.out
                else rundir.create_numbered(Path(default_directory(trace.name)))
            )
            info, told = planned_info(target, schedule), workload.facts(trace)
            info = msgspec.structs.replace(
                info,
                name=directory.name,
                slo=options.slo,
                workers=workers,
                **told | {"warnings": [*told["warnings"], *info.warnings]},
            )
            begin(schedule, info, directory)
            run = run_id(info.name, schedule.salt, info.id)
            plan = LoadPlan(run, directory, target.endpoint, settings.options, workers)
        return Session(plan, schedule, info)

    def close(self, coordinator: Coordinator) -> ExitCode:
        """Merge the journals into the run directory; the exit code this test deserves."""
        table = merged(self._schedule, self.plan.directory, self.plan.workers)
        finish(self._info, self.plan.directory, Measurement(table, coordinator.stopped_at_s))
        return _exit_code(table, interrupted=coordinator.interrupted)


def _number(options: Namespace, name: str, kind: Callable[[str], N]) -> N | None:
    """An option that the web page may have made a text of; empty is none."""
    value = getattr(options, name)
    if value is None or value == "":
        return None
    try:
        return kind(str(value))
    except ValueError:
        raise UsageError(f"{name} {value!r} is not a number", hint="correct it and start again") from None


def _exit_code(table: RecordTable, *, interrupted: bool) -> ExitCode:
    outcome = table.rows["outcome"]
    if interrupted:
        return ExitCode.INTERRUPTED
    if np.isin(outcome, (Outcome.LOST_WORKER, Outcome.NOT_SENT, Outcome.SKIPPED_LATE)).any():
        return ExitCode.INVALID
    return ExitCode.OK if (outcome == Outcome.OK).any() else ExitCode.TARGET


def default_directory(trace: str) -> str:
    """Where a test of this trace is kept: the time, and of the trace's name what any file name may hold."""
    stem = re.sub(r"[^\w.-]+", "-", Path(trace).stem)[:60]
    return f"runs/{clock.utc_now():%Y-%m-%dT%H-%M-%S}_{stem}_locust"
