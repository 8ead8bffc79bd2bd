"""`goodput trace`: look, make, fetch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode
from workloads import catalog


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


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def azure(path: Path, second: int, rows: int = 150) -> str:
    lines = (f"2023-11-16 18:{second // 60 + i // 60:02}:{i % 60:02}.{i:03},{100 + i},{5 + i % 7}" for i in range(rows))
    path.write_text(AZURE + "\n".join(lines))
    return str(path)


def test_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the terminal within 80 columns, and as an HTML file that fetches nothing."""
    path = azure(tmp_path / "t.csv", 0)
    page = tmp_path / "t.html"
    assert ExitCode.OK == run(["trace", "info", path, "--plot", "--html", str(page)])
    out = capsys.readouterr().out
    assert "█" in out
    assert max(map(len, out[out.index("Arrivals") :].splitlines())) <= 80
    html = page.read_text()
    assert 3 == html.count("<svg")
    assert "150 requests in" in html
    assert "http" not in html.replace("http://www.w3.org", "")
    assert ExitCode.OK == run(["trace", "info", path, "--plot", "--json"])
    assert 150 == json.loads(capsys.readouterr().out)["rows"]


def test_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings with level and code; exit 1 when no run can come of it."""
    path = azure(tmp_path / "t.csv", 0)
    assert ExitCode.OK == run(["trace", "lint", path])
    assert "nothing suspicious" in capsys.readouterr().out
    assert ExitCode.FAILED == run(["trace", "lint", path, "--context", "50", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ["not_sendable"] == [finding["code"] for finding in document["findings"]]


def test_convert_merges_on_absolute_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files become one, each an SLO class; the result reads like any trace; nothing is overwritten."""
    out = tmp_path / "both.csv.gz"
    words = ["trace", "convert", azure(tmp_path / "a.csv", 0), azure(tmp_path / "b.csv", 60), "--class-per-file"]
    assert ExitCode.OK == run([*words, "-o", str(out), "--json"])
    assert 300 == json.loads(capsys.readouterr().out)["rows"]
    assert ExitCode.OK == run(["trace", "info", str(out), "--json"])
    assert 209.149 == pytest.approx(json.loads(capsys.readouterr().out)["span_s"])
    assert ExitCode.USAGE == run([*words, "-o", str(out), "--json"])
    assert "output_exists" == json.loads(capsys.readouterr().out)["error"]["code"]


def test_fit_and_synth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model with its quality beside the floor, and a trace generated from it."""
    model, out = tmp_path / "m.json", tmp_path / "made.csv"
    assert ExitCode.OK == run(["trace", "fit", azure(tmp_path / "t.csv", 0), "-o", str(model)])
    text = capsys.readouterr().out
    assert "floor" in text
    assert "prompt tokens" in text
    assert ExitCode.OK == run(
        ["trace", "synth", str(model), "--rate", "2", "--duration", "30s", "-o", str(out), "--json"]
    )
    assert 60 == json.loads(capsys.readouterr().out)["rows"]


def test_synth_from_a_metrics_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a trace, or as a model when the name says so."""
    page = tmp_path / "metrics"
    names = ("vllm:request_prompt_tokens", "vllm:request_generation_tokens")
    page.write_text("".join(f'{name}_bucket{{le="100"}} 7\n{name}_bucket{{le="+Inf"}} 9\n' for name in names))
    words = ["trace", "synth", "--from-prometheus", str(page), "--rate", "3", "-o"]
    assert ExitCode.OK == run([*words, str(tmp_path / "t.csv"), "--json"])
    assert 9 == json.loads(capsys.readouterr().out)["rows"]
    assert ExitCode.OK == run([*words, str(tmp_path / "m.json")])
    assert 3.0 == json.loads((tmp_path / "m.json").read_text())["mean_rate_per_s"]
    assert ExitCode.USAGE == run([*words[:4], "azure-code", "-o", "x"])


def test_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So many rows, the same for the same seed."""
    path = azure(tmp_path / "t.csv", 0)
    hashes = []
    for name in ("a.csv", "b.csv"):
        assert ExitCode.OK == run(["trace", "sample", path, "20", "-o", str(tmp_path / name), "--json"])
        hashes.append(json.loads(capsys.readouterr().out)["content_hash"])
    assert hashes[0] == hashes[1]


def test_list_and_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every trace with its licence; without network exit 5 and what to do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    assert ExitCode.OK == run(["trace", "list"])
    assert "CC-BY-4.0" in capsys.readouterr().out
    assert ExitCode.OK == run(["trace", "list", "--json"])
    assert None is json.loads(capsys.readouterr().out)["public"][0]["file"]
    assert ExitCode.TARGET == run(["trace", "fetch", "azure-2023-code", "--url", "http://127.0.0.1:1/x", "--json"])
    assert "no_network" == json.loads(capsys.readouterr().out)["error"]["code"]
    assert ExitCode.USAGE == run(["trace", "fetch", "azure-2023-codd"])


def test_spread_ticks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag is the step, and the trace says which mode was used."""
    path = tmp_path / "m.jsonl"
    row = '{{"timestamp": {}, "input_length": 5, "output_length": 2}}\n'
    path.write_text("".join(row.format(3000 * (i // 5)) for i in range(50)))
    for flags, codes in ((["--spread-ticks"], ["spread_ticks"]), ([], [])):
        assert ExitCode.OK == run(["trace", "info", str(path), *flags, "--json"])
        assert codes == [word.split(":")[0] for word in json.loads(capsys.readouterr().out)["warnings"]]


def test_how_a_file_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Format, unit and block size with who decided them, in text and JSON, of a trace and of a plan."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n')
    said = "mooncake-jsonl (evidence), times in s (stated), blocks of 512 tokens (format)"
    words = [["trace", "info", str(path)], ["run", "--dry-run", "--trace", str(path)]]
    for command in words:
        assert ExitCode.OK == run([*command, "--time-unit", "s"])
        assert said in capsys.readouterr().out
        assert ExitCode.OK == run([*command, "--time-unit", "s", "--json"])
        reading = json.loads(capsys.readouterr().out)["reading"]
        assert ("s", "stated", 512, "format") == tuple(
            reading[key] for key in ("time_unit", "time_unit_by", "block_tokens", "block_tokens_by")
        )
    assert ExitCode.OK == run(["run", "--dry-run", "--requests", "5"])
    assert "reading" not in capsys.readouterr().out
    path.write_text('{"timestamp": 1787000000.25, "input_length": 600, "output_length": 5}\n')
    for command in words:
        assert ExitCode.USAGE == run(command)
        assert "--time-unit s" in capsys.readouterr().err


def test_a_row_decades_away_is_said_before_sending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """lint, info and a plan name it, and the rest is replayed as it was."""
    path = tmp_path / "t.csv"
    azure(path, 0)
    path.write_text(path.read_text() + "\n1970-01-01 00:00:00,9,9\n")
    for command in (
        ["trace", "lint", str(path)],
        ["trace", "info", str(path)],
        ["run", "--dry-run", "--trace", str(path)],
    ):
        assert ExitCode.OK == run(command)
        assert "line 152 (1970-01-01 00:00:00) stands 53.9 years from the other 150 rows" in capsys.readouterr().out


def test_a_trace_without_a_known_hash_needs_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused without --unverified; the list marks exactly those."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["trace", "fetch", "azure-2024-code", "--url", "http://127.0.0.1:1/x"]
    assert ExitCode.USAGE == run(words)
    assert "the catalogue has no SHA-256 for azure-2024-code" in capsys.readouterr().err
    assert ExitCode.TARGET == run([*words, "--unverified"])
    capsys.readouterr()
    assert ExitCode.OK == run(["trace", "list"])
    listed = capsys.readouterr().out.splitlines()
    marked = {line.split()[0] for line in listed if line.endswith(", no hash)")}
    assert {entry.name for entry in catalog.entries() if entry.sha256 is None} == marked
    assert 5 == len(marked)
