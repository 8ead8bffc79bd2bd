"""A deployment of several processes: started side by side from argument lists, watched, stopped in reverse order."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from loadtest.errors import TargetError, UsageError
from loadtest.supervise import Server, python_module
from loadtest.weburl import split_url

Words = Annotated[list[str], msgspec.Meta(min_length=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+$")]  # a part of a log's file name
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]

_PORT = re.compile(r"\{(\w+_port)\}")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A process beside the one that takes the requests: a prefill or decode instance behind a router, say."""

    name: Name
    command: Words
    ready: str  # a URL that answers 200 once it may be used
    ready_timeout_s: Seconds = 600.0
    env: dict[str, str] = {}

    @property
    def texts(self) -> list[str]:
        """Everything that may hold a placeholder."""
        return [*self.command, self.ready, *self.env.values()]


def ports_in(texts: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """A free port for each `{..._port}` that nobody has set, and for `{port}`."""
    names = {"port", *(name for text in texts for name in _PORT.findall(text))} - known.keys()
    return dict(zip(sorted(names), free_ports(len(names)), strict=True))


def supervised(
    name: str, url: str, ready: str, timeout_s: float, command: list[str], env: dict[str, str], log: Path
) -> Server:
    """A foreign server as a supervised child that says when `ready` answers 200; UsageError when that is no URL."""
    try:
        split_url(ready, ("http",))
    except ValueError as error:
        raise UsageError(f"{name} cannot be asked whether it is ready: {ready!r} {error}", code="bad_ready") from None
    return Server(
        python_module("loadtest.launched", url, ready, f"{timeout_s:g}", "--", *command),
        log=log,
        name=f"server {name}",
        ready_timeout_s=timeout_s + 10.0,
        stop_timeout_s=20.0,
        env=env,
    )


class Ensemble:
    """Several supervised servers as one; all of them ready, or none left running."""

    def __init__(self, parts: list[Server]) -> None:
        self._parts = parts

    def start(self) -> None:
        """Side by side, because a model takes its time to load; TargetError with the last words of one that fails."""
        try:
            for part in self._parts:
                part.launch()
            for part in self._parts:
                part.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """The last started first; harmless when nothing runs."""
        for part in reversed(self._parts):
            part.stop()

    def died(self) -> TargetError | None:
        """Why one of them ended although it was still needed."""
        return next((part.died() for part in self._parts if part.exit_status is not None), None)


def free_ports(count: int) -> list[str]:
    """Ports that nobody has now; different ones, because all are held until the last is found."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
