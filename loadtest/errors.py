"""Errors that know their exit code.

    GoodputError            6  INTERNAL      a bug in this program, unless a child says otherwise
    ├── UsageError          2  USAGE         bad flag, file, trace or configuration
    ├── TargetError         5  TARGET        unreachable, unknown model, died, every request failed
    ├── InvalidError        4  INVALID       the measurement is unsound
    └── Interrupted       130  INTERRUPTED   stopped by the user; partial results were written

A failed *request* is never an exception: it is a row with an outcome. `workloads` and `metrics` may import
nothing of ours, so they raise their own `WorkloadError` and `MetricsError`; the command line treats both
as USAGE.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller; documented in docs/cli.md."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INVALID = 4
    TARGET = 5
    INTERNAL = 6
    INTERRUPTED = 130


class GoodputError(Exception):
    """One clear sentence for the user (`message`), what to do next (`hint`), a stable `code` for machines."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or type(self).__name__.removesuffix("Error").lower()


class UsageError(GoodputError):
    """A flag, file, trace or configuration that cannot be used as it is."""

    exit_code = ExitCode.USAGE


class TargetError(GoodputError):
    """The server under test cannot be loaded: unreachable, refused, died, or failed every request."""

    exit_code = ExitCode.TARGET


class InvalidError(GoodputError):
    """The measurement itself is unsound."""

    exit_code = ExitCode.INVALID


class Interrupted(GoodputError):
    """The user stopped the run; what was measured until then has been written."""

    exit_code = ExitCode.INTERRUPTED
