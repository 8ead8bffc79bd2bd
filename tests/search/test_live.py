"""Runs on an opened target: the same counts as on the virtual clock, folders, early ends, a user who stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from loadtest.deployment import Deployment
from loadtest.errors import TargetError
from loadtest.search import VirtualRuns, Windows, store
from loadtest.search.job import SearchJob, Variant, gpus_of, with_option
from loadtest.search.live import LiveRuns, StoppedByUser, measure_idle
from loadtest.search.reference import model_unloaded
from loadtest.target import Measurement, OnProgress, SimulatedTarget, Target
from metrics import rundir
from metrics.objective import parse_objective
from metrics.runinfo import STOPPED_BY_USER
from metrics.slo import SLO
from workloads.schedule import Schedule

SLO_ = SLO(ttft_s=1.0, tpot_s=0.045)
CHUNKED = Deployment.parse("emulated:chunked")


class Scripted(SimulatedTarget):
    """The simulator as a live target; the user stops run `stop_in`, and it dies in run `die_in`."""

    def __init__(self, stop_in: int = -1, die_in: int = -1) -> None:
        super().__init__(CHUNKED)
        self.runs, self._stop_in, self._die_in = 0, stop_in, die_in
        self.asked: list[str] = []

    def died(self) -> TargetError | None:
        return TargetError("the server died") if self.runs == self._die_in + 1 else None

    def measure(
        self, schedule: Schedule, directory: Path, on_progress: OnProgress | None = None, *, abort_on: str = ""
    ) -> Measurement:
        measured = super().measure(schedule, directory, on_progress)
        self.asked.append(abort_on)
        self.runs += 1
        if self.runs == self._stop_in + 1:
            return Measurement(measured.table, 10.0, STOPPED_BY_USER)
        overloaded = schedule.offered_rate_per_s is not None and schedule.offered_rate_per_s > 4
        return Measurement(measured.table, 15.0, "out of reach") if abort_on and overloaded else measured


def live(target: Target, directory: Path, objective: str = "ttft=1s,tpot=45ms", workers: int = 1) -> LiveRuns:
    return LiveRuns(target, Windows("azure-conv"), parse_objective(objective), directory, ["goodput"], 100, workers)


def test_a_live_run_is_counted_as_a_virtual_one(tmp_path: Path) -> None:
    """Same seeds, same requests, same counts; the run directory holds them."""
    counted = live(Scripted(), tmp_path)(1.0, 3)
    same = VirtualRuns(CHUNKED, Windows("azure-conv"), SLO_, least_requests=100)(1.0, 3)
    assert (same.good, same.total, same.misses) == (counted.good, counted.total, counted.misses)
    assert ("run-03", []) == (counted.folder, counted.unsound)
    assert 100 == len(rundir.load(tmp_path / "run-03").table.rows)


def test_only_bracketing_runs_of_one_worker_and_a_joint_slo_end_early(tmp_path: Path) -> None:
    """A family has no count of misses to end by, and of several workers none sees all misses."""
    target = Scripted()
    live(target, tmp_path / "a").bracketing(1.0, 0)
    live(target, tmp_path / "b")(1.0, 0)
    live(target, tmp_path / "c", workers=2).bracketing(1.0, 0)
    live(target, tmp_path / "d", "ttft.p90=1s,tpot.p90=50ms").bracketing(1.0, 0)
    assert [f"attainment of {SLO_}", "", "", ""] == target.asked


def test_a_run_that_was_ended_counts_as_the_most_it_could_have_been(tmp_path: Path) -> None:
    """One good request too few, and what was offered until then."""
    counted = live(Scripted(), tmp_path).bracketing(5.0, 0)
    assert (True, 75, 67) == (counted.aborted, counted.total, counted.good)
    assert 15.0 == counted.seconds
    assert 60 < counted.requests < 100


def test_a_first_run_that_was_over_too_soon_is_made_again(tmp_path: Path) -> None:
    """100 requests at 10/s are over in 10 s, two median requests: then 20 of them; both are paid for."""
    target = Scripted()
    counted = live(target, tmp_path)(10.0, 0)
    assert (2, True) == (target.runs, counted.requests > 100 + 20 * 10 * 4)
    live(target, tmp_path)(1.0, 1)
    assert 3 == target.runs


def test_an_unfinished_folder_is_used_again(tmp_path: Path) -> None:
    """What a crash left in it is gone."""
    (tmp_path / "run-00").mkdir()
    (tmp_path / "run-00" / "records-0.bin").write_bytes(b"half a journal")
    live(Scripted(), tmp_path)(1.0, 0)
    assert not (tmp_path / "run-00" / "records-0.bin").exists()


def test_the_user_stops_and_a_dead_server_ends_the_search(tmp_path: Path) -> None:
    """Each in its own way."""
    with pytest.raises(StoppedByUser):
        live(Scripted(stop_in=0), tmp_path / "a")(1.0, 0)
    with pytest.raises(TargetError, match="died"):
        live(Scripted(die_in=0), tmp_path / "b")(1.0, 0)


def test_the_idle_server_is_measured_one_request_at_a_time(tmp_path: Path) -> None:
    """It tells what the model does."""
    found = measure_idle(live(Scripted(), tmp_path))
    prompts = np.array([300, 1000, 1800])
    assert np.allclose(model_unloaded(CHUNKED).ttft_s(prompts), found.ttft_s(prompts), rtol=0.1)
    run = rundir.load(tmp_path / "idle-01")
    rows = run.table.rows
    assert (rows["done_s"][:-1] < rows["scheduled_s"][1:]).all()


@dataclass
class ScriptedSide:
    """A side whose targets are scripted."""

    label: str = "scripted"
    stop_in: int = -1
    opened: list[Scripted] = field(default_factory=list)

    def open(self, folder: Path) -> Target:  # noqa: ARG002
        self.opened.append(Scripted(self.stop_in))
        return self.opened[-1]


def test_a_search_that_the_user_stopped_is_partial_and_goes_on_later(tmp_path: Path) -> None:
    """Only what is missing is measured again, and the answer is that of an undisturbed search."""
    job = SearchJob("search", "azure-conv", SLO_, tmp_path / "x", ["goodput"], rate_per_s=1.5, least_requests=100)
    (tmp_path / "x").mkdir()
    stopped = ScriptedSide(stop_in=4)
    report = job.run([Variant("one", stopped, None, 8)])
    assert ("partial", "live", 4) == (report.state, report.clock, len(report.rows[0].attempts))
    again = ScriptedSide()
    whole = job.run([Variant("one", again, None, 8)], store.read(tmp_path / "x"))
    assert "complete" == whole.state
    assert len(whole.rows[0].attempts) - 4 == again.opened[0].runs
    other = SearchJob("search", "azure-conv", SLO_, tmp_path / "y", ["goodput"], rate_per_s=1.5, least_requests=100)
    (tmp_path / "y").mkdir()
    assert whole.rows[0].goodput == other.run([Variant("one", ScriptedSide(), None, 8)]).rows[0].goodput


def test_a_flag_of_a_deployment_is_set_by_name() -> None:
    """In its place or beside the others; GPUs follow."""
    base = Deployment.parse("emulated:chunked,instances=2,max_num_batched_tokens=512")
    assert "emulated:chunked,instances=2,max_num_batched_tokens=256" == str(
        with_option(base, "max_num_batched_tokens", "256")
    )
    assert 32 == with_option(base, "instances", "4").gpus
    assert 16 == gpus_of(ScriptedSide(), base, None)
    assert 3 == gpus_of(ScriptedSide(), None, 3)
