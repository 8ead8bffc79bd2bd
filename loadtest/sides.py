"""A side of a comparison: what is opened for each of its runs, or the folder of runs it already has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import msgspec

from loadtest import secrets
from loadtest.config import read_toml
from loadtest.deployment import Deployment
from loadtest.errors import TargetError, UsageError
from loadtest.launch import Ensemble, Part, Seconds, ports_in, supervised
from loadtest.supervise import Server
from loadtest.target import Facts, LiveTarget, LoadSettings, Measurement, OnProgress, SimulatedTarget, SupervisedTarget
from metrics import rundir
from metrics.rundir import Run

if TYPE_CHECKING:
    from loadtest.replay.dialects import Api
    from loadtest.replay.endpoint import Endpoint
    from loadtest.target import Target
    from workloads.schedule import Schedule

AGAIN = "-again"  # ends the folder of a run that was made a second time
_OF_A_COMMAND = ("env", "before", "metrics")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


class Side(Protocol):
    """Something that can be measured again and again, each time as a target of its own."""

    @property
    def label(self) -> str: ...

    def open(self, folder: Path) -> Target:
        """A target, not yet entered; its log goes into `folder`."""


@dataclass(frozen=True)
class EndpointOptions:
    """How a live server is asked; the options of `goodput run` with those names."""

    model: str | None = None
    api: Api | None = None
    api_key_env: str = ""
    headers: tuple[str, ...] = ()
    api_key_file: str = ""
    ca_file: str = ""
    verify: bool = True
    stream: bool = True
    extra_body: tuple[str, ...] = ()
    rename_field: tuple[str, ...] = ()
    drop_field: tuple[str, ...] = ()
    path: str = ""

    def endpoint(self, url: str) -> Endpoint:
        """Where requests go when the server is at `url`."""
        from loadtest.replay.endpoint import Endpoint

        return Endpoint.parse(url, **vars(self))


@dataclass(frozen=True)
class VirtualSide:
    """An emulated deployment on the virtual clock."""

    label: str
    deployment: Deployment

    def open(self, folder: Path) -> Target:  # noqa: ARG002
        return SimulatedTarget(self.deployment)


@dataclass(frozen=True)
class BundledSide:
    """A bundled server, started for each run and stopped after it: restart noise is part of what is measured."""

    label: str
    deployment: Deployment
    settings: LoadSettings
    api: str | None = None
    model: str | None = None

    def open(self, folder: Path) -> Target:
        api, model = self.api or "completions", self.model or ""
        return SupervisedTarget(self.deployment, self.settings, folder / "server.log", api, model)


@dataclass(frozen=True)
class UrlSide:
    """A server somebody else keeps running."""

    label: str
    url: str
    settings: LoadSettings
    options: EndpointOptions = EndpointOptions()

    def open(self, folder: Path) -> Target:  # noqa: ARG002
        return LiveTarget(self.options.endpoint(self.url), self.settings)


@dataclass(frozen=True)
class StoredSide:
    """Runs that were made before; run i pairs with run i of the other side."""

    label: str
    folders: tuple[Path, ...]

    def run(self, number: int) -> Run:
        """Run `number`, counted from 1."""
        return rundir.load(self.folders[number - 1])


def stored(path: Path) -> StoredSide | None:
    """The runs in a folder (itself a run, or holding some, by name); None when there are none.

    Of a gate's folder these are its baseline's; of a pair that was measured again, the second ones.
    """
    if (path / rundir.RUN).exists():
        return StoredSide(path.name, (path,))
    inside = sorted(child.parent for child in path.glob(f"*/{rundir.RUN}"))
    of_gate = [folder for folder in inside if fnmatch(folder.name, "pair-*-baseline*")]
    by_pair = {folder.name.removesuffix(AGAIN): folder for folder in of_gate or inside}
    return StoredSide(path.name, tuple(by_pair.values())) if by_pair else None


class LaunchFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a server is started: an argument list (never a shell line), or a bundled deployment.

    `{port}`, `{..._port}` (free ones are found) and the names in `set` may stand in `command`, `url`, `env`,
    `deployment` and `before`: processes that must be ready first. `metrics` are the pages to sample, by pool.
    """

    command: list[str] = []
    deployment: str = ""
    url: str = "http://127.0.0.1:{port}"
    ready: Annotated[str, msgspec.Meta(pattern="^/")] = "/health"  # answers 200 once requests may be sent
    ready_timeout_s: Seconds = 600.0
    env: dict[str, str] = {}
    set: dict[str, str | int | float] = {}
    model: str | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    before: list[Part] = []
    metrics: dict[str, str] = {}

    @property
    def texts(self) -> list[str]:
        """Everything that may hold a placeholder."""
        inner = [text for part in self.before for text in part.texts]
        return [*self.command, self.deployment, self.url, *self.env.values(), *self.metrics.values(), *inner]


@dataclass(frozen=True)
class LaunchedSide:
    """A server of ours or anybody's, started from a launch file for each run and stopped after it."""

    label: str
    file: LaunchFile
    settings: LoadSettings
    options: EndpointOptions = field(default_factory=EndpointOptions)

    def open(self, folder: Path) -> Target:
        return LaunchedTarget(self, folder / "server.log")


class LaunchedTarget:
    """A launched server; inside the block it is ready and looked at like any live one."""

    def __init__(self, side: LaunchedSide, log: Path) -> None:
        self._side = side
        file = side.file
        values = {key: str(value) for key, value in file.set.items()}
        values |= ports_in(file.texts, values)
        self._url = _filled(file.url, values).rstrip("/")
        command, env = _command_and_env(file, values)
        self._server = supervised(
            side.label, self._url, f"{self._url}{file.ready}", file.ready_timeout_s, command, env, log
        )
        self._before = Ensemble([_part(part, values, log) for part in file.before])
        pages = {pool: _filled(page, values) for pool, page in file.metrics.items()}
        metrics = tuple(f"{pool}={page if '://' in page else self._url + page}" for pool, page in pages.items())
        self.deployment = Deployment("url", url=self._url)
        self.facts = Facts(metrics=metrics, gpus=file.gpus)
        self._live: LiveTarget | None = None

    def __enter__(self) -> Self:
        """Start it, wait for its health, preflight; raises TargetError with its last words."""
        self._before.start()
        try:
            self._server.start()
            endpoint = self._side.options.endpoint(self._url)
            self._live = LiveTarget(endpoint, self._side.settings).__enter__()
        except BaseException:
            self._stop()
            raise
        self.facts = replace(self._live.facts, metrics=self.facts.metrics, gpus=self.facts.gpus)
        return self

    def _stop(self) -> None:
        self._server.stop()
        self._before.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def died(self) -> TargetError | None:
        """Why the server, or a process behind it, ended although it was still needed."""
        return self._before.died() or (None if self._server.exit_status is None else self._server.died())

    def measure(
        self, schedule: Schedule, directory: Path, on_progress: OnProgress | None = None, *, abort_on: str = ""
    ) -> Measurement:
        """As for a live target."""
        assert self._live is not None
        return self._live.measure(schedule, directory, on_progress, abort_on=abort_on)


def read_launch_file(path: Path, settings: Mapping[str, str]) -> LaunchFile:
    """A launch file with `settings` put over its own `set` table; UsageError when it cannot be used."""
    try:
        file = msgspec.convert(read_toml(path), LaunchFile)
    except ValueError as error:  # msgspec's is one, too
        raise UsageError(f"the launch file {path} cannot be used: {error}", code="bad_launch_file") from None
    if bool(file.command) == bool(file.deployment):
        raise UsageError(f"{path} must hold either command or deployment", code="bad_launch_file")
    names = [part.name for part in file.before]
    if len(set(names)) < len(names):
        raise UsageError(f"{path} has two parts of one name, which would share a log", code="bad_launch_file")
    if file.deployment and (ignored := [name for name in _OF_A_COMMAND if getattr(file, name)]):
        raise UsageError(f"{path} has {ignored[0]}, which is for a command", code="bad_launch_file")
    text = " ".join(file.texts)
    for key in settings:
        if key not in file.set and "{" + key + "}" not in text:
            raise UsageError(f"{path} has no place for {key!r}", hint="write {" + key + "} into it", code="bad_set")
    return msgspec.structs.replace(file, set={**file.set, **settings})


def launched(path: Path, chosen: Mapping[str, str], settings: LoadSettings, options: EndpointOptions) -> Side:
    """The side that a launch file describes."""
    file = read_launch_file(path, chosen)
    values = {key: str(value) for key, value in file.set.items()}
    _hold_secrets(file)
    label = " ".join([path.stem, *(secrets.without_secret(f"{key}={value}") for key, value in chosen.items())])
    if file.deployment:
        deployment = Deployment.parse(_filled(file.deployment, values))
        return BundledSide(label, deployment, settings, options.api, options.model or file.model)
    values |= ports_in(file.texts, values)
    for word in file.texts:
        _filled(word, values)  # a placeholder without a value is found before anything is started
    asked = replace(options, model=options.model or file.model)
    asked.endpoint(_filled(file.url, values))  # so is an option that no request could be made with
    return LaunchedSide(label, file, settings, asked)


def _hold_secrets(file: LaunchFile) -> None:
    """What the file and `--set` call a secret: the servers' logs, which we keep, may print it."""
    parts: list[LaunchFile | Part] = [file, *file.before]
    for part in parts:
        secrets.hold_command(part.command)
    secrets.hold(*(text for table in (file.set, *(part.env for part in parts)) for text in secrets.secrets_in(table)))


def _command_and_env(part: LaunchFile | Part, values: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    command = [_filled(word, values) for word in part.command]
    return command, {key: _filled(value, values) for key, value in part.env.items()}


def _part(part: Part, values: Mapping[str, str], log: Path) -> Server:
    command, env = _command_and_env(part, values)
    ready = _filled(part.ready, values)
    return supervised(
        part.name, ready, ready, part.ready_timeout_s, command, env, log.with_name(f"server-{part.name}.log")
    )


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """`text` with every {name} replaced; other braces (JSON in an argument) stay as they are."""
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    if unset := _PLACEHOLDER.search(text):
        name = unset[1]
        raise UsageError(f"nothing is set for {{{name}}} in {text!r}", hint=f"--set {name}=VALUE", code="bad_set")
    return text
