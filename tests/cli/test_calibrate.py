"""`goodput calibrate` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.backends.perfmodel import load_perf_model
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from tests.test_calibrate import star, table


def test_a_table_becomes_text_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Coefficients, errors, what binds; the file is a model to deploy."""
    path, out = table(tmp_path / "t.csv", star()), tmp_path / "mine.json"
    assert ExitCode.OK == run(["calibrate", "--csv", str(path), "--out", str(out)])
    printed = capsys.readouterr().out
    for piece in (
        "llama2-70b, h100, tp 8",
        "a 53.82",
        "beta 0.2822",
        "13 points",
        "4-norm",
        "bound by",
        "TFLOP/s",
        "TB/s",
    ):
        assert piece in printed
    assert load_perf_model(str(out), "h100", 8).profile.measured


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fits and bounds for machines."""
    assert ExitCode.OK == run(["calibrate", "--csv", str(table(tmp_path / "t.csv", star())), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert 13 == document["fits"][0]["fit"]["prefill_points"]
    assert "prefill 2048" in {bound["what"] for bound in document["fits"][0]["bounds"]}


def test_a_model_and_a_gpu_alone_are_the_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    """Marked as not measured, in the result and on stderr."""
    assert ExitCode.OK == run(["calibrate", "--model", "llama2-70b", "--hardware", "mi300x", "--tp", "4"])
    printed = capsys.readouterr()
    assert "llama2-70b, mi300x, tp 4, not measured" in printed.out
    assert "not measured: the unified roofline" in printed.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--csv", "x.csv", "--target", "http://localhost:1"],
        ["--csv", "missing.csv"],
        ["--model", "llama2-70b", "--hardware", "abacus"],
        ["--csv", "x.csv", "--out", "model.txt"],
    ],
)
def test_what_cannot_be_done_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and one sentence."""
    assert ExitCode.USAGE == run(["calibrate", *words])
    assert capsys.readouterr().err.startswith("goodput: ")
