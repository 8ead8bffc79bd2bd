"""Which folders this process writes into: a lock file in each, held until it is given back or the process is gone.

The kernel keeps the lock (flock), so one that a dead process left behind is in nobody's way. On file systems without
locks the process named in the file counts, as long as it lives on this machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

from metrics.errors import MetricsError

LOCK = ".lock"
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)

_held: dict[Path, int] = {}  # descriptors by folder: a lock belongs to the process, whoever in it asked


def hold(folder: Path) -> None:
    """Take the folder for this process; MetricsError `output_in_use` while another one has it.

    A folder inside one that is held is held with it.
    """
    place = folder.resolve()
    if any(above in _held for above in place.parents) or _still_held(place):
        return
    descriptor = _locked(place / LOCK)
    if descriptor < 0:
        raise MetricsError(
            f"{folder} is in use: {_owner(place / LOCK) or 'another process'} is writing into it",
            code="output_in_use",
            hint="wait until that has ended, or choose another folder",
        )
    with suppress(OSError):  # a full disk: the lock holds without a name in it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {platform.node()}\n".encode(), 0)
    _held[place] = descriptor


def release(folder: Path) -> None:
    """Give the folder back, if it is held here; the lock file goes with it."""
    place = folder.resolve()
    descriptor = _held.pop(place, -1)
    if descriptor >= 0:
        with suppress(OSError):
            (place / LOCK).unlink()
        os.close(descriptor)


def _still_held(place: Path) -> bool:
    """Whether it is ours already, and its lock file was not removed under our feet."""
    if place not in _held:
        return False
    if _same(_held[place], place / LOCK):
        return True
    os.close(_held.pop(place))
    return False


def _locked(file: Path) -> int:
    """A descriptor that holds the lock; -1 when somebody else does."""
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise MetricsError(f"cannot write into {file.parent}: {error.strerror}", code="output_unusable") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY or _lives(file):
                os.close(descriptor)
                return -1
            return descriptor  # no locks on this file system, and no living owner
        if _same(descriptor, file):
            return descriptor
        os.close(descriptor)  # its owner removed it between our two steps


def _same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _owner(file: Path) -> str:
    """`process 12 on host`, as the file says; empty when it does not."""
    try:
        with file.open("rb") as stream:
            text = stream.read(200).decode("ascii", "replace")
    except OSError:
        return ""
    process, _, host = text.strip().partition(" on ")
    return f"process {process} on {host}" if process.isdigit() and host.isprintable() and host else ""


def _lives(file: Path) -> bool:
    """Whether the process that the file names is one of this machine and still there."""
    words = _owner(file).split(" ", 3)
    if len(words) < 4 or words[3] != platform.node():
        return False
    if int(words[1]) == os.getpid():
        return False
    try:
        os.kill(int(words[1]), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
