"""Findings about what came back: each fires where it must, and stays silent where nothing contradicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metrics.records import EventTimes, Flag, Outcome, RecordTable, Rows, WorkerStats
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO
from metrics.validity import Finding, assess
from tests.metrics.rows import ok_rows, ragged


def findings(
    rows: Rows, events: EventTimes | None = None, keys: tuple[str, ...] = (), **server: Any
) -> dict[str, Finding]:
    workers = [WorkerStats(worker=0, unknown_text_keys=list(keys))]
    run = Run(RunInfo(state="complete", server=server), RecordTable(rows, events, workers=workers))
    validity = assess(run, SLO(ttft_s=1.0))
    assert ("warning" if validity.findings else "valid") == validity.verdict
    return {finding.code: finding for finding in validity.findings}


def test_an_unknown_key_is_named() -> None:
    """Two of four answers, with the path as the worker recorded it."""
    rows = ok_rows([0.1] * 4, flags=[0, Flag.UNKNOWN_TEXT_KEY, 0, Flag.UNKNOWN_TEXT_KEY])
    found = findings(rows, keys=("delta.thoughts[].text",))
    assert {"unknown_text_key"} == set(found)
    assert "2 of 4 requests had text under delta.thoughts[].text" in found["unknown_text_key"].message


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"flags": Flag.USAGE_OVER_TEXT | Flag.HIDDEN_TOKENS}, "usage_over_text"),
        ({"flags": Flag.USAGE_CONTRADICTION}, "usage_contradiction"),
        ({"output_tokens": 3, "token_events": 33}, "usage_under_events"),
        ({"output_tokens": 20, "token_events": 25}, "usage_under_events"),
        ({"output_tokens": 20, "token_events": 24}, None),  # 10 % and 2 more
        ({"output_tokens": 1, "token_events": 3}, None),
        ({"output_tokens": 40, "token_events": 10}, None),  # several tokens in an event
        ({"output_tokens": 12, "token_events": 2, "hidden_tokens": 10, "flags": Flag.HIDDEN_TOKENS}, None),
        ({"outcome": Outcome.TIMEOUT, "output_tokens": 3, "token_events": 33}, "failures"),
    ],
)
def test_usage_against_events(columns: dict[str, Any], code: str | None) -> None:
    """Too many for the text, too few for the events, and no sum of its parts."""
    assert ({code} if code else set()) == set(findings(ok_rows([0.1] * 5, **columns)))


def test_how_far_tpot_is_off_when_the_first_event_holds_several_tokens() -> None:
    """4 of 10 tokens in the first event: the time is that of 6 gaps and is divided by 9, a third too low."""
    rows = ok_rows([0.1] * 4, tokens=10, flags=[Flag.FIRST_EVENT_TOKENS, Flag.FIRST_EVENT_TOKENS, 0, 0])
    events = ragged([[1000 * i for i in range(7)]] * 4)
    events.tokens[[0, 7]] = 4, 2
    found = findings(rows, events)["first_event_tokens"]
    assert {"count": 2, "tokens_mean": 3.0, "too_low_max": 3 / 9} == {
        name: found.evidence[name] for name in ("count", "tokens_mean", "too_low_max")
    }
    assert pytest.approx((3 / 9 + 1 / 9) / 2) == found.evidence["too_low_median"]


def test_two_tokens_of_four_hundred_are_no_finding() -> None:
    """A quarter of a percent of TPOT."""
    rows = ok_rows([0.1] * 2, tokens=400, flags=Flag.FIRST_EVENT_TOKENS)
    events = ragged([[0, 1000]] * 2)
    events.tokens[[0, 2]] = 2
    assert {} == findings(rows, events)


@pytest.mark.parametrize(
    ("served", "form", "fires"),
    [
        ([1000, 1000, 1000], "ids", False),
        ([1001, 1001, 1001], "ids", False),  # a start token
        ([1001, 1000, 1000], "ids", True),
        ([1003, 1003, 1003], "ids", True),
        ([999, 1000, 1001], "ids", True),  # the sums agree
        ([1000, 1000, -1], "ids", False),  # the server did not say
        ([1003, 1003, 1003], "text", False),  # within the 1 % of words
        ([1020, 1020, 1020], "text", True),
    ],
)
def test_prompts_sent_as_ids_are_counted_exactly(served: list[int], form: str, fires: bool) -> None:
    """No allowance where it is known how many tokens were sent."""
    rows = ok_rows([0.1] * 3, prompt_tokens=1000, served_prompt_tokens=served)
    assert fires == ("prompt_count_mismatch" in findings(rows, prompt_form=form))


def test_the_prefix_cache_is_told_with_its_share() -> None:
    """80 of 100 prompt tokens each."""
    rows = ok_rows([0.1] * 10, prompt_tokens=100)
    assert "(80%)" in findings(rows, prefix_cache_hits=800)["prefix_cache"].message
    assert {} == findings(rows, prefix_cache_hits=10)


def test_rows_of_the_warm_up_are_not_looked_at() -> None:
    """Evidence is about the requests that results are about."""
    rows = ok_rows([0.1] * 4, flags=Flag.USAGE_OVER_TEXT)
    rows["warmup"] = True
    rows["warmup"][3] = False
    rows["flags"][3] = 0
    assert {} == findings(rows)
    assert np.count_nonzero(rows["flags"]) == 3
