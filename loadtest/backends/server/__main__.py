"""`python -P -m loadtest.backends.server`: serve one deployment until TERM or INT."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from loadtest.backends.emulated import EmulatedEngine, emulated_engine
from loadtest.backends.server.arrivals import ArrivalLog
from loadtest.backends.server.face import Face
from loadtest.deployment import Deployment
from loadtest.errors import GoodputError, UsageError
from loadtest.supervise import announce_ready, die_with_parent

if TYPE_CHECKING:
    from loadtest.backends.engine.coordinator import Coordinator

_BACKLOG = 4096  # a burst of connects must not wait for SYN retries
_SHUTDOWN_S = 0.2
_DRAIN_S = 4.0  # after TERM, for answers under way; who supervises us waits five seconds
_DRAIN_CHECK_S = 0.05
_FULL_COLLECTIONS_RARELY = 1000  # one takes 20 ms with 1,000 live streams, and would show as a token gap


def main() -> int:
    """Exit status 0 after a signal; a failure says why in its last line on stderr."""
    die_with_parent()
    options = _options()
    try:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C before the handlers are in place
            asyncio.run(_serve(options))
    except GoodputError as error:
        sys.stderr.write(f"{error.message}\n")
        return int(error.exit_code)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m loadtest.backends.server")
    parser.add_argument("--deployment", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--arrival-log", type=Path, default=None)
    return parser.parse_args()


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[signal.Signals] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _resolve, stop, number)
    loop.set_exception_handler(lambda loop, context: _report(loop, context, stop))
    deployment = Deployment.parse(options.deployment)
    arrivals = _arrival_log(options.arrival_log, loop)
    engine = await _engine(deployment, loop)
    face = Face(engine, arrivals)
    runner = web.ServerRunner(face, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        port = await _listen(runner, options.host, options.port)
        _settle_memory()
        announce_ready(url=_url(options.host, port), model=engine.model, deployment=str(deployment))
        if await stop == signal.SIGTERM and deployment.backend == "torch":
            await _drain(face, loop)
    finally:
        await runner.cleanup()
        engine.close()
        if arrivals is not None:
            arrivals.close()


async def _engine(deployment: Deployment, loop: asyncio.AbstractEventLoop) -> EmulatedEngine | Coordinator:
    if deployment.backend != "torch":
        return emulated_engine(deployment, loop)
    from loadtest.backends.engine.coordinator import reference_engine

    return await reference_engine(deployment, loop)


async def _drain(face: Face, loop: asyncio.AbstractEventLoop) -> None:
    """Take nothing new and finish what is under way; a second signal ends that."""
    again = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, again.set)
    face.draining = True
    until = loop.time() + _DRAIN_S
    while face.busy and not again.is_set() and loop.time() < until:
        await asyncio.sleep(_DRAIN_CHECK_S)


def _resolve(stop: asyncio.Future[signal.Signals], number: signal.Signals) -> None:
    if not stop.done():
        stop.set_result(number)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any], stop: asyncio.Future[signal.Signals]) -> None:
    """Log what went wrong; when it was the engine's alarm, end: a dead engine would leave its clients waiting."""
    loop.default_exception_handler(context)
    if "handle" in context and not stop.done():
        stop.set_exception(GoodputError(f"the engine failed: {context.get('exception')!r}"))


async def _listen(runner: web.ServerRunner, host: str, port: int) -> int:
    try:
        await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host} port {port}: {_reason(error)}", code="cannot_listen") from error
    return int(runner.addresses[0][1])


def _reason(error: Exception) -> str:
    """asyncio wraps errno's sentence in its own; name look-ups have negative numbers and a sentence of theirs."""
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number and number > 0 else getattr(error, "strerror", None) or str(error)


def _arrival_log(path: Path | None, loop: asyncio.AbstractEventLoop) -> ArrivalLog | None:
    if path is None:
        return None
    try:
        return ArrivalLog(path, loop)
    except OSError as error:
        raise UsageError(f"cannot write the arrival log {path}: {error.strerror}", code="bad_arrival_log") from error


def _settle_memory() -> None:
    """Make room for many streams, and keep the collector away from what start-up built."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS reports a limit it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, _FULL_COLLECTIONS_RARELY)


def _url(host: str, port: int) -> str:
    address = "127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


if __name__ == "__main__":
    sys.exit(main())
