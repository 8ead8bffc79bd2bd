"""Pairs in ABBA order, and a gate that measures until the data decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadtest.deployment import Deployment
from loadtest.errors import Interrupted, TargetError
from loadtest.pairs import Pairs, Replay, order_of, run_gate
from loadtest.sides import VirtualSide, stored
from loadtest.workload import Workload
from metrics import rundir
from metrics.gate.report import Plan
from metrics.gate.rules import parse_rules
from metrics.gate.sample import Sample
from metrics.slo import SLO
from metrics.validity import Finding

CHUNKED = "emulated:chunked,model=demo-8b"
TARGETS = SLO.parse("ttft=500ms,tpot=20ms")
RULES = parse_rules(["ttft.p90 rise < 10%", "tpot.p90 rise < 5%"])
WORKLOAD = Workload(trace="azure-conv", rate_per_s=4.0, requests=40)


class Scripted:
    """A probe that measures nothing: the n-th call on a side gives the n-th value of its script."""

    def __init__(self, **values: list[float]) -> None:
        self.values, self.calls = values, []

    def expected_s(self) -> float:
        return 57.0

    def __call__(self, target: Any, number: int, folder: Path) -> Sample:  # noqa: ARG002
        name = folder.name.split("-")[2]
        self.calls.append(name)
        value = self.values[name][number - 1]
        return Sample(
            values={"ttft.p90": value, "tpot.p90": 1.0, "failed": 0.0}, requests=10, findings=self.found(name)
        )

    def judge_stored(self, run: Any) -> Sample:
        raise NotImplementedError

    def found(self, name: str) -> list[Finding]:  # noqa: ARG002
        return []


def side(name: str, text: str = CHUNKED) -> VirtualSide:
    return VirtualSide(name, Deployment.parse(text))


def gate(tmp_path: Path, probe: Any, looks: list[int], text: str = CHUNKED, **how: Any) -> Any:
    pairs = Pairs(side("baseline"), side("candidate", text), probe, tmp_path, **how)
    return run_gate(pairs, Plan(rules=RULES, looks=looks)), pairs


def test_the_order_is_abba(tmp_path: Path) -> None:
    """A drift that is straight cancels within two pairs."""
    probe = Scripted(baseline=[1.0, 1.3, 1.0, 1.3], candidate=[1.0, 1.0, 1.3, 1.3])
    gate(tmp_path, probe, [4])
    first, second = ["baseline", "candidate"], ["candidate", "baseline"]
    assert [*first, *second, *first, *second] == probe.calls
    assert ["AB", "BA", "AB", "BA"] == [order_of(n, "abba") for n in (1, 2, 3, 4)]
    assert {"AB"} == {order_of(n, "abab") for n in (1, 2, 3, 4)}


def test_it_stops_at_the_look_that_decides(tmp_path: Path) -> None:
    """Three equal pairs are enough; a doubtful third one asks for more."""
    report, _ = gate(tmp_path / "a", Scripted(baseline=[1.0] * 5, candidate=[1.0] * 5), [3, 5])
    assert ("PASS", 3) == (report.verdict, len(report.pairs))
    doubtful = [1.0, 1.0, 1.15, 1.0, 1.0]
    report, _ = gate(tmp_path / "b", Scripted(baseline=[1.0] * 5, candidate=doubtful), [3, 5])
    assert 5 == len(report.pairs)


@pytest.mark.parametrize("error", [Interrupted("stopped"), KeyboardInterrupt()], ids=["in a run", "between runs"])
def test_a_user_who_stops_it_keeps_the_whole_pairs_and_gets_no_verdict(tmp_path: Path, error: BaseException) -> None:
    """Three pairs that would have passed at the look are no verdict; the half of the fourth counts for nothing."""

    class Stopped(Scripted):
        def __call__(self, target: Any, number: int, folder: Path) -> Sample:
            if len(self.calls) == 7:
                raise error
            return super().__call__(target, number, folder)

    report, _ = gate(tmp_path, Stopped(baseline=[1.0] * 5, candidate=[1.0] * 5), [5])
    assert ("partial", "INCONCLUSIVE", 3) == (report.state, report.verdict, len(report.pairs))
    assert "Stopped by the user after 3 whole pairs of runs." == report.sentence


def test_a_user_who_stops_the_first_pair_gets_an_empty_report(tmp_path: Path) -> None:
    """Nothing measured is no reason for INVALID either."""

    class Stopped(Scripted):
        def __call__(self, *_: Any) -> Sample:
            raise Interrupted("stopped")

    report, _ = gate(tmp_path, Stopped(), [3])
    assert ("partial", "INCONCLUSIVE", []) == (report.state, report.verdict, report.invalid)


def test_it_stops_when_a_run_is_unsound_twice(tmp_path: Path) -> None:
    """A second try, and then no more server-minutes for a comparison that can decide nothing."""

    class Limited(Scripted):
        def found(self, name: str) -> list[Finding]:
            late = [Finding(code="limited_by_client", level="invalid", message="late")]
            return late if name == "candidate" else []

    report, pairs = gate(tmp_path, Limited(baseline=[1.0] * 5, candidate=[1.0] * 5), [3, 5])
    assert ("INVALID", 1) == (report.verdict, len(pairs.pairs))
    assert [("limited_by_client", "candidate")] == [(r.code, r.side) for r in report.invalid]
    assert 4 == len(list(tmp_path.iterdir()))


def test_a_run_that_a_neighbour_spoiled_is_made_again(tmp_path: Path) -> None:
    """Once a pair, twice a gate; the report says so. Other reasons get no second try."""

    class Sometimes(Scripted):
        code = "limited_by_client"

        def __call__(self, target: Any, number: int, folder: Path) -> Sample:
            again = folder.name.endswith("-again")
            sample = super().__call__(target, number, folder.with_name(folder.name.removesuffix("-again")))
            sample.findings = [] if again or number != 2 else [Finding(code=self.code, level="invalid", message="late")]
            return sample

    report, pairs = gate(tmp_path / "a", Sometimes(baseline=[1.0] * 5, candidate=[1.0] * 5), [3])
    assert ("PASS", [2]) == (report.verdict, pairs.second_tries)
    assert any("pair 2 was measured again" in warning for warning in report.warnings)
    Sometimes.code = "worker_lost"
    report, pairs = gate(tmp_path / "b", Sometimes(baseline=[1.0] * 5, candidate=[1.0] * 5), [3])
    assert ("INVALID", []) == (report.verdict, pairs.second_tries)


def test_a_baseline_that_answers_nothing_ends_the_gate(tmp_path: Path) -> None:
    """There is nothing to compare with: the target's fault, not a verdict on the candidate."""

    class Dead(Scripted):
        def __call__(self, *_: Any) -> Sample:
            return Sample(values={"failed": 1.0}, requests=5, failed=5)

    with pytest.raises(TargetError, match="baseline"):
        gate(tmp_path, Dead(), [3])


def test_both_sides_of_a_pair_replay_the_same_schedule_with_fresh_prompts(tmp_path: Path) -> None:
    """One recipe per pair; every run its own salt; on the simulator every pair its own arrivals."""
    _, pairs = gate(tmp_path, Replay(WORKLOAD, TARGETS, ["goodput"], virtual=True, warmup_share=0.2), [3])
    recipes = [(a.recipe, b.recipe) for a, b in pairs.pairs]
    assert all(a == b for a, b in recipes)
    assert 3 == len({a for a, _ in recipes})
    assert 6 == len({sample.salt for pair in pairs.pairs for sample in pair})
    assert 32 == pairs.pairs[0][0].requests


def test_live_pairs_share_one_schedule() -> None:
    """Off the simulator the arrivals are the same in every run."""
    probe = Replay(WORKLOAD, TARGETS, [])
    assert 1 == len({probe._plan(number, None).recipe_hash for number in (1, 2, 3)})


def test_what_to_know_about_the_trace_is_said_once(tmp_path: Path) -> None:
    """Before the first run, whatever the number of runs."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_ns,prompt_tokens,output_tokens\n" + "0,5,6\n" * 5)
    said: list[str] = []
    probe = Replay(Workload(trace=str(path)), TARGETS, [], virtual=True, say=said.append)
    for number in (1, 2, 3):
        probe._plan(number, None)
    assert ["one_instant"] == [text.partition(":")[0] for text in said]


def test_simulated_deployments_are_told_apart(tmp_path: Path) -> None:
    """A small chunk budget costs first tokens; equal deployments pass without a difference."""
    probe = Replay(WORKLOAD, TARGETS, [], virtual=True)
    report, _ = gate(tmp_path / "same", probe, [3])
    assert ("PASS", 0.0) == (report.verdict, report.cost.server_minutes)
    report, _ = gate(tmp_path / "slow", probe, [3, 5, 8, 12], f"{CHUNKED},max_num_batched_tokens=128")
    assert "FAIL" == report.verdict
    assert ["ttft.p90"] == [r.metric for r in report.rules if r.verdict == "FAIL"]


def test_a_simulated_server_that_refuses_requests_fails_the_gate(tmp_path: Path) -> None:
    """Failures are evidence: they lower nothing into INVALID, and faster answers do not hide them."""
    probe = Replay(Workload(trace="azure-conv", rate_per_s=14.0, requests=120), TARGETS, [], virtual=True)
    report, _ = gate(tmp_path, probe, [3, 5], f"{CHUNKED},max_queue=1")
    assert ("FAIL", []) == (report.verdict, report.invalid)
    assert "failed rise < 1pp" in report.sentence


def test_runs_that_were_made_before_can_be_a_side(tmp_path: Path) -> None:
    """A folder of runs against a folder of runs: no server, the same verdict machinery."""
    probe = Replay(WORKLOAD, TARGETS, [], virtual=True)
    gate(tmp_path / "made", probe, [3])
    for name in ("baseline", "candidate"):
        (tmp_path / name).mkdir()
        for number in (1, 2, 3):
            (tmp_path / "made" / f"pair-0{number}-{name}").rename(tmp_path / name / f"{number}")
            (tmp_path / name / f"{number}" / "events.npz").unlink()  # a stored baseline does without
    sides = [stored(tmp_path / name) for name in ("baseline", "candidate")]
    assert sides[0] is not None
    assert sides[1] is not None
    pairs = Pairs(sides[0], sides[1], probe, tmp_path / "out")
    assert 3 == pairs.limit
    report = run_gate(pairs, Plan(rules=RULES, looks=[3]))
    assert ("PASS", 3) == (report.verdict, len(report.pairs))
    assert stored(tmp_path / "nothing") is None


def test_a_run_is_a_run_directory_like_any_other(tmp_path: Path) -> None:
    """`goodput report` can open it; it knows its command, its SLO and its clock."""
    gate(tmp_path, Replay(WORKLOAD, TARGETS, ["goodput", "gate"], virtual=True, warmup_share=0.2), [3])
    run = rundir.load(tmp_path / "pair-01-baseline")
    assert ("complete", str(TARGETS), ["goodput", "gate"]) == (run.info.state, run.info.slo, run.info.command)
    assert "virtual" == run.info.server["clock"]
    assert run.info.warmup_s > 0


def test_the_cost_is_told_beforehand(tmp_path: Path) -> None:
    """Runs of 57 s and 3 s around them: two server-minutes a pair; nothing on the simulator."""
    from loadtest.replay.sender import SenderOptions
    from loadtest.sides import UrlSide
    from loadtest.target import LoadSettings

    url = UrlSide("x", "http://127.0.0.1:1", LoadSettings(SenderOptions()))
    assert 6.0 == pytest.approx(Pairs(url, url, Scripted(), tmp_path).expected_minutes(3))
    assert 0.0 == Pairs(side("a"), side("b"), Scripted(), tmp_path).expected_minutes(3)
