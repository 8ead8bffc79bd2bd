"""`goodput gate` from the outside."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loadtest.cli import load_options
from loadtest.cli.main import run
from loadtest.deployment import Deployment
from loadtest.errors import ExitCode, Interrupted
from loadtest.pairs import Replay
from loadtest.sides import VirtualSide
from loadtest.supervise import python_module

ROOT = Path(__file__).parents[2]
SAME = "emulated:chunked,model=demo-8b"
WORSE = f"{SAME},max_num_batched_tokens=128"
LOAD = ["--virtual", "--slo", "ttft=500ms,tpot=20ms", "--rate", "4", "--requests", "40"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is written below the test's own folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gate(*words: str, candidate: str = SAME) -> int:
    return run(["gate", "--baseline", SAME, "--candidate", candidate, *LOAD, *words])


def error_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    document: dict[str, dict[str, str]] = json.loads(capsys.readouterr().out)
    return document["error"]


def test_equal_deployments_pass(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0; one JSON document, also in gate.json; all files that were asked for."""
    words = ["--out", "g", "--json", "--junit", "f/j.xml", "--openmetrics", "f/m.txt", "--summary", "f/s.md"]
    assert ExitCode.OK == gate(*words)
    document = json.loads(capsys.readouterr().out)
    assert ("PASS", "goodput.gate/1") == (document["verdict"], document["schema"])
    assert document == json.loads((elsewhere / "g" / "gate.json").read_text())
    assert {"j.xml", "m.txt", "s.md"} == {path.name for path in (elsewhere / "f").iterdir()}
    assert document["command"][:2] == ["goodput", "gate"]


def test_a_worse_deployment_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, the rule named; annotations on stderr, which stdout's table does not mix with."""
    assert ExitCode.FAILED == gate("--annotations", candidate=WORSE)
    printed = capsys.readouterr()
    assert "FAIL" in printed.out
    assert "::error" in printed.err
    assert "::error" not in printed.out


def one_token_trace(folder: Path) -> str:
    """Sixty prompts that are only to be classified."""
    lines = [f"{n / 4},{100 + n % 7 * 50},1" for n in range(60)]
    path = folder / "trace.csv"
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *lines]) + "\n", encoding="utf-8")
    return str(path)


def test_default_rules_are_those_the_workload_can_measure(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One token each: no rule on TPOT, which is said before, in gate.json and in every report; a rule on it that was
    asked for makes the gate invalid."""
    words = ["gate", "--baseline", SAME, "--candidate", SAME, "--virtual", "--slo", "ttft=500ms", "--pairs", "3"]
    words += ["--trace", one_token_trace(elsewhere)]
    assert ExitCode.OK == run([*words, "--out", "g", "--junit", "j.xml", "--summary", "s.md"])
    why = "none of 48 requests asks for two tokens or more"
    printed = capsys.readouterr()
    assert f"left out: 'tpot.p90 rise < 5%': {why}\n" in printed.err
    assert f"left out: tpot.p90 rise < 5% ({why})" in printed.out
    document = json.loads((elsewhere / "g" / "gate.json").read_text())
    assert [{"rule": "tpot.p90 rise < 5%", "why": why}] == document["left_out"]
    assert "tpot.p90" not in [rule["metric"] for rule in document["rules"]]
    for name in ("g/gate.html", "j.xml", "s.md"):
        assert why in (elsewhere / name).read_text(encoding="utf-8")
    assert ExitCode.INVALID == run([*words, "--rule", "tpot.p90 rise < 5%"])
    # The stored runs say themselves what was asked of them.
    stored = ["--baseline", "g/pair-01-baseline", "--candidate", "g/pair-01-candidate", "--slo", "ttft=500ms"]
    run(["gate", *stored, "--out", "again"])
    document = json.loads((elsewhere / "again" / "gate.json").read_text())
    assert [why] == [rule["why"] for rule in document["left_out"]]


@pytest.mark.parametrize(("candidate", "code"), [(SAME, 0), (WORSE, 1)])
def test_bisect_says_good_and_bad(candidate: str, code: int) -> None:
    """0 and 1."""
    assert code == gate("--bisect", candidate=candidate)


@pytest.mark.parametrize(
    "words",
    [
        ["--baseline", SAME, "--candidate", "emulated:nothing", "--bisect"],
        ["--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:1", "--requests", "2", "--bisect"],
        ["--baseline", SAME, "--rule", "nonsense", "--bisect"],
        ["--bisect", "--no-such-option"],
    ],
)
def test_bisect_skips_what_cannot_be_judged(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """125 whatever went wrong, with the reason: a commit is never called bad for a broken set-up."""
    assert 125 == run(["gate", *words])
    assert "goodput: " in capsys.readouterr().err


def test_quick_mode_without_a_floor_is_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3, and 0 when the user says so; it names what is missing."""
    assert ExitCode.INCONCLUSIVE == gate("--pairs", "1")
    assert "--noise-floor" in capsys.readouterr().out
    assert ExitCode.OK == gate("--pairs", "1", "--on-inconclusive", "warn")


def stored_floor(path: Path, sigma: float) -> str:
    noise = [{"metric": key, "sigma": sigma, "detectable": {}} for key in ("ttft.p90", "tpot.p90", "tokens_per_s")]
    noise += [{"metric": key, "sigma": 0.004, "detectable": {}} for key in ("attainment", "failed")]
    path.write_text(json.dumps({"schema": "goodput.noise/1", "pairs": 8, "noise": noise}))
    return str(path)


def test_quick_mode_with_a_floor_decides(elsewhere: Path) -> None:
    """One run a side against the stored spread."""
    floor = stored_floor(elsewhere / "noise.json", 0.01)
    assert ExitCode.OK == gate("--pairs", "1", "--noise", floor)
    assert ExitCode.FAILED == gate("--pairs", "1", "--noise", floor, candidate=WORSE)


def test_margins_that_the_noise_cannot_carry_are_refused(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 before anything is measured, with what would do."""
    assert ExitCode.USAGE == gate("--noise", stored_floor(elsewhere / "noise.json", 0.09), "--json")
    error = error_of(capsys)
    assert "noise" == error["code"]
    assert "times as long" in error["hint"]
    assert not (elsewhere / "gates").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--candidate", SAME], "two_sides"),
        (["--baseline", SAME], "two_sides"),
        (["--baseline", SAME, "--candidate", SAME, "--launch", "a.toml", "b.toml"], "one_of"),
        (["--baseline", "nowhere/runs", "--candidate", SAME], "no_such_side"),
        (["--baseline", ".", "--candidate", SAME], "not_a_run"),
        (["--baseline", SAME, "--candidate", SAME, "--rule", "tpot.p90 drop < 5%"], "bad_rule"),
        (["--baseline", SAME, "--candidate", SAME, "--rule", "goodput drop < 5%"], "metric_goodput"),
        (["--baseline", SAME, "--candidate", SAME, "--metric", "goodput"], "no_slo"),
        (["--baseline", SAME, "--candidate", "http://x:1", "--virtual"], "virtual"),
        (["--baseline", SAME, "--noise-floor", "8", "--virtual"], "no_noise"),
        (["--baseline", SAME, "--candidate", SAME, "--rule", ""], "bad_rule"),
        (["--baseline", SAME, "--candidate", SAME, "--rule", "ttft.p90 < 10%"], "bad_rule"),
        (["--baseline", SAME, "--candidate", SAME, "--rule", "attainment > 90%"], "no_slo"),
        (["--baseline", SAME, "--candidate", SAME, "--ladder", "--rule", "ttft.p90 rise < 10%"], "bad_rule"),
        (["--baseline", SAME, "--candidate", SAME, "--rule", "ttft@512.p50 rise < 10%"], "bad_rule"),
        (["--baseline", SAME, "--candidate", SAME, "--ladder", "--metric", "goodput"], "one_of"),
        (["--baseline", SAME, "--candidate", SAME, "--slo", "splitwise"], "joint_slo"),
        (["--baseline", SAME, "--candidate", SAME, "--junit", "/proc/x"], "output_unusable"),
        (["--baseline", SAME, "--candidate", SAME, "--seed", "-1"], "usage"),
        (["--baseline", "torch:chunked", "--candidate", SAME, "--virtual"], "virtual"),
        (["--baseline", SAME, "--candidate", "no.toml"], "no_such_side"),
        (["--baseline", SAME, "--candidate", SAME, "--pairs", "2"], "usage"),
        (["--baseline", SAME, "--candidate", SAME, "--pairs", "8,3"], "usage"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], code: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, one document with a stable code, nothing left behind."""
    assert ExitCode.USAGE == run(["gate", "--json", *words])
    assert code == error_of(capsys)["code"]
    assert [] == list(elsewhere.iterdir())


def test_rules_come_from_the_file_too(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[gate] of goodput.toml: looks, rules, what an open gate means."""
    (elsewhere / "goodput.toml").write_text(
        '[gate]\npairs = [3, 4]\nrules = ["tpot.p90 rise < 40%", "failed < 50%"]\non_inconclusive = "pass"\n'
    )
    assert ExitCode.OK == gate("--json", candidate=WORSE)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ["tpot.p90 rise < 40%", "failed < 50%"] == [result["rule"] for result in document["rules"]]
    assert ([3, 4], "pass") == (document["looks"], document["on_inconclusive"])


def test_two_folders_of_runs_are_judged_without_a_server(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One look at all pairs; a run of another schedule makes it invalid."""
    gate("--out", "g")
    for name in ("baseline", "candidate"):
        (elsewhere / name).mkdir()
        for path in sorted((elsewhere / "g").glob(f"pair-*-{name}")):
            path.rename(elsewhere / name / path.name)
    capsys.readouterr()
    words = ["gate", "--slo", "ttft=500ms,tpot=20ms", "--json"]
    assert ExitCode.OK == run([*words, "--baseline", "baseline", "--candidate", "candidate"])
    assert [3] == json.loads(capsys.readouterr().out)["looks"]
    (elsewhere / "candidate" / "pair-01-candidate").rename(elsewhere / "candidate" / "pair-09-candidate")
    assert ExitCode.INVALID == run([*words, "--baseline", "baseline", "--candidate", "candidate"])
    assert "different_traces" == json.loads(capsys.readouterr().out)["invalid"][0]["code"]


def test_a_stored_baseline_is_replayed_on_the_candidate(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The candidate gets the schedule of the stored runs; a virtual candidate against virtual runs is sound."""
    gate("--out", "g")
    (elsewhere / "kept").mkdir()
    for number in range(3):
        target = elsewhere / "kept" / f"{number}"
        target.mkdir()
        for file in (elsewhere / "g" / "pair-01-baseline").iterdir():
            (target / file.name).write_bytes(file.read_bytes())
    capsys.readouterr()
    words = ["gate", "--baseline", "kept", "--candidate", SAME, "--virtual", "--slo", "ttft=500ms,tpot=20ms"]
    assert ExitCode.OK == run([*words, "--pairs", "3", "--json"]), capsys.readouterr().err
    document = json.loads(capsys.readouterr().out)
    assert ["PASS", 3] == [document["verdict"], len(document["pairs"])]


def test_a_gate_that_is_stopped_leaves_its_file(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 130 with gate.json marked partial, under --bisect too; the runs so far stay in its folder."""
    made: list[Path] = []
    measure = Replay.__call__

    def stopped(self: Replay, target: Any, number: int, folder: Path) -> Any:
        made.append(folder)
        if len(made) == 4:
            raise Interrupted("stopped by the user")
        return measure(self, target, number, folder)

    monkeypatch.setattr(Replay, "__call__", stopped)
    assert ExitCode.INTERRUPTED == gate("--out", "g", "--bisect")
    assert "decides nothing" in capsys.readouterr().err
    document = json.loads((elsewhere / "g" / "gate.json").read_text())
    assert ("partial", "INCONCLUSIVE", 1) == (document["state"], document["verdict"], len(document["pairs"]))


def test_a_ladder_has_rules_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Fixed points, in three pairs."""
    words = ["gate", "--baseline", SAME, "--candidate", SAME, "--virtual", "--ladder", "--pairs", "3", "--json"]
    assert ExitCode.OK == run(words)
    document = json.loads(capsys.readouterr().out)
    assert "ladder" == document["mode"]
    assert {"tpot@8.p50", "ttft@2048.p50"} <= {result["metric"] for result in document["rules"]}


def test_goodput_is_judged_by_paired_searches(capsys: pytest.CaptureFixture[str]) -> None:
    """--metric goodput: a server with room for four requests serves far less."""
    words = ["--metric", "goodput", "--requests", "150", "--pairs", "3", "--json"]
    assert ExitCode.FAILED == gate(*words, candidate=f"{SAME},max_num_seqs=4")
    document = json.loads(capsys.readouterr().out)
    assert ["goodput drop < 5%"] == [result["rule"] for result in document["rules"]]


def test_a_noise_floor_is_stored_and_used(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A/A pairs of one build; quick mode judges by them. (Its pairs come from the simulator here.)"""
    side = VirtualSide("build", Deployment.parse(SAME))
    monkeypatch.setattr(load_options, "side_of", lambda *_: side)
    load = ["--slo", "ttft=500ms,tpot=20ms", "--rate", "4", "--requests", "40"]
    assert ExitCode.OK == run(["gate", "--baseline", SAME, "--noise-floor", "3", "--out", "n", "--json", *load])
    floor = json.loads(capsys.readouterr().out)
    assert (3, "goodput.noise/1") == (floor["pairs"], floor["schema"])
    assert floor == json.loads((elsewhere / "n" / "noise.json").read_text())
    quick = ["--pairs", "1", "--noise", "n/noise.json", "--baseline", SAME, "--candidate", SAME]
    assert ExitCode.OK == run(["gate", *quick, *load])


@pytest.mark.live
@pytest.mark.slow
def test_launched_servers_are_judged_live(elsewhere: Path) -> None:
    """Two launch files, a value set for one of them: started and stopped in turn, cost told before and after.

    One pair against a stored spread that forgives much. A machine that is too busy makes the comparison invalid, which
    is the other right answer.
    """
    (elsewhere / "base.toml").write_text(
        f'deployment = "{SAME},max_num_batched_tokens={{budget}}"\n[set]\nbudget = 2048\n'
    )
    rules = ["--rule", "ttft.p90 rise < 900%", "--rule", "failed rise < 50pp"]
    words = ["--launch", "base.toml", "base.toml", "--set", "candidate.budget=512", "--pairs", "1", "--json"]
    words += ["--noise", stored_floor(elsewhere / "noise.json", 0.3)]
    load = ["--slo", "ttft=2s,tpot=200ms", "--trace", "t.csv"]
    rows = "".join(f"{i * 0.1:.1f},64,4\n" for i in range(6))
    (elsewhere / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    argv = python_module("loadtest.cli.main", "gate", *words, *load, *rules)  # a child: Locust patches its process
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    document = json.loads(done.stdout)
    assert document["cost"]["server_minutes"] > 0
    assert "server-minutes" in done.stderr
    assert "base budget=512" == document["candidate"]["label"]
