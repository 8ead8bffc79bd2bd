"""`goodput search` from the outside, on the virtual clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode
from tests.metrics.test_folderlock import somebody_else

QUICK = ["--virtual", "--requests", "100", "--slo", "ttft=1s,tpot=45ms"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of searches go into a temporary one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def searched(*words: str) -> int:
    return run(["search", *words])


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = searched(*words, "--json")
    assert ExitCode.OK == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_several_deployments_in_one_search(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A row each, goodput per GPU with its interval, saturation beside it, and who wins in words."""
    out = tmp_path / "found"
    backends = [
        "--backend",
        "emulated:chunked,instances=2",
        "--backend",
        "emulated:colocated_prefill_first,instances=2",
    ]
    found = document(capsys, *QUICK, *backends, "--out", str(out))
    assert ("goodput.search/1", "complete", "virtual") == (found["schema"], found["state"], found["clock"])
    for row in found["rows"]:
        assert row["goodput_per_gpu"]["rate"] == pytest.approx(row["goodput"]["rate"] / 16)
        assert row["goodput"]["low"] < row["goodput"]["rate"] < row["goodput"]["high"]
        assert row["saturation"]["output_tokens_per_s_per_gpu"] > 0
        assert row["binding"] == "tpot"
    assert "wins" in found["sentence"]
    assert found == json.loads((out / "search.json").read_text())


def test_the_paradox_stands_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Two pools have less saturation throughput than one, whatever their goodput (vLLM: it does not improve it)."""
    backends = ["--backend", "emulated:chunked,instances=2", "--backend", "emulated:disaggregated"]
    found = document(capsys, "--virtual", "--requests", "100", "--slo", "ttft=1s,tpot=40ms", *backends)
    one, two = (row["saturation"]["output_tokens_per_s_per_gpu"] for row in found["rows"])
    assert two < one
    goodput_one, goodput_two = (row["goodput_per_gpu"]["rate"] for row in found["rows"])
    assert goodput_two > goodput_one


def test_one_curve_per_chunk_size_with_the_same_arrivals(capsys: pytest.CaptureFixture[str]) -> None:
    """The best is marked and both ends are shown losing; equal run numbers replay equal requests."""
    sweep = ["--backend", "emulated:chunked", "--sweep", "max_num_batched_tokens=256,1024,8192"]
    found = document(capsys, "--virtual", "--slo", "ttft.p90=1s,itl.p99=100ms", *sweep)
    assert ["256", "1024", "8192"] == [row["value"] for row in found["rows"]]
    assert [False, True, False] == [row["best"] for row in found["rows"]]
    assert "both ends lose (256 and 8192)" in found["sentence"]
    assert all(len(row["attempts"]) >= 8 for row in found["rows"])
    assert all("max_num_batched_tokens=" + row["value"] in row["deployment"] for row in found["rows"])


def test_a_plain_sweep_reads_goodput_off_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    """The highest passing rate below the first failing one, never a rate that was not tried."""
    found = document(capsys, *QUICK, "--backend", "emulated:chunked", "--rates", "4,1,2")
    (row,) = found["rows"]
    assert [1.0, 2.0, 4.0] == [a["rate_per_s"] for a in row["attempts"]]
    assert ("bracketed", 2.0, [2.0, 4.0]) == (row["sweep"]["bound"], row["sweep"]["rate"], row["sweep"]["bracket"])


def test_slo_none_measures_saturation(capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens per second and GPU, no goodput."""
    found = document(capsys, "--virtual", "--slo", "none", "--backend", "emulated:chunked")
    assert found["rows"][0]["goodput"] is None
    assert found["rows"][0]["saturation"]["total_tokens_per_s"] > 1000


def test_users_instead_of_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    """The most users, next to one more that fails."""
    found = document(capsys, *QUICK, "--backend", "emulated:chunked", "--over", "concurrency", "--rate", "4")
    low, high = found["rows"][0]["sweep"]["bracket"]
    assert (low + 1, True) == (high, low >= 2)


def test_how_tight_the_slo_could_be(capsys: pytest.CaptureFixture[str]) -> None:
    """At an easy rate tighter, at an overload looser."""
    scales = [
        document(capsys, *QUICK, "--backend", "emulated:chunked", "--slo-scale", "--rate", rate)["rows"][0]["slo_scale"]
        for rate in ("1", "4")
    ]
    assert scales[0]["high"] < 1 < scales[1]["low"]


def test_without_an_slo_targets_are_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    """Five and 25 times the unloaded step, ready to be pasted."""
    assert ExitCode.OK == searched("--virtual", "--backend", "emulated:chunked")
    out = capsys.readouterr().out
    assert "--slo ttft=370ms,tpot=150ms,share=90%" in out
    assert "--slo ttft=1.8s,tpot=750ms,share=90%" in out


def test_families_are_searched_for_by_the_same_engine(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine limits; the one that allows the least binds and gives the goodput."""
    found = document(capsys, "--virtual", "--requests", "200", "--slo", "splitwise", "--backend", "emulated:chunked")
    (row,) = found["rows"]
    assert 9 == len(row["limit_rates"])
    assert pytest.approx(row["goodput"]["rate"], rel=1e-6) == min(row["limit_rates"].values())
    assert row["binding"] in row["limit_rates"]


def test_a_search_goes_on_where_it_was_stopped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--resume gives the same answer without measuring again."""
    out = tmp_path / "found"
    words = [*QUICK, "--backend", "emulated:chunked"]
    first = document(capsys, *words, "--out", str(out))
    again = document(capsys, *words, "--resume", str(out))
    assert first["rows"] == again["rows"]
    assert ExitCode.USAGE == searched(*words, "--seed", "1", "--resume", str(out))
    assert "has seed 0, not 1" in capsys.readouterr().err


def test_a_budget_ends_the_search_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """In words on the terminal."""
    code = searched(*QUICK, "--backend", "emulated:chunked", "--budget", "400")
    assert ExitCode.OK == code
    assert "the budget ended the search" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slo", "none", "--virtual"], "nothing to search"),
        ([*QUICK, "--backend", "emulated:chunked", "--rates", "1,two"], "not a list of rates"),
        ([*QUICK, "--backend", "emulated:chunked", "--budget", "soon"], "neither a time nor a number"),
        ([*QUICK, "--backend", "emulated:chunked", "--sweep", "chunk"], "names no flag"),
        ([*QUICK, "--backend", "emulated:chunked", "--sweep", "chunk=1,2"], "has no option 'chunk'"),
        ([*QUICK, "--backend", "emulated:chunked", "--slo-scale"], "about one rate"),
        ([*QUICK, "--backend", "emulated:chunked", "--rates", "1", "--over", "concurrency"], "different searches"),
        ([*QUICK, "--target", "http://127.0.0.1:9"], "--virtual is for"),
        (["--target", "http://127.0.0.1:9", "--slo", "ttft=1s", "--sweep", "a=1,2"], "has its flags already"),
        (["--backend", "emulated:chunked", "--slo", "splitwize"], "no SLO of the name"),
        ([*QUICK, "--backend", "emulated:chunked", "--resume", "nowhere"], "holds no search"),
        ([*QUICK, "--backend", "emulated:chunked", "--rate", "nan"], "--rate must be above 0, not nan"),
        ([*QUICK, "--backend", "torch:chunked"], "--virtual is for emulated"),
        ([*QUICK, "--launch", "no.toml"], "--virtual is for"),
        (["--slo", "ttft=1s", "--launch", "no.toml"], "there is no launch file no.toml"),
        (["--virtual", "--slo", "splitwise", "--over", "concurrency", "--backend", "emulated:chunked"], "joint limits"),
    ],
)
def test_what_cannot_be_searched_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """One sentence, exit code 2, no folder left behind."""
    assert ExitCode.USAGE == searched(*words)
    assert message in capsys.readouterr().err
    assert [] == list(Path.cwd().iterdir())


def test_a_search_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """And tells every run on stderr."""
    searched(*QUICK, "--backend", "emulated:chunked,instances=2")
    shown = capsys.readouterr()
    assert 80 >= max(len(line) for line in shown.out.splitlines())
    assert "per GPU" in shown.out
    assert "estimate" in shown.err


def test_a_search_that_another_process_makes_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two in one folder would clear each other's runs; when that one is gone, it is resumed."""
    backend = ["--backend", "emulated:chunked,instances=2"]
    document(capsys, *QUICK, *backend, "--out", "found")
    with somebody_else(tmp_path / "found"):
        assert ExitCode.USAGE == searched(*QUICK, *backend, "--resume", "found")
        assert "is in use" in capsys.readouterr().err
    assert ExitCode.OK == searched(*QUICK, *backend, "--resume", "found")
    assert ExitCode.USAGE == searched(*QUICK, *backend, "--resume", "nowhere")
