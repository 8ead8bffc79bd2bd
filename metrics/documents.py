"""The documents this program writes and prints, and their JSON schemas: one per `schema` key (docs/schema)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from metrics.compare import Comparison
from metrics.decision import Decision
from metrics.gate.noise import NoiseFloor
from metrics.gate.report import GateReport
from metrics.plan import PlanReport
from metrics.runinfo import RunInfo
from metrics.search import Found, SearchReport
from metrics.summary import Summary

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What `goodput demo --json` prints: the decision, and each arrangement's live run and search."""

    schema: str = "goodput.demo/1"
    decision: Decision
    runs: dict[str, Summary]
    searches: dict[str, Found]


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do about it."""

    code: str
    message: str
    hint: str | None = None


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What any command prints with `--json` when it cannot do what it was asked."""

    error: Wrong


# By the name of the file below docs/schema; the key `schema` of a document is goodput.NAME/1.
DOCUMENTS: Final[dict[str, type[msgspec.Struct]]] = {
    "comparison": Comparison,
    "decision": Decision,
    "demo": Demo,
    "error": ErrorDocument,
    "gate": GateReport,
    "noise": NoiseFloor,
    "plan": PlanReport,
    "run": RunInfo,
    "search": SearchReport,
    "summary": Summary,
}


def schema_of(name: str, kind: type[msgspec.Struct] | None = None) -> dict[str, Any]:
    """The JSON schema of one document, complete in itself; `kind` is that of one which is not listed here."""
    named = {"$schema": DIALECT, "$id": f"{name}.json", "title": f"goodput.{name}/1"}
    return named | msgspec.json.schema(kind or DOCUMENTS[name])
