"""`python -P -m loadtest.launched URL READY_URL TIMEOUT_S -- COMMAND...`: a foreign server under our supervision.

It starts the command in its own process group with its output in the log, asks READY_URL until that answers 200,
says so in the way `supervise.py` waits for, and ends when the command does or when it is told to. Nobody cleans up
after it when `goodput` was killed: it then ends the whole group, also what does not listen to TERM.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

from loadtest import clock
from loadtest.descendants import adopt_orphans, descendants, kill
from loadtest.supervise import announce_ready, ask_for_death_signal, die_with_parent

STOP_LIMIT_S = 20
_ASK_EVERY_S = 0.1
_ASK_TIMEOUT_S = 2.0


def main(words: list[str]) -> int:
    """The command's exit status; 3 when it was not ready in time, 98 when its port is taken, 127 when it cannot be
    started."""
    die_with_parent()
    watched_by = os.getppid()
    adopt_orphans()
    url, ready, timeout_s, _, *command = words
    if _listens(ready):
        sys.stderr.write(f"another program listens at {ready} already: it would be taken for this one\n")
        return 98
    try:
        # Nobody else would end the command if this process were killed; there is no thread that a fork could hurt.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            preexec_fn=lambda: ask_for_death_signal(signal.SIGKILL) and None,
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: _stop(child, watched_by))
    signal.signal(signal.SIGALRM, lambda _number, _frame: _end_group())
    came_up = _await_ready(child, ready, float(timeout_s))
    if came_up:
        with contextlib.suppress(BrokenPipeError):  # nobody is there any more: TERM has come, or comes now
            announce_ready(url=url)
    else:
        if child.poll() is None:
            last = _status(ready)
            instead = f" but {last}" if last else ""
            sys.stderr.write(f"{ready} did not answer 200{instead} within {timeout_s} s\n")
        _stop(child, watched_by)
    status = child.wait()
    kill(descendants(os.getpid()))  # what it left behind, also in sessions of their own
    if os.getppid() != watched_by:
        _end_group()
    return _end_like(status) if came_up else max(status, 0) or 3


def _end_like(status: int) -> int:
    """Die of the signal that the command died of: who watches us then names it."""
    if status < 0:
        with contextlib.suppress(OSError):  # KILL has no handler to take away
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _stop(child: subprocess.Popen[bytes], watched_by: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    if os.getppid() != watched_by:
        signal.alarm(STOP_LIMIT_S)


def _end_group() -> None:
    """KILL for all that is below us or in our group, us too; only where that is a group of our own."""
    kill(descendants(os.getpid()))
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _await_ready(child: subprocess.Popen[bytes], ready: str, timeout_s: float) -> bool:
    give_up_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    while child.poll() is None and clock.monotonic_ns() < give_up_ns:
        if _status(ready) == 200:
            return True
        clock.sleep(_ASK_EVERY_S)
    return False


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_ASK_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _status(url: str) -> int:
    """What it answers; 0 for nothing that is HTTP."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_ASK_TIMEOUT_S)
    try:
        connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
