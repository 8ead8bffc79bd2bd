"""The interval beside one run's attainment widens with the correlation of its requests."""

from __future__ import annotations

import numpy as np
import pytest

from metrics.certainty import Certainty, certainty
from metrics.judge import judge_rows
from metrics.records import Outcome, empty_rows
from metrics.slo import SLO

TARGETS = SLO(ttft_s=0.5)


def rows(good: list[bool]) -> np.ndarray:
    """Answered requests that met the limit or missed it."""
    made = empty_rows(len(good))
    made["outcome"], made["scheduled_s"], made["output_tokens"] = Outcome.OK, 0.0, 1
    made["first_token_s"] = np.where(good, 0.1, 0.9)
    return made


def certainty_of(made: np.ndarray) -> Certainty:
    return certainty(judge_rows(made, TARGETS.limits))


def test_independent_requests_give_wilsons_interval() -> None:
    """80 of 100, the misses evenly spread: 71.1 to 86.7 % (Wilson, 95 %)."""
    found = certainty_of(rows([i % 5 > 0 for i in range(100)]))
    assert pytest.approx(0.7111, abs=1e-4) == found.low
    assert pytest.approx(0.8666, abs=1e-4) == found.high


def test_misses_in_a_row_count_as_fewer_requests() -> None:
    """The same 80 of 100, but all misses together: far less is known."""
    spread = certainty_of(rows([i % 5 > 0 for i in range(100)]))
    together = certainty_of(rows([i >= 20 for i in range(100)]))
    assert together.effective < spread.effective / 5
    assert together.low < spread.low
    assert together.high > spread.high
