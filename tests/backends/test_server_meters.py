"""Histograms against a count by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.backends.server import meters
from loadtest.backends.server.engine import Spans
from loadtest.backends.server.meters import Histogram, Meters

BOUNDS = (0.1, 0.5, 1.0)


def samples(histogram: Histogram) -> dict[str, float]:
    """Sample by bound, sum and count."""
    family = histogram.family({"engine": "0"})
    return {sample.labels.get("le") or sample.name: sample.value for sample in family.samples}


@given(st.lists(st.one_of(st.floats(0, 2), st.sampled_from(BOUNDS))))
def test_buckets_count_what_is_at_or_below_each_bound(values: list[float]) -> None:
    """Prometheus' rule: le means less or equal, buckets are cumulative."""
    histogram = Histogram("h", "", BOUNDS)
    for value in values:
        histogram.observe(value)
    found = samples(histogram)
    for bound in BOUNDS:
        assert sum(value <= bound for value in values) == found[str(bound)]
    assert len(values) == found["+Inf"] == found["h_count"]
    assert sum(values) == pytest.approx(found["h_sum"])


def test_reading_the_page_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values folded early, when many have gathered, are neither lost nor counted again."""
    monkeypatch.setattr(meters, "_GATHER", 3)
    histogram = Histogram("h", "", BOUNDS)
    for _ in range(7):
        histogram.observe(0.2)
    assert 7 == samples(histogram)["h_count"] == samples(histogram)["0.5"]


def test_spans_that_never_were_are_not_observed() -> None:
    """A colocated request has no transfer."""
    kept = Meters()
    kept.spans(Spans(0.1, 0.2, float("nan"), 0.3))
    kept.spans(Spans(0.1, 0.2, 0.0, 0.3))
    assert [2, 2, 0, 2] == [
        samples(histogram)[f"{histogram.name}_count"]
        for histogram in (kept.queue, kept.prefill, kept.transfer, kept.decode)
    ]


def test_all_histograms_are_on_the_page() -> None:
    """Names are distinct, as an exposition needs."""
    names = [histogram.name for histogram in Meters().histograms()]
    assert len(names) == len(set(names)) == 12
