"""The summary and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.records import Outcome, RecordTable, WorkerStats
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO
from metrics.summary import Summary, summarise, summary_schema
from tests.golden import differences
from tests.metrics.rows import ok_rows, ragged, run_of

SCHEMA = Path(__file__).parent / "summary_keys.json"
TARGETS = SLO(ttft_s=0.2, tpot_s=0.05)


def strict(summary: Summary) -> dict[str, Any]:
    """The document as a strict JSON reader sees it."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    document: dict[str, Any] = json.loads(msgspec.json.encode(summary), parse_constant=refuse)
    return document


def test_summary_of_a_small_run() -> None:
    """Every part, worked out by hand: four rows, one warm-up, one 429, one late first token."""
    rows = ok_rows([0.1, 0.1, 0.3, 0.1], warmup=[True, False, False, False], prompt_tokens=60, max_tokens=11)
    rows["outcome"][3], rows["http_status"][3], rows["error_id"][3] = Outcome.HTTP_ERROR, 429, 0
    rows["served_prompt_tokens"] = [60, 60, 61, -1]
    rows["reconnects"] = [1, 0, 1, 0]
    events = ragged([[100_000, 120_000], [100_000, 130_000, 150_000], [300_000, 320_000], []])
    table = RecordTable(
        rows, events, ["slow down"], [WorkerStats(worker=0, connections_opened=3, connections_reused=1)]
    )
    got = summarise(Run(RunInfo(state="complete", gpus=2), table), TARGETS)
    assert {"ok": 3, "http_429": 1} == got.requests.by_outcome
    assert (4, 4, 1, 3) == (got.requests.planned, got.requests.sent, got.requests.in_warmup, got.requests.counted)
    assert got.attainment is not None
    assert (1, 3, False) == (got.attainment.good, got.attainment.total, got.attainment.meets)
    assert got.ttft_s is not None
    assert pytest.approx((2, 0.2)) == (got.ttft_s.n, got.ttft_s.mean)
    assert got.itl_s is not None
    assert (3, 0.03) == (got.itl_s.n, got.itl_s.max)
    assert got.second_token_gap_s is not None
    assert (2, 0.025) == (got.second_token_gap_s.n, got.second_token_gap_s.mean)
    assert (180, 121, 33, 22) == (
        got.tokens.prompt_planned,
        got.tokens.prompt_served,
        got.tokens.output_asked,
        got.tokens.output_got,
    )
    assert (3, 1, 1) == (got.connections.opened, got.connections.reused, got.connections.reconnected)
    assert [("http_429", "slow down", 1)] == [(e.outcome, e.text, e.count) for e in got.errors]
    assert ["failures"] == [f.code for f in got.validity.findings]


def test_an_empty_run_and_an_all_failed_run_end_with_a_report() -> None:
    """null where nothing is known, never NaN; all failed is an attainment of 0."""
    empty = strict(summarise(run_of(ok_rows([])), TARGETS))
    assert (None, None, "invalid") == (empty["ttft_s"], empty["attainment"]["share"], empty["validity"]["verdict"])
    failed = ok_rows([np.nan] * 3, outcome=Outcome.CONNECTION_LOST, done_s=[0.5, 1.5, 2.5])
    document = strict(summarise(run_of(failed, ragged([[], [], []])), TARGETS))
    assert (0.0, None, 0.0) == (
        document["attainment"]["share"],
        document["ttft_s"],
        document["rates"]["slo_throughput_per_s"],
    )


def test_without_an_slo_there_is_no_attainment() -> None:
    """Everything else is there."""
    got = summarise(run_of(ok_rows([0.1])))
    assert got.attainment is None
    assert got.ttft_s is not None


@given(st.lists(st.sampled_from(list(Outcome)), max_size=30), st.floats(0, 40) | st.none())
def test_outcomes_sum_to_planned_and_the_document_is_strict(outcomes: list[Outcome], stop: float | None) -> None:
    """Whatever happened to the rows."""
    rows = ok_rows([0.1] * len(outcomes), outcome=outcomes)
    rows["sent_s"][rows["outcome"] == Outcome.NOT_SENT] = np.nan
    document = strict(summarise(run_of(rows, stopped_at_s=stop), TARGETS))
    assert len(outcomes) == sum(document["requests"]["by_outcome"].values())
    assert {"n", "mean", "p50", "p90", "p99", "max"} <= set(
        document["e2e_s"] or {"n", "mean", "p50", "p90", "p99", "max"}
    )


def test_a_summary_reads_back() -> None:
    """The document decodes into the same summary: reports can be made from it."""
    summary = summarise(run_of(ok_rows([0.1] * 3), ragged([[1, 2]] * 3)), TARGETS)
    assert summary == msgspec.json.decode(msgspec.json.encode(summary), type=Summary)


def test_keys_of_the_schema_are_stable() -> None:
    """Scripts depend on these keys: a change must be meant, and edited into summary_keys.json by hand."""
    schema = summary_schema()
    keys = {name: sorted(part["properties"]) for name, part in schema["$defs"].items() if "properties" in part}
    assert [] == differences(json.loads(SCHEMA.read_text()), keys)
    assert schema["$ref"] == "#/$defs/Summary"
