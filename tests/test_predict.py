"""`--predict`: the simulator beside a measurement of the same schedule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run as goodput
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.predict import model_of, predict
from metrics import rundir
from metrics.records import Outcome
from metrics.runinfo import RunInfo
from metrics.slo import SLO

MODEL = "emulated:chunked,model=demo-8b"
WORDS = ["--requests", "20", "--rate", "20", "--slo", "ttft=1s,tpot=50ms"]


def lines(text: str) -> dict[str, list[str]]:
    """The printed table's cells by quantity."""
    rows = text.partition("predicted by")[2].splitlines()[2:]
    return {row[:14].strip(): row[14:].split() for row in rows if row.strip()}


def test_a_simulated_run_is_predicted_without_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same simulator on the same schedule, with a warm-up: every error is 0, and `report` shows it again."""
    out = tmp_path / "run"
    words = ["run", "--backend", MODEL, "--virtual", *WORDS, "--warmup", "300ms", "--predict", MODEL]
    assert 0 == goodput([*words, "--out", str(out)])
    found = lines(capsys.readouterr().out)
    assert {"attainment", "TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90", "output"} == found.keys()
    assert ["+0.0", "pp"] == found["attainment"][-2:]
    assert all("+0.0%" == cells[-1] for name, cells in found.items() if name != "attainment")
    page = (out / "report.html").read_text()
    assert "Predicted against measured" in page
    (out / "report.html").unlink()
    assert 0 == goodput(["report", str(out)])
    assert "Predicted against measured" in (out / "report.html").read_text()
    capsys.readouterr()
    assert 0 == goodput(["report", str(out), "--format", "text"])
    assert found == lines(capsys.readouterr().out)


@pytest.mark.live
def test_a_server_is_predicted_by_its_own_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The emulated server live: all tokens of the schedule in both, TTFT and TPOT no faster than the model's."""
    out = tmp_path / "run"
    load = [*WORDS, "--shape", "clip=100"]
    code = goodput(["run", "--backend", MODEL, *load, "--predict", MODEL, "--json", "--out", str(out)])
    assert code in (0, 4)  # 4 where a busy machine sends late
    summary = json.loads(capsys.readouterr().out)
    foretold = json.loads((out / "prediction.json").read_bytes())
    assert [] == foretold["notes"]
    assert 20 == foretold["ttft_s"]["n"] == summary["ttft_s"]["n"]
    for what in ("ttft_s", "tpot_s"):
        assert 0 < foretold[what]["p50"] < 1.05 * summary[what]["p50"] + 1e-3


def test_what_an_error_does_not_say(tmp_path: Path) -> None:
    """A failed request, short answers, rows that the model's context cannot hold, another number of GPUs."""
    assert 0 == goodput(["run", "--backend", MODEL, "--virtual", *WORDS, "--out", str(tmp_path / "run")])
    run = rundir.load(tmp_path / "run")
    run.table.rows["outcome"][0] = Outcome.TIMEOUT
    run.table.rows["output_tokens"][1] -= 1
    asked = int(run.table.rows["max_tokens"][1:].sum())
    told = rundir.Run(RunInfo(gpus=3), run.table)
    longest = int((run.table.rows["prompt_tokens"] + run.table.rows["max_tokens"]).max())
    deployment = Deployment.parse(f"{MODEL},instances=2,max_model_len={longest - 1}")
    notes = predict(deployment, told, tmp_path / "run", SLO(ttft_s=1.0)).notes
    assert [
        "1 of 20 requests did not come through; the simulator served them",
        f"the server wrote {asked - 1:,} of {asked:,} tokens asked; the simulator writes all",
        f"the simulated server refused 1 requests: its max_model_len is {longest - 1}",
        "the run was on 3 GPUs, the simulation is on 2",
    ] == notes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://127.0.0.1:8000", "has no simulator"),
        ("torch:chunked,model=tiny", "has no simulator"),
        ("emulated:chunked,model=missing.json", "missing.json"),
        ("nonsense", "nonsense"),
    ],
)
def test_what_cannot_be_simulated(text: str, says: str) -> None:
    """Said before anything is sent."""
    with pytest.raises(UsageError) as error:
        model_of(text)
    assert says in error.value.message
