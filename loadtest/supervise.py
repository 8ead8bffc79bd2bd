"""Start a child process, wait until it says that it is ready, and be sure that it is gone afterwards.

Parent                                   Child (a module of ours)
    Server(argv, log=...).start()            die_with_parent()
        own session, stdin closed,           ... listen ...
        stderr into the log                  announce_ready(url="http://127.0.0.1:49152")
    <- one JSON line on stdout: {"ready": true, "url": ...}
    .stop(): TERM, wait, KILL of the group

A child is an argument list, never a shell line, and is executed at once: nothing of the parent's patched
modules lives on in it. On Linux the kernel tells the child when its parent dies; elsewhere the child looks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from loadtest import clock, secrets
from loadtest.descendants import descendants, kill
from loadtest.errors import TargetError, UsageError

PARENT_VARIABLE = "GOODPUT_PARENT_PID"
_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_S = 0.5
_LOG_LINES_SHOWN = 5
_OUR_PLACE = Path(__file__).parents[1]  # the checkout, or site-packages


def python_module(module: str, *arguments: str) -> list[str]:
    """Argument list that runs `module` in an interpreter like this one, deaf to the current directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


# --- the child's half ------------------------------------------------------------------------------------


def die_with_parent() -> None:
    """Get SIGTERM when the supervising process dies; does nothing in a process started by hand.

    The kernel watches the *thread* that started the child, so the parent must not start it from a thread
    that ends early.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return
    if not ask_for_death_signal():
        threading.Thread(target=_watch_parent, args=(int(parent),), daemon=True).start()
    elif os.getppid() != int(parent):  # it died before we could ask
        os.kill(os.getpid(), signal.SIGTERM)


def announce_ready(**facts: object) -> None:
    """Write the readiness line, `{"ready": true, ...facts}`, to stdout; call once, when all is set up."""
    sys.stdout.buffer.write(msgspec.json.encode({"ready": True, **facts}) + b"\n")  # UTF-8, whatever stdout's is
    sys.stdout.buffer.flush()


def ask_for_death_signal(number: signal.Signals = signal.SIGTERM) -> bool:
    """Have the kernel send a signal when the parent dies, also after an exec; whether this kernel does that."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) == 0)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        clock.sleep(_PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGTERM)


# --- the parent's half -----------------------------------------------------------------------------------


@contextlib.contextmanager
def log_folder(prefix: str) -> Iterator[Path]:
    """A folder for the logs of servers that belong to no run; it stays when an error, which names a log, leaves it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise UsageError(
            f"there is no folder for a server's log: {error.strerror}",
            hint="set TMPDIR to a folder that you may write to",
            code="no_temporary_folder",
        ) from None
    try:
        yield folder
    except Exception:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


class Server:
    """A supervised child process; as a context manager it is ready inside the block and gone after it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        name: str = "server",
        ready_timeout_s: float = 30.0,
        stop_timeout_s: float = 5.0,
        env: dict[str, str] | None = None,
    ) -> None:
        """`env` is added to this process's environment; stderr is appended to the file `log`."""
        self.argv = list(argv)
        self.log = log
        self.name = name
        self.ready: dict[str, Any] = {}
        self._ready_timeout_s = ready_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the ready child listens."""
        return str(self.ready["url"])

    @property
    def pid(self) -> int:
        """Process id, which is the process group's too."""
        return self._started.pid

    @property
    def exit_status(self) -> int | None:
        """None while the child runs; its status, or minus the signal's number, when it ended."""
        return self._started.poll()

    def start(self) -> Server:
        """Launch, and wait until ready; raises TargetError with the child's last words."""
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """Start the child without waiting, so that several can warm up side by side."""
        if self._process is not None:
            raise RuntimeError(f"{self.name} was launched before")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as stderr:
            self._log_start = stderr.tell()
            self._process = self._spawn(stderr, self._environment())

    def wait_ready(self) -> None:
        """Wait for the readiness line; raises TargetError when the child dies or stays silent."""
        assert self._started.stdout is not None
        line = self._readiness_line(self._started.stdout)
        if line is None:
            raise self._not_ready()
        self.ready = line

    def wait(self) -> int:
        """Wait until the child ends by itself; its exit status."""
        return self._started.wait()

    def stop(self) -> None:
        """End the child, its group and all below it: TERM, wait, KILL; harmless when it ended or never started."""
        process = self._process
        if process is None:
            return
        below = descendants(process.pid)  # once it has ended, nothing says that they were its own
        if process.poll() is None:
            self._signal_group(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._stop_timeout_s)
        self._signal_group(signal.SIGKILL)  # also what the child left behind
        kill(below)
        process.wait()
        secrets.masked_file(self.log)  # a server may print the key it was given, or was sent
        if process.stdout is not None:
            process.stdout.close()

    def log_tail(self, lines: int = _LOG_LINES_SHOWN) -> str:
        """The last non-empty lines this child wrote to its log."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        return secrets.mask("\n".join([line for line in text.splitlines() if line.strip()][-lines:]))

    def died(self) -> TargetError:
        """The error to raise when the child ended although it was still needed."""
        tail = self.log_tail()
        said = f"; its last words: {tail}" if tail else ""
        return TargetError(
            f"the {self.name} ended with {_describe(self.exit_status)}{said}",
            hint=f"its log is {self.log}",
            code="server_died",
        )

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not launched")
        return self._process

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, **self._env, PARENT_VARIABLE: str(os.getpid())}
        if self.argv[0] == sys.executable and _OUR_PLACE.name not in ("site-packages", "dist-packages"):
            # A checkout that is not installed: a child of ours imports what we imported, not a namesake.
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_OUR_PLACE), env.get("PYTHONPATH")]))
        return env

    def _spawn(self, stderr: BinaryIO, env: dict[str, str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # a zero byte in an argument or a variable
            why = error.strerror if isinstance(error, OSError) else error
            raise TargetError(
                f"the {self.name} cannot be started: {self.argv[0]}: {why}",
                hint="check that the program exists and may be executed",
                code="server_not_started",
            ) from error

    def _readiness_line(self, stdout: Any) -> dict[str, Any] | None:
        """The first line that is a readiness object; None at end of file or when the time is up."""
        give_up_ns = clock.monotonic_ns() + int(self._ready_timeout_s * 1e9)
        poll = select.poll()
        poll.register(stdout.fileno(), select.POLLIN | select.POLLHUP)
        pending = b""
        while (left_ns := give_up_ns - clock.monotonic_ns()) > 0:
            if not poll.poll(left_ns / 1e6):
                continue
            block = os.read(stdout.fileno(), 65536)
            if not block:
                return None
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                if (ready := _as_readiness(line)) is not None:
                    return ready
        return None

    def _not_ready(self) -> TargetError:
        with contextlib.suppress(subprocess.TimeoutExpired):  # stdout closes a moment before the status is known
            self._started.wait(0.5)
        if self.exit_status is not None:
            return self.died()
        return TargetError(
            f"the {self.name} was not ready within {self._ready_timeout_s:g} s",
            hint=f"its log is {self.log}",
            code="server_not_ready",
        )

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._started.pid, number)


def _as_readiness(line: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) and value.get("ready") is True else None


def _describe(status: int | None) -> str:
    if status is None:
        return "no status"
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
