"""OTLP JSON spans: exports a line or one document, usage under old and new names, calls inside calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workloads.formats import read_trace
from workloads.trace import Rejected, Trace

OLD = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens")
NEW = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")


def span(at_ns: Any, prompt: Any, output: Any, names: tuple[str, str] = NEW, **more: Any) -> dict[str, Any]:
    values = {names[0]: {"intValue": prompt}, names[1]: {"intValue": output}} | more.pop("also", {})
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    return {"startTimeUnixNano": at_ns, "attributes": attributes, **more}


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def read(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "spans.json"
    path.write_text(text)
    return read_trace(path)


@pytest.mark.parametrize("indent", [None, 2])
def test_one_document_or_a_line_each(tmp_path: Path, indent: int | None) -> None:
    """Both forms, 64-bit integers as text or as numbers, both generations of names, a conversation's id."""
    chat = {"gen_ai.conversation.id": {"stringValue": "c1"}}
    first = span("1700000000000000000", "10", "2", also=chat)
    second = span(1_700_000_000_500_000_000, 20, 4, OLD, also=chat)
    if indent is None:
        text = "\n".join(json.dumps(export(one)) for one in (first, second))
    else:
        text = json.dumps(export(first, second), indent=indent)
    trace = read(tmp_path, text)
    assert ([0, 500_000_000], [10, 20], [2, 4]) == (
        trace.arrival_ns.tolist(),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
    )
    assert trace.session is not None
    assert (1_700_000_000_000_000_000, [0, 0]) == (trace.origin_ns, trace.session.tolist())


def test_spans_that_are_no_requests(tmp_path: Path) -> None:
    """Spans without usage are counted, a span around another call is left out, half a usage is rejected."""
    outer = span("1700000000000000000", "99", "9", spanId="a")
    inner = span("1700000000000000001", "10", "2", spanId="b", parentSpanId="a")
    half = {"startTimeUnixNano": "1700000000000000002", "attributes": [{"key": NEW[0], "value": {"intValue": "1"}}]}
    trace = read(tmp_path, json.dumps(export(outer, inner, {"name": "GET"}, half)))
    assert [10] == trace.prompt_tokens.tolist()
    assert (Rejected(4, "columns"),) == trace.rejected
    assert ["spans_without_usage", "nested_spans"] == [warning.split(":")[0] for warning in trace.warnings]


def test_a_torn_line(tmp_path: Path) -> None:
    """A line that was cut is rejected with its number."""
    text = json.dumps(export(span("1700000000000000000", 1, 1))) + '\n{"resourceSpans": [{"sc\n'
    assert (Rejected(2, "json"),) == read(tmp_path, text).rejected
