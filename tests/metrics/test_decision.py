"""Who wins, by how much, and when nobody can say."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.decision import DecisionRow, decide
from metrics.goodput import GoodputEstimate

Bound = Literal["estimate", "at_least", "below"]


def row(
    label: str, rate: float | None, low: float | None = None, high: float | None = None, **more: Any
) -> DecisionRow:
    bound: Bound = more.pop("bound", "estimate")
    found = None if rate is None else GoodputEstimate(rate=rate, low=low, high=high, bound=bound, runs=6)
    return DecisionRow(label=label, deployment=f"emulated:{label}", gpus=1, goodput_per_gpu=found, **more)


def test_intervals_apart_make_a_winner_with_its_factor() -> None:
    """3.5 (3.3-3.75) against 2.6 (2.45-2.8): 1.35 times, between 3.3/2.8 and 3.75/2.45; best row first."""
    found = decide([row("chunked", 2.6, 2.45, 2.8), row("split", 3.5, 3.3, 3.75), row("colocated", 2.0, 1.9, 2.2)])
    assert "Split wins: 1.35 times the goodput per GPU of chunked (between 1.18 and 1.53)." == found.sentence
    assert ("winner", ["split"]) == (found.standing, found.leaders)
    assert ["split", "chunked", "colocated"] == [r.label for r in found.rows]


def test_deployments_that_never_keep_the_target_are_not_called_alike() -> None:
    """All three fail at their lowest rate: that is the answer, and not that their intervals overlap."""
    found = decide([row(name, 0.1, bound="below") for name in ("a", "b", "c")])
    assert "None of a, b and c reaches the target, not even at the lowest rate tried." == found.sentence


def test_overlapping_intervals_cannot_be_told_apart() -> None:
    """The sentence names both, and whom both are ahead of."""
    found = decide([row("a", 3.0, 2.5, 3.5), row("b", 2.9, 2.4, 3.4), row("c", 1.0, 0.9, 1.1)])
    assert "tie" == found.standing
    assert ["a", "b"] == found.leaders
    assert "The data cannot tell a and b apart: their intervals overlap. Each is ahead of c." == found.sentence


def test_at_least_against_an_estimate_is_a_least_factor() -> None:
    """A search that never failed gives a lower bound, and so does the factor: 4 / 2.2."""
    found = decide([row("a", 4.0, bound="at_least"), row("b", 2.0, 1.8, 2.2)])
    assert "A wins: at least 1.82 times the goodput per GPU of b." == found.sentence


def test_two_open_ends_are_a_tie() -> None:
    """`at least 4` and `at least 5` may be equal."""
    assert "tie" == decide([row("a", 4.0, bound="at_least"), row("b", 5.0, bound="at_least")]).standing


def test_below_its_lowest_rate_is_no_measured_zero() -> None:
    """A runner-up that failed at its lowest rate, 1, is beaten by at least 1.8 / 1."""
    found = decide([row("a", 2.0, 1.8, 2.2), row("b", 1.0, bound="below")])
    assert "A wins: at least 1.8 times the goodput per GPU of b." == found.sentence


def test_an_invalid_measurement_never_wins() -> None:
    """It is named and left out, however high its figure."""
    found = decide([row("a", 9.0, 8.9, 9.1, validity="invalid"), row("b", 2.0, 1.8, 2.2)])
    assert ["b"] == found.leaders
    assert "B serves 2 requests/s per GPU (95 % interval 1.8 to 2.2). " in found.sentence
    assert found.sentence.endswith(" Nothing can be said of a: the measurement is invalid.")


@pytest.mark.parametrize("rows", [[], [row("a", None)], [row("a", 1.0, validity="invalid")]])
def test_nothing_usable_is_said_so(rows: list[DecisionRow]) -> None:
    """Without a usable row there is a sentence and no leader."""
    found = decide(rows)
    assert ("none", []) == (found.standing, found.leaders)
    assert found.sentence.startswith("No deployment")


def whole(label: str, rate: float, low: float, high: float) -> DecisionRow:
    found = GoodputEstimate(rate=rate, low=low, high=high, bound="estimate", runs=6)
    return DecisionRow(label=label, deployment="torch:chunked", gpus=None, goodput_per_s=found)


def test_deployments_without_gpus_are_compared_whole() -> None:
    """On a CPU there is nothing to divide by; beside a row with GPUs such a row is left out."""
    found = decide([whole("b", 2.0, 1.8, 2.2), whole("a", 4.0, 3.96, 4.4)])
    assert "A wins: 2 times the goodput of b (between 1.8 and 2.44)." == found.sentence
    mixed = decide([whole("a", 4.0, 3.96, 4.4), row("b", 2.0, 1.8, 2.2)])
    assert ["b"] == mixed.leaders
    assert mixed.sentence.endswith("The goodput per GPU of a is not known.")


def test_missing_intervals_count_as_points() -> None:
    """Figures without intervals are compared as they are, and no certainty is claimed."""
    assert "A wins: 2 times the goodput per GPU of b." == decide([row("a", 2.0), row("b", 1.0)]).sentence


INTERVAL = st.tuples(st.floats(0.1, 10), st.floats(0.5, 1.0), st.floats(1.0, 2.0))


@given(st.lists(INTERVAL, min_size=2, max_size=5))
def test_a_winner_is_above_every_other_interval(intervals: list[tuple[float, float, float]]) -> None:
    """Whoever wins has its whole interval above all others', and the factor's interval excludes 1."""
    rows = [row(str(i), rate, rate * low, rate * high) for i, (rate, low, high) in enumerate(intervals)]
    found = decide(rows)
    best, *rest = (r.goodput_per_gpu for r in found.rows)
    assert best is not None
    assert best.low is not None
    apart = all(other is not None and other.high is not None and other.high < best.low for other in rest)
    assert apart == (found.standing == "winner")
    if found.factor is not None:
        assert found.factor.low > 1


def test_an_invalid_live_run_does_not_spoil_goodput_from_the_virtual_clock() -> None:
    """A client that was too slow says nothing about a goodput that no client measured."""
    found = GoodputEstimate(rate=8.0, low=7.8, high=8.2, bound="estimate", runs=12)
    other = GoodputEstimate(rate=5.0, low=4.9, high=5.1, bound="estimate", runs=12)
    rows = [
        DecisionRow(
            label=label,
            deployment=label,
            gpus=1,
            goodput_per_gpu=rate,
            validity="invalid",
            goodput_from="virtual clock",
        )
        for label, rate in (("a", found), ("b", other))
    ]
    assert ("winner", ["a"]) == (decide(rows).standing, decide(rows).leaders)


def test_an_invalid_live_run_leaves_a_virtual_goodput_standing() -> None:
    """The ranking holds; the live figures beside it do not, and the sentence says which."""
    rows = [row("a", 3.0, 2.9, 3.1, validity="invalid", goodput_from="virtual clock"), row("b", 2.0, 1.8, 2.2)]
    found = decide(rows)
    assert ["a"] == found.leaders
    assert found.sentence.endswith("Do not use the live figures of a: that measurement is invalid.")
    assert "Nothing can be said" not in found.sentence
