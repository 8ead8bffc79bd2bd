"""`goodput report`: from run directories, also of runs that crashed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from loadtest.cli.main import run
from loadtest.deployment import Deployment
from loadtest.errors import ExitCode
from loadtest.record import begin, planned_info, record
from loadtest.target import SimulatedTarget
from loadtest.workload import Workload
from tests.reports.gates import gate_report


def make(path: Path, arrangement: str = "chunked", slo: str = "ttft=1s,tpot=50ms") -> Path:
    """The run directory of a short simulated run."""
    import msgspec

    workload = Workload(trace="azure-conv", requests=30, rate_per_s=2.0, salt="00")
    schedule = workload.schedule(workload.read())
    path.mkdir()
    with SimulatedTarget(Deployment.parse(f"emulated:{arrangement},model=demo-8b")) as target:
        info = msgspec.structs.replace(planned_info(target, schedule), name=path.name, slo=slo)
        record(target, schedule, info, path)
    return path


def test_json_of_one_run_is_its_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json and --format json print the same single document; of several runs, a list."""
    one, two = make(tmp_path / "one"), make(tmp_path / "two", "colocated")
    assert ExitCode.OK == run(["report", "--json", str(one)])
    first = capsys.readouterr().out
    assert ExitCode.OK == run(["report", "--format", "json", str(one)])
    assert first == capsys.readouterr().out
    assert "goodput.summary/1" == json.loads(first)["schema"]
    assert ExitCode.OK == run(["report", "--json", str(one), str(two)])
    assert ["one", "two"] == [summary["run"]["name"] for summary in json.loads(capsys.readouterr().out)]


def test_another_slo_is_judged_without_touching_the_recorded_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--slo changes what is printed; run.json keeps what was asked."""
    path = make(tmp_path / "one")
    assert ExitCode.OK == run(["report", "--json", "--slo", "ttft=1ms", str(path)])
    summary = json.loads(capsys.readouterr().out)
    assert 0.0 == summary["attainment"]["share"]
    assert "ttft=1s,tpot=50ms" == summary["run"]["slo"]


def test_text_names_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--format text prints a result for people."""
    assert ExitCode.OK == run(["report", "--format", "text", str(make(tmp_path / "one"))])
    assert "TTFT" in capsys.readouterr().out


def test_html_goes_into_the_run_directory_or_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path is printed."""
    path = make(tmp_path / "one")
    assert ExitCode.OK == run(["report", str(path)])
    assert str(path / "report.html") == capsys.readouterr().out.strip()
    assert ExitCode.OK == run(["report", str(path), "--out", str(tmp_path / "page.html")])
    assert (path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert (path / "summary.json").exists()


def test_runs_with_different_slos_need_a_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One page has one SLO."""
    one, two = make(tmp_path / "one"), make(tmp_path / "two", slo="ttft=2s")
    assert ExitCode.USAGE == run(["report", "--json", str(one), str(two)])
    assert "different_slo" == json.loads(capsys.readouterr().out)["error"]["code"]
    assert ExitCode.OK == run(["report", "--json", "--slo", "ttft=1s", str(one), str(two)])


def test_a_run_that_crashed_is_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the plan and no journal: every request is there, not sent, and the verdict is invalid."""
    workload = Workload(trace="azure-conv", requests=5, rate_per_s=2.0, salt="00")
    schedule = workload.schedule(workload.read())
    path = tmp_path / "crashed"
    path.mkdir()
    begin(schedule, planned_info(SimulatedTarget(Deployment.parse("emulated:chunked")), schedule), path)
    assert ExitCode.OK == run(["report", "--json", str(path)])
    summary = json.loads(capsys.readouterr().out)
    assert "running" == summary["run"]["state"]
    assert 5 == sum(summary["requests"]["by_outcome"].values())
    assert "invalid" == summary["validity"]["verdict"]


def test_not_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without run.json: exit 2 and the path."""
    assert ExitCode.USAGE == run(["report", "--json", str(tmp_path)])
    assert str(tmp_path) in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_result_whose_parts_do_not_fit_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate with a margin that no axis holds, and files that are no gate: exit 2, named."""
    whole = json.loads(msgspec.json.encode(gate_report("FAIL")))
    for number, change in enumerate(
        ({"pairs": 5}, {"rules": [{**rule, "margin": 1e15} for rule in whole["rules"]]}, {"schema": 1})
    ):
        file = tmp_path / str(number) / "gate.json"
        file.parent.mkdir()
        file.write_text(json.dumps(whole | change))
        assert ExitCode.USAGE == run(["report", str(file)])
        assert str(file) in capsys.readouterr().err
