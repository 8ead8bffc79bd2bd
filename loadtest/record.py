"""One load run from a planned schedule to a complete run directory."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

import loadtest
from loadtest import clock, secrets
from loadtest.errors import GoodputError, InvalidError
from loadtest.target import Measurement, OnProgress, Target
from loadtest.workload import fresh_salt
from metrics import rundir
from metrics.errors import MetricsError
from metrics.records import RecordTable
from metrics.rundir import Run
from metrics.runinfo import DISK_FULL, FAULT, RunInfo, Scalar
from metrics.storage import writing
from workloads.schedule import Schedule

_VERSIONS_OF = ("locust", "gevent", "numpy", "msgspec")


def record(
    target: Target, schedule: Schedule, info: RunInfo, directory: Path, on_progress: OnProgress | None = None
) -> Run:
    """Offer `schedule` to the opened `target`; plan first, journals while it runs, the table at the end.

    `directory` exists (rundir.create) and is empty but for logs. An interrupted run comes back as `partial`.
    """
    begin(schedule, info, directory)
    return finish(info, directory, target.measure(schedule, directory, on_progress))


def begin(schedule: Schedule, info: RunInfo, directory: Path) -> None:
    """Write what is planned, and be sure that it is on the disk before the first request leaves."""
    with writing(directory / rundir.SCHEDULE):
        schedule.save(directory / rundir.SCHEDULE)
    rundir.write_info(directory, _masked(info))
    rundir.sync_plan(directory)


def finish(info: RunInfo, directory: Path, measurement: Measurement) -> Run:
    """Write what happened, say in run.json whether it is all, and give the directory back."""
    stopped = measurement.stopped_at_s
    info = _masked(
        msgspec.structs.replace(
            info,
            state="complete" if stopped is None else "partial",
            stopped_at_s=stopped,
            stop_reason=measurement.stop_reason,
            server=with_cache_hits({**info.server, **measurement.server}, measurement.table),
        )
    )
    with _journals_kept(directory):
        rundir.write_table(directory, measurement.table)
        rundir.write_info(directory, info)
    rundir.release(directory)
    return Run(info, measurement.table)


def _masked(info: RunInfo) -> RunInfo:
    """The same without a secret: what was asked for and what the server told are texts from outside."""
    return msgspec.json.decode(secrets.masked_json(info), type=RunInfo)


@contextlib.contextmanager
def _journals_kept(directory: Path) -> Iterator[None]:
    """What cannot be written now is not lost: the journals hold it."""
    try:
        yield
    except MetricsError as error:
        if any(directory.glob("records-*.bin")):
            error.hint = f"nothing is lost: make some room, then goodput report {directory} makes it from the journals"
        raise


def require_written(info: RunInfo) -> None:
    """Raise for a run that ended because the disk was full or something of ours failed: it gives no figure."""
    if info.stop_reason.startswith(FAULT):
        raise GoodputError(info.stop_reason, hint=f"what was measured is in {info.name}; please report it")
    if info.stop_reason.startswith(DISK_FULL):
        raise InvalidError(info.stop_reason, hint=f"make room and measure again; see {info.name}", code="disk_full")


def with_cache_hits(server: dict[str, Scalar], table: RecordTable) -> dict[str, Scalar]:
    """The prompt tokens that answers said came from the server's prefix cache, where any did."""
    hits = sum(worker.cached_prompt_tokens for worker in table.workers)
    return {**server, "prefix_cache_hits": hits} if hits else server


def planned_info(target: Target, schedule: Schedule) -> RunInfo:
    """What is known of a run before it starts; the caller adds what the user asked for."""
    facts, deployment = target.facts, target.deployment
    return RunInfo(
        id=fresh_salt(),
        created_at=clock.utc_now().isoformat(timespec="seconds"),
        deployment=str(deployment),
        arrangement=deployment.arrangement,
        gpus=facts.gpus or deployment.gpus,
        target_url=facts.url,
        model=facts.model,
        endpoint=facts.endpoint,
        seed=schedule.seed,
        salt=schedule.salt,
        trace_name=schedule.trace_name,
        trace_hash=schedule.trace_hash,
        recipe_hash=schedule.recipe_hash,
        requests=len(schedule),
        rate_per_s=schedule.offered_rate_per_s,
        duration_s=schedule.duration_s,
        warnings=list(facts.warnings),
        versions=_versions(),
        host=_host(),
        server=dict(facts.server),
        realtime_minus_monotonic_ns=clock.realtime_minus_monotonic_ns(),
    )


def _versions() -> dict[str, str]:
    return {
        "goodput": loadtest.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _VERSIONS_OF},
    }


def _host() -> dict[str, Scalar]:
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
