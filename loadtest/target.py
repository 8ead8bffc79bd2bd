"""What is measured: a live URL, a bundled server started for the run, or the simulator.

Search, compare, gate and plan see nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import msgspec
import numpy as np

from loadtest.backends.server import command as server_command
from loadtest.backends.server import ready_timeout_s
from loadtest.deployment import Deployment
from loadtest.errors import TargetError
from loadtest.supervise import Server
from metrics import rundir
from metrics.gate.comparable import CLOCK
from metrics.journal import read_journal
from metrics.merge import merge
from metrics.records import RecordTable, Rows
from metrics.runinfo import Scalar, run_id
from workloads.schedule import Schedule

if TYPE_CHECKING:  # importing the replay takes a tenth of a second that a simulation does not need
    from loadtest.replay.endpoint import Endpoint
    from loadtest.replay.sender import SenderOptions
    from loadtest.swarm.coordinator import LoadProgress
    from loadtest.swarm.token import Token

OnProgress = Callable[["LoadProgress"], None]


class Measurement(NamedTuple):
    """What happened to every planned request; `stopped_at_s` is set when the run was ended early, and why.

    `server` is what only the end of a run can tell of the server.
    """

    table: RecordTable
    stopped_at_s: float | None = None
    stop_reason: str = ""
    server: Mapping[str, Scalar] = MappingProxyType({})


@dataclass(frozen=True)
class Facts:
    """What is known of a target once it is open; `max_model_len` is None when it does not say."""

    model: str = ""
    max_model_len: int | None = None
    url: str = ""
    endpoint: str = ""
    server: dict[str, Scalar] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()  # pages to sample, POOL=URL
    gpus: int | None = None  # where the deployment's text does not tell


class Target(Protocol):
    """A context manager: open inside the block, where `facts` are known and schedules can be measured."""

    deployment: Deployment

    @property
    def facts(self) -> Facts: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def died(self) -> TargetError | None:
        """The error to end with when the target did not live as long as it was needed."""

    def measure(
        self, schedule: Schedule, directory: Path, on_progress: OnProgress | None = None, *, abort_on: str = ""
    ) -> Measurement:
        """Offer `schedule`; `directory` holds its schedule.npz and receives journals and logs.

        A live run ends early when the rule `abort_on` says so (loadtest.replay.abort).
        """


@dataclass(frozen=True)
class LoadSettings:
    """How the load is offered; with `bind` by workers that join a master there, for whom it waits `wait_s`, and that
    prove `token`, without which only this machine reaches it."""

    options: SenderOptions
    workers: int = 1
    reactor: str = "hub"
    bind: tuple[str, int] | None = None
    wait_s: float = 60.0
    token: Token | None = None


class LiveTarget:
    """A server somebody else runs."""

    def __init__(self, endpoint: Endpoint, settings: LoadSettings) -> None:
        self.deployment = Deployment("url", url=endpoint.origin)
        self.facts = Facts()
        self.endpoint = endpoint
        self._settings = settings

    def __enter__(self) -> Self:
        """Preflight: raises TargetError when no load could be offered."""
        from loadtest.replay.preflight import preflight

        found = preflight(self.endpoint)
        self.endpoint = found.endpoint
        self.facts = Facts(
            model=found.endpoint.model,
            max_model_len=found.max_model_len,
            url=found.endpoint.origin,
            endpoint=found.endpoint.request_path,
            server=found.facts,
            warnings=tuple(found.warnings),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def died(self) -> TargetError | None:
        return None

    def measure(
        self, schedule: Schedule, directory: Path, on_progress: OnProgress | None = None, *, abort_on: str = ""
    ) -> Measurement:
        """Replay the schedule through Locust; the journals in `directory` are merged into the table."""
        settings = self._settings
        if abort_on:
            settings = replace(settings, options=msgspec.structs.replace(settings.options, abort_on=abort_on))
        return _replay(self.endpoint, settings, schedule, directory, on_progress)


class SupervisedTarget:
    """A bundled server, started for this run in a process of its own, with its log in the run directory."""

    def __init__(
        self, deployment: Deployment, settings: LoadSettings, log: Path, api: str = "completions", model: str = ""
    ) -> None:
        self.deployment = deployment
        self.facts = Facts()
        self._settings = settings
        self._api, self._model = api, model
        self._server = Server(
            server_command(str(deployment)),
            log=log,
            name=f"server {deployment.label}",
            ready_timeout_s=ready_timeout_s(deployment.backend),
        )
        self._live: LiveTarget | None = None

    def __enter__(self) -> Self:
        """Start the server and look at it as at any other; raises TargetError with its last words."""
        self._server.launch()
        try:
            import loadtest.swarm.embed  # noqa: F401  half a second of imports while the server makes its own

            self._server.wait_ready()
            self._live = LiveTarget(_endpoint(self._server.url, self._api, self._model), self._settings).__enter__()
            self.facts = self._live.facts
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def died(self) -> TargetError | None:
        """Why the server ended although it was still needed."""
        return None if self._server.exit_status is None else self._server.died()

    def measure(
        self, schedule: Schedule, directory: Path, on_progress: OnProgress | None = None, *, abort_on: str = ""
    ) -> Measurement:
        """As for a live target; after the death of the server requests fail, and `died` tells.

        An emulated server's times are a model's, so the run says how far to trust that.
        """
        assert self._live is not None
        measured = self._live.measure(schedule, directory, on_progress, abort_on=abort_on)
        if self.deployment.backend != "emulated":
            return measured
        from loadtest.virtual import model_facts

        return measured._replace(server=model_facts(self.deployment, schedule))


class SimulatedTarget:
    """The same cluster on the virtual clock, which its runs say: no socket, no process, no waiting."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.facts = Facts(
            model=str(deployment["model"]), max_model_len=int(deployment["max_model_len"]), server={CLOCK: "virtual"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def died(self) -> TargetError | None:
        return None

    def measure(
        self,
        schedule: Schedule,
        directory: Path,  # noqa: ARG002
        on_progress: OnProgress | None = None,  # noqa: ARG002
        *,
        abort_on: str = "",  # noqa: ARG002
    ) -> Measurement:
        """Simulate the schedule to its end; `directory` stays as it is."""
        from loadtest.backends.simulator import run_simulation
        from loadtest.virtual import server_facts

        simulation = run_simulation(self.deployment, schedule)
        return Measurement(simulation.table, server=server_facts(self.deployment, simulation))


def _endpoint(url: str, api: str, model: str) -> Endpoint:
    from loadtest.replay.endpoint import Endpoint

    return Endpoint.parse(url, api="chat" if api == "chat" else "completions", model=model)


def _replay(
    endpoint: Endpoint, settings: LoadSettings, schedule: Schedule, directory: Path, on_progress: OnProgress | None
) -> Measurement:
    from loadtest.replay.limits import require_files
    from loadtest.swarm.coordinator import LoadPlan
    from loadtest.swarm.embed import run_load

    require_files(schedule, settings.workers, settings.options.max_in_flight)
    plan = LoadPlan(
        _run_of(directory, schedule.salt),
        directory,
        endpoint,
        settings.options,
        settings.workers,
        settings.reactor,
        settings.bind,
        settings.wait_s,
        settings.token,
    )
    outcome = run_load(plan, on_progress)
    table = merged(schedule, directory, settings.workers)
    return Measurement(table, outcome.stopped_at_s, outcome.stop_reason)


def _run_of(directory: Path, salt: str) -> str:
    """The id of the run in a folder; a calibration's has no run.json."""
    if not (directory / rundir.RUN).exists():
        return run_id(directory.name, salt)
    info = rundir.read_info(directory)
    return run_id(info.name, salt, info.id)


def merged(schedule: Schedule, directory: Path, workers: int) -> RecordTable:
    """Every planned request once, from the journals; those of a worker whose journal has no end are lost."""
    paths = [rundir.journal_path(directory, worker) for worker in range(workers)]
    planned = planned_by_worker(schedule, directory, workers)
    return merge([read_journal(path) for path in paths if path.exists()], planned)


def planned_by_worker(schedule: Schedule, directory: Path, workers: int) -> Rows:
    """The rows of schedule.npz before the run, each with the worker that has it in its shard."""
    planned = rundir.read_plan(directory)
    for worker in range(workers):
        planned["worker"][np.isin(planned["request_id"], schedule.shard(worker, workers).request_id)] = worker
    return planned
