"""What `--json` of traces, calibrations and suggested targets prints fits the schema that is published for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode

FOLDER = Path(__file__).parent.parent / "docs" / "schema"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trace-info", ["trace", "info", "azure-conv"]),
        ("trace-lint", ["trace", "lint", "azure-conv"]),
        ("trace-list", ["trace", "list"]),
        ("trace-written", ["trace", "synth", "azure-conv", "--requests", "200", "--out", "OUT"]),
        ("trace-fit", ["trace", "fit", "IN", "--out", "OUT"]),
        ("suggestion", ["search", "--virtual", "--backend", "emulated:chunked,model=demo-8b"]),
        ("calibration", ["calibrate", "--model", "llama2-70b", "--hardware", "h100", "--tp", "8"]),
    ],
)
def test_a_printed_document_fits_its_published_schema(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file in docs/schema, not the struct, is what others rely on; the document names it."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with Altair")
    monkeypatch.chdir(tmp_path)
    if "IN" in words:
        run(["trace", "synth", "azure-conv", "--requests", "2000", "--out", "in.csv"])
        capsys.readouterr()
    places = {"IN": "in.csv", "OUT": "out.json" if name == "trace-fit" else "out.csv"}
    assert ExitCode.OK == run([*(places.get(word, word) for word in words), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert f"goodput.{name}/1" == document["schema"]
    validator = jsonschema.Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
    assert [] == [error.message for error in validator.iter_errors(document)]
