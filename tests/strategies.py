"""Hypothesis strategies for the nouns of this project; a new noun brings its strategy here."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from hypothesis import strategies as st

from workloads.trace import Prefix, Trace

tokens = st.integers(1, 20_000)
salts = st.text("0123456789abcdef", min_size=2, max_size=16)
seeds = st.integers(0, 2**63 - 1)


@st.composite
def arrivals_ns(draw: st.DrawFn, min_rows: int = 1, max_rows: int = 40) -> list[int]:
    """Nanoseconds from the first row, in order; bursts (equal instants) and long pauses included."""
    gap = st.one_of(st.just(0), st.integers(1, 1_000), st.integers(1, 10**10))
    gaps = draw(st.lists(gap, min_size=min_rows - 1, max_size=max_rows - 1))
    return [0, *accumulate(gaps)]


@st.composite
def traces(draw: st.DrawFn, min_rows: int = 1, max_rows: int = 40) -> Trace:
    """Traces with and without sessions and shared prefixes."""
    arrival = draw(arrivals_ns(min_rows, max_rows))
    rows = len(arrival)

    def column(elements: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(elements, min_size=rows, max_size=rows)))

    lengths = column(st.integers(0, 4)) if draw(st.booleans()) else None
    return Trace(
        name="drawn",
        arrival_ns=np.array(arrival),
        prompt_tokens=column(tokens),
        output_tokens=column(tokens),
        session=column(st.integers(-1, 5)) if draw(st.booleans()) else None,
        turn=column(st.integers(-1, 9)) if draw(st.booleans()) else None,
        slo_class=column(st.integers(0, 3)) if draw(st.booleans()) else None,
        origin_ns=draw(st.one_of(st.none(), st.integers(10**18, 2 * 10**18))),
        prefix=None if lengths is None else Prefix(np.append(0, np.cumsum(lengths)), np.arange(lengths.sum()) % 7),
        line=np.arange(2, rows + 2),
    )


@st.composite
def timelines(draw: st.DrawFn, max_events: int = 40) -> list[int]:
    """Token-event times of one request: microseconds since it was sent, never going back, some equal."""
    first = draw(st.integers(0, 5_000_000))
    gaps = draw(st.lists(st.one_of(st.just(0), st.integers(1, 200_000)), max_size=max_events - 1))
    return [first, *accumulate(gaps, initial=first)][1:]
