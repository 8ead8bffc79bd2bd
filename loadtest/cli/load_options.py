"""Options of every command that measures two or more servers: the workload, and how it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loadtest.cli.options import DURATION, HEADER
from loadtest.cli.output import say
from loadtest.errors import UsageError

if TYPE_CHECKING:
    from loadtest.replay.options import SenderOptions
    from loadtest.sides import EndpointOptions, Side, StoredSide
    from loadtest.target import LoadSettings
    from loadtest.workload import Workload
    from metrics.slo import SLO

F = TypeVar("F", bound=Callable[..., Any])

_DRAIN_S = 60.0
_DRAIN_PER_TTFT = 20.0
_WHOLE_ANSWER_S = 600.0
SHARE_OF_GOODPUT = 0.8
_OF_THE_BODY = ("extra_body", "rename_field", "drop_field")

_PATIENCE_OPTIONS = (
    click.option(
        "--timeout", type=DURATION, default="60s", show_default=True, metavar="TIME", help="Idle limit between tokens."
    ),
    click.option(
        "--drain",
        type=DURATION,
        metavar="TIME",
        help="Cut off all that is under way so long after the last request.  [default: wait while tokens come]",
    ),
)
_BODY_OPTIONS = (
    click.option("--extra-body", multiple=True, metavar="K=V|JSON", help="Extra fields of the request body."),
    click.option("--rename-field", multiple=True, metavar="OLD=NEW", help="A field of the body under another name."),
    click.option("--drop-field", multiple=True, metavar="NAME", help="Leave a field of the body out."),
)
_OPTIONS = (
    click.option("--trace", metavar="NAME|FILE", default="azure-conv", show_default=True, help="What to replay."),
    click.option("--rate", type=float, metavar="R", help="Requests/s.  [default: 80 % of goodput if emulated]"),
    click.option("--speed", type=float, metavar="X", help="Or replay X times as fast as the trace."),
    click.option("--duration", type=DURATION, metavar="TIME", help="Length of each run."),
    click.option("--requests", type=int, metavar="N", help="At most N requests in each run."),
    click.option("--warmup", type=DURATION, metavar="TIME", help="Not counted.  [default: first 20 %]"),
    click.option("--slo", metavar="SLO", help="Targets, e.g. ttft=200ms,tpot=50ms,share=90%."),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="N",
        help="Decides lengths and arrivals.",
    ),
    click.option("--virtual", is_flag=True, help="Emulated deployments on the simulator, not live."),
    click.option("--set", "set_", multiple=True, metavar="[SIDE.]K=V", help="Value for {K} in the launch files."),
    click.option(
        "--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Processes that send."
    ),
    *_PATIENCE_OPTIONS,
    click.option("--model", metavar="NAME", help="Model to ask for.  [default: the first listed]"),
    click.option("--api", type=click.Choice(["completions", "chat"]), help="API to use.  [default: completions]"),
    *_BODY_OPTIONS,
    click.option("--api-key-env", metavar="VARIABLE", help="Variable that holds the API key."),
    click.option("--header", "header", type=HEADER, multiple=True, metavar="'NAME: VALUE'", help="Extra header."),
    click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for runs and results."),
    click.option("--json", "json", is_flag=True, help="Print one JSON document."),
)


def load_options(command: F) -> F:
    """All of them, in this order."""
    return _with(_OPTIONS, command)


def body_options(command: F) -> F:
    """What the user wants otherwise in the body of a request."""
    return _with(_BODY_OPTIONS, command)


def _with(options: tuple[Callable[[F], F], ...], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def workload_of(given: dict[str, Any], rate_per_s: float | None = None) -> Workload:
    """The workload that the options describe; `rate_per_s` where they leave it open."""
    from loadtest.workload import Workload

    chosen = given["rate"] if given["rate"] is not None or given["speed"] is not None else rate_per_s
    return Workload(
        trace=given["trace"],
        rate_per_s=chosen,
        speed=given["speed"],
        duration_s=given["duration"],
        requests=given["requests"],
        warmup_s=given["warmup"] or 0.0,
        seed=given["seed"],
    )


def patience_options(command: F) -> F:
    """How long to wait for answers."""
    for option in reversed(_PATIENCE_OPTIONS):
        command = option(command)
    return command


def say_finding(finding: str) -> None:
    """A word about the trace, on stderr."""
    say(f"goodput: {finding}", err=True)


def settings_of(given: dict[str, Any], slo: SLO | None) -> LoadSettings:
    """How the load is sent."""
    from loadtest.target import LoadSettings

    return LoadSettings(patient_sender(given, slo), given["workers"])


def patient_sender(given: dict[str, Any], slo: SLO | None) -> SenderOptions:
    """How long the sender waits for answers: one in a single piece shows no progress on its way."""
    from loadtest.replay.options import SenderOptions

    ttft_s = slo.ttft_s if slo is not None and slo.ttft_s is not None else 0.0
    silent_s = _WHOLE_ANSWER_S if given.get("no_stream") else _DRAIN_S
    return SenderOptions(
        idle_timeout_s=given["timeout"],
        drain_limit_s=max(silent_s, _DRAIN_PER_TTFT * ttft_s),
        drain_total_s=given["drain"],
    )


def endpoint_of(given: dict[str, Any]) -> EndpointOptions:
    """How a live server is asked, by those of the options that the command has."""
    from loadtest.sides import EndpointOptions

    return EndpointOptions(
        model=given["model"],
        api=given["api"],
        api_key_env=given["api_key_env"] or "",
        headers=tuple(given["header"]),
        api_key_file=given.get("api_key_file") or "",
        ca_file=given.get("ca_file") or "",
        verify=not given.get("no_verify"),
        stream=not given.get("no_stream"),
        **{name: tuple(given.get(name, ())) for name in _OF_THE_BODY},
        path=given.get("path") or "",
    )


def side_of(text: str, given: dict[str, Any], slo: SLO | None, name: str = "") -> Side | StoredSide:
    """A folder of runs, a launch file, a URL or a deployment's text."""
    from loadtest.sides import BundledSide, UrlSide, VirtualSide, launched, stored

    path = Path(text)
    if path.suffix == ".toml" and path.is_file():
        side = launched(path, chosen(given["set_"], name), settings_of(given, slo), endpoint_of(given))
        if isinstance(side, BundledSide):
            _refuse_own_fields(text, given)
        return side
    if path.is_dir():
        found = stored(path)
        if found is None:
            raise UsageError(f"{text} holds no run", hint="name a run directory, or a folder of them", code="not_a_run")
        return found
    deployment = _deployment(text)
    if given["virtual"] and deployment.backend != "emulated":
        raise UsageError(f"--virtual is for emulated deployments, not for {text}", code="virtual")
    if deployment.url is not None:
        return UrlSide(deployment.label, deployment.url, settings_of(given, slo), endpoint_of(given))
    _refuse_own_fields(text, given)
    if given["virtual"]:
        return VirtualSide(str(deployment), deployment)
    return BundledSide(str(deployment), deployment, settings_of(given, slo), given["api"], given["model"])


def _refuse_own_fields(text: str, given: dict[str, Any]) -> None:
    """UsageError for body options that a bundled server has no use for."""
    if foreign := [name for name in _OF_THE_BODY if given.get(name)]:
        flag = f"--{foreign[0].replace('_', '-')}"
        raise UsageError(f"{flag} is for a URL: the bundled {text} speaks plain OpenAI", code="of_a_target")


def chosen(words: tuple[str, ...], name: str) -> dict[str, str]:
    """`--set` values for one side: K=V for both, baseline.K=V or candidate.K=V for one."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        side, dot, rest = key.partition(".")
        if not equals or not key:
            raise UsageError(f"--set {word!r} is not K=V", code="bad_set")
        if dot and side in ("baseline", "candidate"):
            if side != name:
                continue
            key = rest
        found[key] = value
    return found


def default_folder(above: str) -> Path:
    """A folder of today's below `above`; one that somebody has already gets a number (metrics.rundir)."""
    from loadtest import clock

    return Path(above) / clock.utc_now().strftime("%Y-%m-%dT%H-%M-%S")


@contextmanager
def fresh_folder(out: Path | None, default: Path | None = None) -> Iterator[Path]:
    """The folder asked for, or one named like the default, for this process alone; gone when nothing came into it."""
    from metrics import rundir

    asked = out or default or Path()
    created = [folder for folder in asked.parents if not folder.exists()]
    existed = asked.exists()
    directory = rundir.create(asked) if out is not None else rundir.create_numbered(asked)
    try:
        yield directory
    finally:
        rundir.release(directory)
        for folder in [*([] if existed and directory == asked else [directory]), *created]:
            if any(folder.iterdir()):
                break
            folder.rmdir()


@contextmanager
def resumed_folder(directory: Path) -> Iterator[Path]:
    """A folder that another process began, for this one alone; MetricsError while that one is still at it."""
    from metrics import folderlock

    if directory.is_dir():
        folderlock.hold(directory)
    try:
        yield directory
    finally:
        folderlock.release(directory)


def default_rate(side: Side | StoredSide, given: dict[str, Any], slo: SLO | None) -> float | None:
    """80 % of the goodput that the simulator finds for an emulated baseline; None where that is no question."""
    from loadtest.search import Search, VirtualRuns
    from loadtest.sides import BundledSide, VirtualSide
    from workloads.synth import BUILTIN

    asked = given["rate"] is not None or given["speed"] is not None
    if asked or slo is None or given["trace"] not in BUILTIN or not isinstance(side, BundledSide | VirtualSide):
        return None
    if side.deployment.backend != "emulated":
        return None
    found = Search(VirtualRuns(side.deployment, given["trace"], slo), slo.share).run(1.0, 6).goodput
    return float(f"{SHARE_OF_GOODPUT * found.rate:.3g}")


def _deployment(text: str) -> Any:
    from loadtest.deployment import Deployment

    try:
        return Deployment.parse(text)
    except UsageError as error:
        if text.endswith(".toml"):
            raise UsageError(
                f"there is no launch file {text}", hint="examples/ holds some", code="no_such_side"
            ) from None
        if "/" in text and "://" not in text:
            raise UsageError(f"there is no {text}", hint=error.hint, code="no_such_side") from None
        raise
