"""`goodput compare` from the outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode, TargetError

A, B = "emulated:chunked,model=demo-8b", "emulated:colocated,model=demo-8b"
LOAD = ["--virtual", "--slo", "ttft=500ms,tpot=20ms", "--rate", "4", "--requests", "40"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is written below the test's own folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_deployments_are_measured_and_compared(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON document, the same as comparison.json; the runs and a page beside it."""
    assert ExitCode.OK == run(["compare", A, B, f"{B},instances=2", *LOAD, "--pairs", "2", "--out", "c", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ["chunked", "colocated", "colocated instances=2"] == [side["label"] for side in document["sides"]]
    assert document["per_gpu"]
    assert document == json.loads((elsewhere / "c" / "comparison.json").read_text())
    assert 6 == len(list((elsewhere / "c").glob("run-*")))
    assert (elsewhere / "c" / "report.html").exists()


def test_a_server_that_dies_ends_the_comparison(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 5 with its last words; its run is kept, and no table stands there as if both had lived."""
    monkeypatch.setattr("loadtest.target.SimulatedTarget.died", lambda _: TargetError("the server ended", code="x"))
    assert ExitCode.TARGET == run(["compare", A, B, *LOAD, "--out", "c"])
    told = capsys.readouterr()
    assert "the server ended" in told.err
    assert not told.out
    assert (elsewhere / "c" / "run-01-1" / "run.json").exists()


def test_stored_runs_are_compared(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folders of runs, paired in their order; other schedules are not compared silently."""
    run(["compare", A, B, *LOAD, "--out", "c"])
    for place, name in enumerate(("a", "b"), 1):
        (elsewhere / name).mkdir()
        for path in sorted((elsewhere / "c").glob(f"run-*-{place}")):
            path.rename(elsewhere / name / path.name)
    capsys.readouterr()
    assert ExitCode.OK == run(["compare", "a", "b", "--metric", "ttft.p90", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ["ttft.p90"] == list(document["sides"][0]["values"])
    assert "deployment" in {difference["what"] for difference in document["differences"]}
    assert ExitCode.INVALID == run(["compare", "a/run-01-1", "b/run-02-2"])
    assert "different_traces" in capsys.readouterr().out


@pytest.mark.slow
def test_the_servers_own_view_of_each_side_is_in_the_page(elsewhere: Path) -> None:
    """Pages of a launch file are sampled for each run; the page names each side's server."""
    command = [sys.executable, "-P", "-m", "loadtest.cli.main", "serve", "{kind}", "--port", "{port}"]
    for name in ("one", "two"):
        kind = f"emulated:{'chunked' if name == 'one' else 'colocated'},model=demo-8b"
        file = ["command = " + json.dumps(command), "[metrics]", 'engine = "/metrics"', "[set]", f'kind = "{kind}"']
        (elsewhere / f"{name}.toml").write_text("\n".join(file))
    rows = [f"{i / 20:.2f},100,10" for i in range(20)]
    (elsewhere / "t.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
    run(["compare", "one.toml", "two.toml", "--pairs", "1", "--trace", "t.csv", "--out", "c"])
    for place in (1, 2):
        told = json.loads((elsewhere / "c" / f"run-01-{place}" / "server.json").read_text())
        assert [["engine"]] * len(told) == [list(line["servers"]) for line in told]
    html = (elsewhere / "c" / "report.html").read_text()
    assert "What the server said meanwhile" in html
    assert "one: engine" in html
    assert "two: engine" in html


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([A], "too_few_sides"),
        ([A, "."], "not_a_run"),
        ([A, "emulated:chunkd"], "bad_deployment"),
        ([A, B, "--virtual", "--metric", "ttft"], "bad_metric"),
        ([A, B, "--virtual", "--drop-field", "min_tokens"], "of_a_target"),
        ([A, B, "--extra-body", "top_k=1"], "of_a_target"),
        ([A, B, "--virtual", "--rate", "nan"], "not_positive"),
        ([A, B, "--metrics-url", "http://127.0.0.1:1/metrics"], "metrics_url"),
        ([A, B, "--metrics-url", "C.http://127.0.0.1:1/metrics"], "metrics_url"),
        ([A, B, "--metrics-url", "A.ftp://127.0.0.1/metrics"], "metrics_url"),
    ],
)
def test_what_cannot_be_compared_is_said(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with a stable code."""
    assert ExitCode.USAGE == run(["compare", "--json", *words])
    assert code == json.loads(capsys.readouterr().out)["error"]["code"]
