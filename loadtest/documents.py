"""The documents that `--json` prints of what is known outside `metrics`: traces, calibrations and suggested targets."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from loadtest.calibrate import Bound, Fitted
from loadtest.search.reference import Suggestion
from metrics import documents
from workloads.catalog import Entry
from workloads.describe import TraceInfo
from workloads.lint import Finding
from workloads.model import Quality


class SuggestionDocument(Suggestion, frozen=True, kw_only=True):
    """What `goodput search` without `--slo` prints."""

    schema: str = "goodput.suggestion/1"


class FitWithBounds(msgspec.Struct, frozen=True):
    """A group's fit, and what its iterations do of the machine's peaks."""

    fit: Fitted
    bounds: list[Bound]


class CalibrationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput calibrate` prints."""

    schema: str = "goodput.calibration/1"
    warnings: list[str]
    fits: list[FitWithBounds]


class TraceInfoDocument(TraceInfo, frozen=True, kw_only=True):
    """What `goodput trace info` prints."""

    schema: str = "goodput.trace-info/1"


class RejectedLine(msgspec.Struct, frozen=True):
    """A row of a file that no request came of."""

    line: int
    reason: str


class TraceLint(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput trace lint` prints."""

    schema: str = "goodput.trace-lint/1"
    trace: str
    rows: int
    findings: list[Finding]
    rejected: list[RejectedLine]


class WrittenTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput trace convert`, `sample` and `synth` print of the file they wrote."""

    schema: str = "goodput.trace-written/1"
    file: str
    rows: int
    span_s: float
    content_hash: str
    rejected: dict[str, int]
    warnings: list[str]


class FittedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput trace fit` prints of the model it wrote."""

    schema: str = "goodput.trace-fit/1"
    model: str
    warnings: list[str]
    quality: Quality | None


class BuiltIn(msgspec.Struct, frozen=True):
    """A workload that needs no file."""

    name: str
    source: str


class PublicTrace(Entry, frozen=True, kw_only=True):
    """A trace of the catalogue; `file` is where it lies when it is here."""

    file: str | None = None


class TraceList(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput trace list` prints."""

    schema: str = "goodput.trace-list/1"
    built_in: list[BuiltIn]
    public: list[PublicTrace]


class FetchedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput trace fetch` prints; `pinned` when the catalogue knew the hash before."""

    schema: str = "goodput.trace-fetched/1"
    file: str
    licence: str
    citation: str
    sha256: str
    pinned: bool


# All of the program's; by the name of the file below docs/schema.
DOCUMENTS: Final[dict[str, type[msgspec.Struct]]] = documents.DOCUMENTS | {
    "calibration": CalibrationDocument,
    "suggestion": SuggestionDocument,
    "trace-fetched": FetchedTrace,
    "trace-fit": FittedTrace,
    "trace-info": TraceInfoDocument,
    "trace-lint": TraceLint,
    "trace-list": TraceList,
    "trace-written": WrittenTrace,
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON schema of one document, complete in itself."""
    return documents.schema_of(name, DOCUMENTS[name])
