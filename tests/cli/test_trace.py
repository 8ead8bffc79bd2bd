"""`goodput trace info`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode


def test_a_built_in_workload(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures as JSON and as text."""
    assert ExitCode.OK == run(["trace", "info", "azure-code", "--json"])
    assert 8819 == json.loads(capsys.readouterr().out)["rows"]
    assert ExitCode.OK == run(["trace", "info", "azure-code"])
    out = capsys.readouterr().out
    assert "8819" in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_file_with_broken_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left out is counted by reason."""
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,1,1\nyesterday,1,1\n")
    assert ExitCode.OK == run(["trace", "info", str(path), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert 1 == document["rows"]
    assert {"timestamp": 1} == document["rejected"]


def test_no_such_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and the names that exist."""
    assert ExitCode.USAGE == run(["trace", "info", "nope", "--json"])
    assert "azure-conv" in json.loads(capsys.readouterr().out)["error"]["message"]
