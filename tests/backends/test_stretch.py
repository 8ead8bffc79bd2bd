from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.backends.stretch import Stretch

stretches = st.builds(Stretch, st.floats(0, 1e5), st.floats(1e-4, 1.0), st.floats(0, 1e-4), st.integers(1, 3000))


@given(stretches)
def test_the_closed_form_is_the_sum_of_the_iterations(stretch: Stretch) -> None:
    """k iterations take first, first + step, first + 2 step, ... together."""
    total = 0.0
    for iteration in range(stretch.iterations):
        total += stretch.first_s + iteration * stretch.step_s
    assert total == pytest.approx(stretch.lasts(stretch.iterations), rel=1e-9)


@given(stretches, st.data())
def test_what_is_over_is_what_has_ended(stretch: Stretch, data: st.DataObject) -> None:
    """Counting inverts the closed form, at the very ends of iterations too."""
    k = data.draw(st.integers(1, stretch.iterations))
    assert stretch.over(stretch.end(k)) >= k
    between = data.draw(st.floats(stretch.start, stretch.end(stretch.iterations)))
    count = stretch.over(between)
    assert count == 0 or stretch.end(count) <= between
    assert count == stretch.iterations or stretch.end(count + 1) > between


def test_nothing_is_over_before_it_began() -> None:
    """An instant before the start is no error."""
    assert 0 == Stretch(10.0, 0.1, 0.0, 5).over(3.0)
