"""`python -P -m loadtest.launched URL READY_URL TIMEOUT_S -- COMMAND...`: a foreign server under our supervision.

It starts the command in its own process group with its output in the log, asks READY_URL until that answers 200,
says so in the way `supervise.py` waits for, and ends when the command does or when it is told to.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from types import FrameType
from urllib.parse import urlsplit

from loadtest import clock
from loadtest.supervise import announce_ready, ask_for_death_signal, die_with_parent

_ASK_EVERY_S = 0.1
_ASK_TIMEOUT_S = 2.0


def main(words: list[str]) -> int:
    """The command's exit status; 3 when it was not ready in time, 127 when it cannot be started."""
    die_with_parent()
    url, ready, timeout_s, _, *command = words
    try:
        # Nobody else would end the command if this process were killed; there is no thread that a fork could hurt.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=ask_for_death_signal)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: _stop(child))
    if not _await_ready(child, ready, float(timeout_s)):
        if child.poll() is None:
            sys.stderr.write(f"{ready} did not answer 200 within {timeout_s} s\n")
        _stop(child)
        return child.wait() or 3
    announce_ready(url=url)
    return _end_like(child.wait())


def _end_like(status: int) -> int:
    """Die of the signal that the command died of: who watches us then names it."""
    if status < 0:
        with contextlib.suppress(OSError):  # KILL has no handler to take away
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _stop(child: subprocess.Popen[bytes], _frame: FrameType | None = None) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()


def _await_ready(child: subprocess.Popen[bytes], ready: str, timeout_s: float) -> bool:
    give_up_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    while child.poll() is None and clock.monotonic_ns() < give_up_ns:
        if _answers(ready):
            return True
        clock.sleep(_ASK_EVERY_S)
    return False


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_ASK_TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
