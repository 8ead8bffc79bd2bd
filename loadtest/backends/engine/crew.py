"""The worker processes: start them, hear them, notice when they are gone, start them again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from loadtest.backends.engine.channel import Frames, frame
from loadtest.backends.engine.messages import Begin, FromWorker, Hello
from loadtest.backends.engine.settings import Role, Settings, cores
from loadtest.clock import Clock
from loadtest.errors import GoodputError, UsageError
from loadtest.supervise import PARENT_VARIABLE, python_module

HEARTBEAT_S: Final = 0.5
_SILENCE_S: Final = 5 * HEARTBEAT_S  # with a spare at hand a stopped worker is replaced within five seconds
_MOST_SPARES: Final = 2  # both workers of a disaggregated server may die at once
_RESTART_PAUSE_S: Final = 1.0
_LAST_MOMENT_S: Final = 0.2
_MODULE: Final = "loadtest.backends.engine"


class Process(asyncio.Protocol):
    """A worker process and the socket to it; it has imported torch when it is told what to be."""

    def __init__(self, on_message: Callable[[Process, FromWorker], None], on_gone: Callable[[Process], None]) -> None:
        self._on_message = on_message
        self._on_gone = on_gone
        self._frames = Frames[FromWorker](FromWorker)
        self._transport: asyncio.Transport | None = None
        self._child: subprocess.Popen[bytes] | None = None

    async def spawn(self, settings: Settings, memory: int) -> None:
        """Start it; `memory` is a file descriptor, or -1."""
        ours, theirs = socket.socketpair()
        arguments = ["--settings", msgspec.json.encode(settings).decode()]
        arguments += ["--channel", str(theirs.fileno()), "--memory", str(memory)]
        with theirs:
            self._child = subprocess.Popen(
                python_module(_MODULE, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # ours is for the readiness line
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
                pass_fds=[theirs.fileno(), *([memory] if memory >= 0 else [])],
            )
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)

    def send(self, message: object) -> None:
        """Tell it something; what a dead process did not hear, its death tells."""
        if self._transport is not None:
            self._transport.write(frame(message))

    def data_received(self, data: bytes) -> None:
        """Hand on what it says."""
        for message in self._frames.feed(data):
            self._on_message(self, message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It is gone, or will be in a moment."""
        self._transport = None
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # the socket closes just before the status is known
                self._child.wait(_LAST_MOMENT_S)
        self.kill()
        self._on_gone(self)

    def kill(self) -> int | None:
        """Make sure that it is no more; its status."""
        if self._child is None:
            return None
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)
        return self._child.wait()


class Member:
    """A place in the crew; the process that fills it changes when it dies."""

    def __init__(self, role: Role, number: int, taken_cores: list[int]) -> None:
        self.role = role
        self.number = number
        self.cores = taken_cores
        self.process: Process | None = None
        self.hello: Hello | None = None  # None while it starts, or is gone
        self.starts = 0
        self.heard_s = 0.0

    @property
    def ready(self) -> bool:
        """Takes requests."""
        return self.hello is not None

    def send(self, message: object) -> None:
        """Tell the process something; one that is only starting knows nothing that could be changed."""
        if self.process is not None and self.ready:
            self.process.send(message)


class Audience(Protocol):
    """Who is told about the crew."""

    def heard(self, member: Member, message: FromWorker) -> None:
        """A worker said something."""

    def member_ready(self, member: Member) -> None:
        """A worker takes requests, from now on."""

    def member_gone(self, member: Member) -> None:
        """A worker is dead, and will be replaced."""


class Crew:
    """All workers of a server."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.members = [Member(role, number, taken) for number, (role, taken) in enumerate(_places(settings))]
        self._spares: deque[Process] = deque()  # importing torch takes seconds that a restart has not got
        self._audience: Audience | None = None
        self._clock = clock
        self._memory = _shared_memory(settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._first_ready: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """Every worker takes requests."""
        return all(member.ready for member in self.members)

    @property
    def placement(self) -> str:
        """An honest label: what the workers have for themselves."""
        cuda = self.settings.device == "cuda"
        if len(self.members) == 1:
            return "1xGPU x1" if cuda else "cpu x1"
        shape = "1P1D" if self.settings.arrangement == "disaggregated" else f"x{len(self.members)}"
        own = self.members[0].cores
        return f"{'1xGPU time-sliced' if cuda else 'cpu-pinned' if own else 'cpu-shared'} {shape}"

    async def start(self, audience: Audience) -> None:
        """Start everybody and wait until all are ready; raises the error a worker died with."""
        self._first_ready = asyncio.get_running_loop().create_future()
        self._audience = audience
        for member in self.members:
            self._task(self._fill(member))
        await self._first_ready
        self._task(self._watch())
        self._task(self._keep_spares())

    def close(self) -> None:
        """End every worker."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        for process in [*self._spares, *(member.process for member in self.members)]:
            if process is not None:
                process.kill()
        if self._memory >= 0:
            os.close(self._memory)

    async def _fill(self, member: Member, pause_s: float = 0.0) -> None:
        await asyncio.sleep(pause_s)
        process = self._spares.popleft() if self._spares else await self._spawned()
        member.process = process
        member.starts += 1
        process.send(Begin(member.role, member.cores))
        if member.starts > 1:
            await self._keep_spares()

    async def _spawned(self) -> Process:
        process = Process(self._heard, self._gone)
        await process.spawn(self.settings, self._memory)
        return process

    async def _keep_spares(self) -> None:
        """One for each worker; the oldest, which is the readiest, goes first."""
        while len(self._spares) < min(_MOST_SPARES, len(self.members)):
            self._spares.append(await self._spawned())

    def _member(self, process: Process) -> Member | None:
        return next((member for member in self.members if member.process is process), None)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _heard(self, process: Process, message: FromWorker) -> None:
        member = self._member(process)
        assert member is not None
        assert self._audience is not None
        member.heard_s = self._clock.now()
        if not isinstance(message, Hello):
            self._audience.heard(member, message)
            return
        member.hello = message
        self._audience.member_ready(member)
        if self.ready and self._first_ready is not None and not self._first_ready.done():
            self._first_ready.set_result(None)

    def _gone(self, process: Process) -> None:
        if process in self._spares:
            self._spares.remove(process)
        member = self._member(process)
        if self._closing or self._audience is None or member is None:
            return
        status = process.kill()
        member.process = member.hello = None
        if self._first_ready is not None and not self._first_ready.done():
            kind = UsageError if status == UsageError.exit_code else GoodputError
            self._first_ready.set_exception(kind(f"a {member.role} worker ended at its start with status {status}"))
            return
        self._audience.member_gone(member)
        self._task(self._fill(member, pause_s=0.0 if member.heard_s else _RESTART_PAUSE_S))
        member.heard_s = 0.0

    async def _watch(self) -> None:
        """A worker that says nothing for five heartbeats is dead, whatever its process does."""
        while True:
            await asyncio.sleep(HEARTBEAT_S / 2)
            for member in self.members:
                silent_s = self._clock.now() - member.heard_s
                if member.process is not None and member.ready and silent_s > _SILENCE_S:
                    member.process.kill()


def _places(settings: Settings) -> list[tuple[Role, list[int]]]:
    """Who runs where: a core for each thread; none is fixed when there are too few, or one worker has them all."""
    roles, free = settings.roles, cores()
    if len(roles) == 1 or settings.device != "cpu" or len(free) < len(roles) * settings.threads:
        return [(role, []) for role in roles]
    width = settings.threads
    return [(role, free[number * width : (number + 1) * width]) for number, role in enumerate(roles)]


def _shared_memory(settings: Settings) -> int:
    """A file descriptor of the decode worker's KV memory, without a name: it goes when the last process does."""
    if settings.arrangement != "disaggregated" or settings.kv_link != "shm":
        return -1
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("goodput-kv", 0)
    else:  # macOS
        import tempfile

        fd, path = tempfile.mkstemp()
        with contextlib.suppress(OSError):
            os.unlink(path)
    os.ftruncate(fd, settings.kv_bytes)
    return fd
