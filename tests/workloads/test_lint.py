"""`lint`: what it finds, and that it finds nothing in a clean trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import traces
from workloads.formats import read_trace
from workloads.lint import lint
from workloads.trace import Rejected, Trace

REAL = Path(__file__).parents[3] / "shared" / "traces"
CHANCE = np.random.default_rng(1)


def clean(rows: int = 1000) -> Trace:
    arrival = np.cumsum(CHANCE.exponential(1e9, rows)).astype(np.int64)
    lengths = CHANCE.lognormal(5, 1, (2, rows)).astype(int) + 1
    return Trace("t", arrival - arrival[0], lengths[0], lengths[1])


def codes(trace: Trace, **options: int) -> list[str]:
    return [finding.code for finding in lint(trace, **options)]


def test_a_clean_trace() -> None:
    """Poisson arrivals and lognormal lengths are not suspicious."""
    assert [] == codes(clean())


@pytest.mark.parametrize("tick_ns", [10**9, 3 * 10**9, 60 * 10**9])
def test_a_quantised_clock(tick_ns: int) -> None:
    """Times on a grid of seconds, 3 s or minutes."""
    trace = clean()
    assert ["quantised_clock"] == codes(replace(trace, arrival_ns=trace.arrival_ns // tick_ns * tick_ns))


def test_a_truncation_atom() -> None:
    """Prompts cut at 300 tokens, with the share and the place in the evidence."""
    trace = clean()
    (found,) = lint(replace(trace, prompt_tokens=np.minimum(trace.prompt_tokens, 300)))
    assert ("truncation_atom", "prompt", 300) == (found.code, found.evidence["column"], found.evidence["high"])


def test_repeated_lengths() -> None:
    """A third of the rows are one and the same probe."""
    trace = clean()
    probe = np.arange(len(trace)) % 3 == 0
    same = replace(
        trace,
        prompt_tokens=np.where(probe, 77, trace.prompt_tokens),
        output_tokens=np.where(probe, 5, trace.output_tokens),
    )
    (found,) = lint(same)
    assert ("repeated_lengths", 77, 5) == (found.code, found.evidence["prompt"], found.evidence["output"])


def test_nearly_all_rows_in_one_burst() -> None:
    """A row a day before the others: scaled to a rate, all the others would come at once."""
    trace = clean()
    early = replace(trace, arrival_ns=np.where(np.arange(len(trace)) > 0, trace.arrival_ns + 86_400 * 10**9 * 10, 0))
    (found,) = lint(early)
    assert ("one_burst", 999, True) == (found.code, found.evidence["rows"], "999 of 1000 rows" in found.message)
    assert ["one_instant"] == codes(replace(trace, arrival_ns=np.zeros(len(trace))))[:1]
    assert "one_instant" not in codes(replace(trace, arrival_ns=np.zeros(len(trace)), warnings=("no_arrivals: x",)))


def test_long_pauses_are_no_burst() -> None:
    """An hour on Friday and one on Monday; nights; a quiet week."""
    trace = clean()
    for cut, pause_s in ((500, 60 * 3600), (850, 60 * 3600), (150, 7 * 86_400)):
        moved = trace.arrival_ns + np.where(np.arange(len(trace)) < cut, 0, pause_s * 10**9)
        assert [] == codes(replace(trace, arrival_ns=moved))


def test_what_reading_said() -> None:
    """Rejected rows by reason, and every warning under its own code; lengths without times are an error."""
    trace = replace(
        clean(), rejected=(Rejected(4, "number"), Rejected(9, "number")), warnings=("unsorted: x", "no_arrivals: y")
    )
    found = lint(trace)
    assert [("rejected", "warning"), ("unsorted", "note"), ("no_arrivals", "error")] == [
        (f.code, f.level) for f in found
    ]
    assert ({"number": 2}, True) == (found[0].evidence, "line 4" in found[0].message)


def test_not_sendable() -> None:
    """Rows beyond the target's context: some are a warning, all of them an error."""
    trace = clean()
    assert ["warning", "error"] == [lint(trace, max_tokens=size)[-1].level for size in (2000, 2)]
    assert "not_sendable" == codes(trace, max_tokens=2)[-1]


@given(traces())
def test_any_trace_can_be_linted(trace: Trace) -> None:
    """No crash on bursts, single rows, equal lengths."""
    assert all(str(finding).startswith(finding.code) for finding in lint(trace, max_tokens=100))


@pytest.mark.skipif(not REAL.is_dir(), reason="the traces are not beside the project")
def test_public_traces() -> None:
    """The caps that the description of the Azure traces names, and Mooncake's 3 s clock."""
    assert ["truncation_atom"] == codes(read_trace(REAL / "AzureLLMInferenceTrace_code.csv"))
    assert ["truncation_atom"] == codes(read_trace(REAL / "AzureLLMInferenceTrace_conv.csv"))
    assert ["quantised_clock"] == codes(read_trace(REAL / "mooncake_conversation_trace.jsonl.gz"))
    assert [] == codes(read_trace(REAL / "mooncake_synthetic_trace.jsonl.gz"))
