"""Find goodput on any target: the procedure, the runs it is fed, and what else is searched for."""

from __future__ import annotations

from loadtest.search.procedure import ADAPTIVE_RUNS, QUICK_RUNS, Budget, Measure, OnAttempt, Search
from loadtest.search.virtual import VirtualRuns, virtual_schedule
from loadtest.search.windows import Windows
from metrics.search import Attempt, Counted, Found

__all__ = [
    "ADAPTIVE_RUNS",
    "QUICK_RUNS",
    "Attempt",
    "Budget",
    "Counted",
    "Found",
    "Measure",
    "OnAttempt",
    "Search",
    "VirtualRuns",
    "Windows",
    "virtual_schedule",
]
