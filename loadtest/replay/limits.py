"""Every stream is an open file: take as many as the system grants, and say before the start when they cannot do."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

import numpy as np

from loadtest.errors import UsageError
from workloads.schedule import Schedule

OWN_FILES = 64  # journal, timer, pipes, libraries
OPENED_WITHIN_S = (
    1.0  # connections are opened at most this much ahead, so all that are due within it may be open together
)
# The machine we run on refuses: the request never left, and the server is not to blame.
OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


def raise_fd_limit() -> int:
    """Raise this process's limit of open files as far as it may; returns the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 1_048_576)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def check_spare(fd: int, limit: int) -> None:
    """OSError EMFILE when `fd` is one of the last: journals and imports need a few files even then.

    The kernel hands out the lowest free number, so the number tells how many are open.
    """
    if fd >= limit - min(OWN_FILES, limit // 4):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def require_files(schedule: Schedule, workers: int, max_in_flight: int | None) -> None:
    """Raise the limit; UsageError when the schedule's densest second alone needs more files than a process may open."""
    limit = raise_fd_limit()
    needed = max(most_within(schedule.shard(worker, workers)) for worker in range(workers))
    if max_in_flight is not None:
        needed = min(needed, -(-max_in_flight // workers))
    if limit != resource.RLIM_INFINITY and needed + OWN_FILES > limit:
        raise UsageError(
            f"{needed:,} requests of the schedule are due within one second and this process may open {limit:,} files",
            hint="raise the limit with `ulimit -n`, or add --workers",
            code="fd_limit",
        )


def most_within(schedule: Schedule, seconds: float = OPENED_WITHIN_S) -> int:
    """The largest number of requests due in any window of `seconds`."""
    due = np.sort(schedule.scheduled_s[np.isfinite(schedule.scheduled_s)])
    return int((np.searchsorted(due, due + seconds, side="left") - np.arange(len(due))).max(initial=0))
