"""Token gaps around arrivals, against brute force and by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from metrics import tokengaps
from metrics.latency import is_ok
from metrics.records import EventTimes, Outcome, RecordTable, empty_rows


def table(token_s: list[list[float]], sent_s: list[float], prompts: list[int]) -> RecordTable:
    """Requests sent at `sent_s` whose tokens came at `token_s` (run time, seconds)."""
    rows = empty_rows(len(sent_s))
    rows["scheduled_s"] = rows["sent_s"] = sent_s
    rows["prompt_tokens"] = prompts
    rows["outcome"] = Outcome.OK
    rows["output_tokens"] = [len(t) for t in token_s]
    start = np.concatenate([[0], np.cumsum([len(t) for t in token_s])]).astype(np.int64)
    us = np.array([round((t - at) * 1e6) for ts, at in zip(token_s, sent_s, strict=True) for t in ts], dtype=np.uint32)
    ones = np.ones(len(us), dtype=np.uint16)
    return RecordTable(rows, EventTimes(start, us, ones, ones))


def steady(begin: float, gap: float, count: int) -> list[float]:
    return [begin + gap * i for i in range(count)]


def one_prompt_among_decodes() -> RecordTable:
    """Eight requests decode every 25 ms; at 2 s a prompt of 2,000 tokens stops them for 200 ms."""
    tokens = [t if t <= 2.0 else t + 0.2 for t in steady(0.1, 0.025, 160)]
    return table([*[tokens] * 8, [2.21, 2.235]], [0.0] * 8 + [2.0], [100] * 8 + [2000])


def test_the_worst_gap_is_the_stall_behind_the_long_prompt() -> None:
    """The stall is found with its length, its request, and the prompt that caused it."""
    found = one_prompt_among_decodes()
    worst = tokengaps.worst_gap(found, is_ok(found.rows))
    assert worst is not None
    assert pytest.approx(0.225, abs=1e-6) == worst.gap_s
    assert pytest.approx(2.225, abs=1e-6) == worst.ends_s
    assert (0, 2000) == (worst.request_id, worst.longest_prompt)
    assert [8] == [arrival.request_id for arrival in worst.arrivals]
    assert 0 < len(worst.token_s) <= tokengaps.MAX_STRIP_TOKENS


def test_only_the_long_prompt_is_taken_as_an_arrival() -> None:
    """The short prompts that came first do not blur the picture; before 25 ms, after up to 225 ms."""
    found = one_prompt_among_decodes()
    seen = tokengaps.interference(found, is_ok(found.rows))
    assert seen is not None
    assert seen.before is not None
    assert seen.after is not None
    assert 1 == seen.arrivals
    assert pytest.approx(0.025, abs=1e-6) == seen.before.max_s
    assert pytest.approx(0.225, abs=1e-6) == seen.after.max_s


@pytest.mark.parametrize("block", [7, 100, 1_000_000])
def test_interference_agrees_with_brute_force(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Every (arrival, gap) pair of different requests in the window is counted once, in the right bin."""
    monkeypatch.setattr(tokengaps, "BLOCK_EVENTS", block)
    rng = np.random.default_rng(3)
    sent = np.sort(rng.uniform(0, 20, 60)).tolist()
    tokens = [(at + 0.1 + np.cumsum(rng.exponential(0.05, rng.integers(1, 60)))).tolist() for at in sent]
    found = table(tokens, sent, rng.integers(10, 1000, 60).tolist())
    seen = tokengaps.interference(found, is_ok(found.rows))
    assert seen is not None
    long_ones = [i for i in range(60) if found.rows["prompt_tokens"][i] >= seen.min_prompt_tokens]
    alone = [i for n, i in enumerate(long_ones) if n == 0 or sent[i] - sent[long_ones[n - 1]] > tokengaps.BEFORE_S]
    assert seen.isolated
    assert len(alone) == seen.arrivals
    bins: dict[int, list[float]] = {}
    for arrival in alone:
        for i, ts in enumerate(tokens):
            for earlier, later in pairwise(ts):
                offset = later - sent[arrival]
                if i != arrival and -1 < offset < 2:
                    bins.setdefault(int((offset + 1) / seen.width_s), []).append(later - earlier)
    assert [len(bins.get(i, [])) for i in range(len(seen.n))] == pytest.approx(seen.n, abs=1)
    assert pytest.approx(max(max(gaps) for gaps in bins.values()), abs=2e-6) == max(m for m in seen.max_s if m)


def test_few_gaps_get_wide_bins_and_no_p99() -> None:
    """A p99 of a handful of gaps would be the maximum under another name."""
    found = table([steady(0.0, 0.05, 60), [1.2, 1.3]], [0.0, 1.0], [10, 500])
    seen = tokengaps.interference(found, is_ok(found.rows))
    assert seen is not None
    assert seen.width_s == 0.2
    assert {None} == set(seen.p99_s)


def test_thinning_bounds_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small allowance fewer arrivals are looked at, evenly spread."""
    sent = steady(0.0, 0.1, 100)
    found = table([steady(at, 0.02, 50) for at in sent], sent, [100] * 100)
    everything = tokengaps.interference(found, is_ok(found.rows))
    monkeypatch.setattr(tokengaps, "MAX_PAIRS", 4000)
    thinned = tokengaps.interference(found, is_ok(found.rows))
    assert everything is not None
    assert thinned is not None
    assert 0 < thinned.arrivals < everything.arrivals


def test_without_events_there_is_nothing_to_say() -> None:
    """A run whose token times were not kept has no gaps."""
    rows = one_prompt_among_decodes().rows
    assert tokengaps.interference(RecordTable(rows), is_ok(rows)) is None
    assert tokengaps.worst_gap(RecordTable(rows), is_ok(rows)) is None


def test_a_single_token_has_no_gap() -> None:
    """One token event makes no gap."""
    found = table([[0.2]], [0.0], [10])
    assert tokengaps.worst_gap(found, is_ok(found.rows)) is None
