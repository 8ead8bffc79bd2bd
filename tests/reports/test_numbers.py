"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import numbers


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("59.0 µs", 59e-6),
        ("1.00 ms", 0.99999e-3),
        ("213 ms", 0.2134),
        ("1.00 s", 0.99999),
        ("12.3 s", 12.345),
        ("599 s", 599.2),
        ("10.0 min", 600.0),
        ("0 ms", 0.0),
    ],
)
def test_seconds_choose_their_unit(expected: str, value: float) -> None:
    """Three significant digits and the unit that reads best."""
    assert expected == numbers.seconds(value).replace(numbers.THIN, " ")


def test_chosen_limits_have_no_needless_places() -> None:
    """A target is printed as it was given."""
    assert "200 ms" == numbers.seconds(0.2, trim=True).replace(numbers.THIN, " ")
    assert "99.9 %" == numbers.target(0.999).replace(numbers.THIN, " ")


def test_nothing_is_a_dash() -> None:
    """What was not measured is never a zero."""
    assert [numbers.NOTHING] * 3 == [numbers.seconds(None), numbers.percent(None), numbers.rate(None)]


def test_a_share_just_below_its_limit_never_rounds_onto_it() -> None:
    """8,997 of 10,000 is not `90.0 %`, 99,999 of 100,000 is not `100 %`."""
    assert "89.97 %" == numbers.percent(0.8997, 0.9).replace(numbers.THIN, " ")
    assert "99.999 %" == numbers.percent(0.99999).replace(numbers.THIN, " ")
    assert "100 %" == numbers.percent(1.0).replace(numbers.THIN, " ")


@given(st.integers(0, 20_000), st.integers(1, 20_000), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_printed_share_is_on_the_side_of_its_limit(good: int, total: int, limit: float) -> None:
    """What is read agrees with the verdict whenever four decimal places can tell them apart."""
    share = min(good, total) / total
    shown = float(numbers.percent(share, limit).split(numbers.THIN)[0])
    if abs(share - limit) > 1e-6:
        assert (share >= limit) == (shown >= limit * 100)


@given(st.floats(1e-9, 1e12))
def test_digits_keep_three_and_no_exponent(value: float) -> None:
    """Within half a per cent, thousands separated, never `1e+06`."""
    text = numbers.digits(value)
    assert "e" not in text
    assert pytest.approx(value, rel=0.0051) == float(text.replace(",", ""))


def test_a_span_names_its_unit_once() -> None:
    """`28.4 to 28.9 ms`, but both units where they differ."""
    assert "28.4 to 28.9 ms" == numbers.span(0.0284, 0.0289).replace(numbers.THIN, " ")
    assert "900 ms to 1.20 s" == numbers.span(0.9, 1.2).replace(numbers.THIN, " ")
