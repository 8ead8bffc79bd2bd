"""Every document fits the schema that is published for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtest.documents import DOCUMENTS, schema_of
from metrics.documents import ErrorDocument, Wrong
from metrics.summary import summarise
from tests.reports import samples
from tests.reports.gates import gate_report

FOLDER = Path(__file__).parent.parent.parent / "docs" / "schema"


def made(name: str) -> Any:
    """A document of each kind that the report tests make."""
    run = samples.run(requests=30, failures=0.1)
    makers = {
        "summary": lambda: summarise(run, samples.TARGETS),
        "run": lambda: run.info,
        "decision": lambda: samples.demo_page(requests=20).decision,
        "search": lambda: samples.search_page().search,
        "plan": lambda: samples.plan_page().plan,
        "comparison": lambda: samples.comparison_page().comparison,
        "gate": lambda: gate_report("FAIL"),
        "error": lambda: ErrorDocument(error=Wrong(code="no_slo", message="a plan needs an SLO")),
    }
    return msgspec.to_builtins(makers[name]())


@pytest.mark.parametrize("name", ["summary", "run", "decision", "search", "plan", "comparison", "gate", "error"])
def test_a_document_fits_its_published_schema(name: str) -> None:
    """The file in docs/schema, not the struct, is what others rely on."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with Altair")
    validator = jsonschema.Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
    assert [] == [error.message for error in validator.iter_errors(made(name))]


def test_a_wrong_document_does_not_fit() -> None:
    """The schemas do not let everything through."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with Altair")
    document = made("summary")
    document["requests"]["planned"] = "many"
    assert [] != list(jsonschema.Draft202012Validator(schema_of("summary")).iter_errors(document))


def test_each_struct_names_the_schema_it_is_published_under() -> None:
    """`schema` in a document is how a reader finds the file."""
    named = {name: kind for name, kind in DOCUMENTS.items() if "schema" in kind.__struct_fields__}
    assert {"error"} == DOCUMENTS.keys() - named.keys()
    for name, kind in named.items():
        assert f"goodput.{name}/1" == schema_of(name)["$defs"][kind.__name__]["properties"]["schema"]["default"]
