"""The processes below one, as /proc shows them, also in sessions of their own; none where there is no /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


class Process(NamedTuple):
    """A process and when it was started, in clock ticks since boot: its number alone may be another's by now."""

    pid: int
    started: int


def adopt_orphans() -> None:
    """Be the parent of every descendant whose own parent ends, so that it can still be found; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[Process]:
    """All that run below a process, parents before children."""
    below: dict[int, list[Process]] = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit() and (seen := _stat(int(entry.name))) is not None:
            parent, process = seen
            below.setdefault(parent, []).append(process)
    found: list[Process] = []
    parents = [pid]
    while parents:
        children = below.pop(parents.pop(), [])
        found += children
        parents += [child.pid for child in children]
    return found


def kill(processes: Iterable[Process]) -> None:
    """KILL for those that still are who they were."""
    for process in processes:
        seen = _stat(process.pid)
        if seen is not None and seen[1] == process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[int, Process] | None:
    """(parent, process); None when it has ended, also when nobody has asked for its status yet."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    state, parent, *rest = text.rpartition(b") ")[2].split()
    return None if state in b"ZX" else (int(parent), Process(pid, int(rest[17])))
