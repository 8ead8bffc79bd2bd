"""The one error of this package; the command line prints it and exits with USAGE."""

from __future__ import annotations


class MetricsError(Exception):
    """Rows, a run directory, an SLO or a rule that cannot be used: one clear sentence, a stable code, a hint."""

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
