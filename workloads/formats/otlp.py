"""OTLP JSON: spans with `gen_ai.usage.*` attributes, one export per line (as collectors write) or one document.

A span has no line of its own: where a line number is asked for, it is the span's place in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from workloads.formats.columns import USUAL, Columns
from workloads.formats.mapped import RowReader
from workloads.formats.rows import RowSink
from workloads.formats.times import Times

NAME = "otlp-json"
MARK = "resourceSpans"
MAX_DOCUMENT = 1 << 28  # characters of one document that is spread over lines

UNIT = "ns"

_TIME = "startTimeUnixNano"
_MAP = Columns(time="time", prompt="prompt", output="output", session="session")
_SESSION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")


def read_spans(body: Iterable[tuple[int, str]], times: Times, sink: RowSink) -> None:
    """Read every span that carries token usage into the sink; the others are counted in a warning.

    Where a call inside a call carries usage too (an agent's span around a client's), only the inner one is a request.
    """
    spans = [dict(_described(span)) for export in _exports(body, sink) for span in _spans(export)]
    used = [(place, span) for place, span in enumerate(spans, 1) if "prompt" in span or "output" in span]
    outer = {span.get("parent") for _, span in used} - {None, ""}
    reader = RowReader(_MAP, times, sink)
    for place, span in used:
        if span.get("id") not in outer:
            reader.read(place, span)
    nested = sum(span.get("id") in outer for _, span in used)
    if len(spans) > len(used):
        sink.warnings.append(f"spans_without_usage: {len(spans) - len(used)} of {len(spans)} spans count no tokens")
    if nested:
        sink.warnings.append(f"nested_spans: {nested} spans around other calls were left out")


def _exports(body: Iterable[tuple[int, str]], sink: RowSink) -> Iterator[Any]:
    """The documents of the file: one a line, or all lines together."""
    lines = iter(body)
    _, first = next(lines)
    try:
        whole = msgspec.json.decode(first)
    except (msgspec.DecodeError, RecursionError):
        yield _document([first, *_capped(text for _, text in lines)])
        return
    yield whole
    for line, text in lines:
        try:
            yield msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            sink.reject(line, "json")


def _document(texts: list[str]) -> Any:
    try:
        return msgspec.json.decode("\n".join(texts))
    except (msgspec.DecodeError, RecursionError):
        return {}


def _capped(texts: Iterable[str]) -> Iterator[str]:
    left = MAX_DOCUMENT
    for text in texts:
        left -= len(text)
        if left < 0:
            return
        yield text


def _spans(export: Any) -> Iterator[Any]:
    for resource in _list(export, MARK):
        for scope in _list(resource, "scopeSpans"):
            yield from _list(scope, "spans")


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _described(span: Any) -> Iterator[tuple[str, Any]]:
    """A span as a row: time, counts, session, and who called it."""
    if not isinstance(span, dict):
        return
    attributes = [item for item in _list(span, "attributes") if isinstance(item, dict)]
    values = {item.get("key"): _value(item.get("value")) for item in attributes}
    kinds = {"prompt": USUAL["prompt"], "output": USUAL["output"], "session": _SESSION}
    for kind, names in kinds.items():
        found = next((values[name] for name in names if values.get(name) is not None), None)
        if found is not None:
            yield kind, found
    yield from (("time", span.get(_TIME)), ("id", span.get("spanId")), ("parent", span.get("parentSpanId")))


def _value(value: Any) -> Any:
    """An attribute's value, which carries its type: {"intValue": "12"}."""
    return next(iter(value.values()), None) if isinstance(value, dict) else None
