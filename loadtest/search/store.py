"""search.json: what was measured so far, so that a search can go on where it was interrupted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol

import msgspec

from loadtest import secrets
from loadtest.errors import UsageError
from loadtest.search.procedure import Measure
from metrics.errors import MetricsError
from metrics.search import Attempt, Counted, SearchReport
from metrics.storage import read_document, write_atomically

FILE = "search.json"


class Runs(Protocol):
    """What makes the runs of a search."""

    def __call__(self, rate_per_s: float, number: int) -> Counted: ...

    def bracketing(self, rate_per_s: float, number: int) -> Counted: ...

    def recall(self, counted: Counted) -> None: ...


class Resumed:
    """Runs that were made before come back as they were; the others are made."""

    def __init__(self, runs: Runs, before: list[Attempt]) -> None:
        self._runs, self._before = runs, before

    def __call__(self, rate_per_s: float, number: int) -> Counted:
        return self._made(self._runs, rate_per_s, number)

    def bracketing(self, rate_per_s: float, number: int) -> Counted:
        """The same, for a run that may end early."""
        return self._made(self._runs.bracketing, rate_per_s, number)

    def _made(self, make: Measure, rate_per_s: float, number: int) -> Counted:
        if number >= len(self._before):
            return make(rate_per_s, number)
        attempt = self._before[number]
        if not math.isclose(attempt.rate_per_s, rate_per_s, rel_tol=1e-9):
            raise UsageError(
                f"run {number} of the stored search was at {attempt.rate_per_s:g} requests/s, not {rate_per_s:g}",
                hint="resume with the options the search was started with, or start anew in another folder",
                code="other_search",
            )
        self._runs.recall(attempt)
        return Counted(**{name: getattr(attempt, name) for name in Counted.__struct_fields__})


def write(directory: Path, report: SearchReport) -> None:
    """search.json, whole or not at all."""
    write_atomically(directory / FILE, msgspec.json.format(secrets.masked_json(report), indent=2) + b"\n")


def read(directory: Path) -> SearchReport:
    """The search in a folder; UsageError when there is none."""
    try:
        found: SearchReport = read_document(directory / FILE, SearchReport)
    except MetricsError as error:
        why = error.message
        raise UsageError(f"{directory} holds no search that can be resumed: {why}", code="no_search") from None
    return found
