"""Locust as a library, for real: processes, sockets, signals; the scripted server counts what arrives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from loadtest import clock
from loadtest.errors import GoodputError
from loadtest.supervise import Server, python_module
from metrics import rundir
from metrics.records import Outcome, Rows

ROOT = Path(__file__).parents[2]
RATE, COUNT = 40, 120  # three seconds of requests
BRIEF = 40  # where nothing happens in the middle

# Runs in a process of its own: run_load takes over signals and the gevent hub.
PROGRAM = """
import sys, msgspec
from pathlib import Path
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.target import LoadSettings, _replay
from metrics import rundir
from metrics.runinfo import RunInfo
from workloads.schedule import Schedule
directory, url, workers, reactor = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
endpoint = Endpoint.parse(url, model="scripted", prompt_form="ids").resolve()
rundir.write_info(directory, RunInfo())
schedule = Schedule.load(directory / "schedule.npz")
said = []
settings = LoadSettings(SenderOptions(), workers, reactor)
measurement = _replay(endpoint, settings, schedule, directory, said.append)
rundir.write_table(directory, measurement.table)
print(msgspec.json.encode({"stopped_at_s": measurement.stopped_at_s, "last": said[-1] if said else None}).decode())
"""


class Outdoors:
    """A scripted server, a schedule on the disk, and the program that replays it."""

    def __init__(self, folder: Path, server: Server, arrivals: Path) -> None:
        self.folder = folder
        self.server = server
        self._arrivals = arrivals
        self.plan(COUNT)

    def plan(self, count: int) -> None:
        """Write the schedule of so many requests."""
        from loadtest.workload import Workload

        trace = self.folder.parent / "trace.jsonl"
        row = '{{"timestamp": {}, "input_length": 4, "output_length": 2}}\n'
        trace.write_text("".join(row.format(1000 * i // RATE) for i in range(count)))
        workload = Workload(trace=str(trace))
        workload.schedule(workload.read()).save(self.folder / rundir.SCHEDULE)

    def start(self, workers: int = 1, reactor: str = "hub") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(self.folder), self.server.url, str(workers), reactor],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def arrived(self) -> int:
        return len(self._arrivals.read_text().splitlines()) if self._arrivals.exists() else 0

    def await_arrivals(self, count: int) -> None:
        give_up = clock.monotonic_ns() + 60_000_000_000
        while self.arrived < count:
            assert clock.monotonic_ns() < give_up, "the load did not start"
            clock.sleep(0.02)

    def rows(self) -> Rows:
        return rundir.load(self.folder).table.rows

    def outcomes(self) -> dict[str, int]:
        values, counts = np.unique(self.rows()["outcome"], return_counts=True)
        return {Outcome(value).name: int(count) for value, count in zip(values, counts, strict=True)}


@pytest.fixture
def outdoors(tmp_path: Path) -> Iterator[Outdoors]:
    folder = tmp_path / "run"
    folder.mkdir()
    arrivals = tmp_path / "arrivals.jsonl"
    argv = python_module("tests.load_server", json.dumps({"service_ms": 200, "log": str(arrivals)}))
    with Server(argv, log=tmp_path / "server.log", env={"PYTHONPATH": str(ROOT)}) as server:
        yield Outdoors(folder, server, arrivals)


def children_of(pid: int) -> list[int]:
    """Process ids of the workers below `pid`."""
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid=,args="], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "loadtest.swarm.worker" in line]


@pytest.mark.live
@pytest.mark.parametrize(("workers", "reactor"), [(1, "hub"), (1, "epoll"), (2, "hub")])
def test_every_request_is_sent_once_and_drained(outdoors: Outdoors, workers: int, reactor: str) -> None:
    """All rows end well, the server saw each once, nothing is printed by Locust, every worker wrote its journal."""
    outdoors.plan(BRIEF)
    process = outdoors.start(workers, reactor)
    out, errors = process.communicate(timeout=100)
    assert (0, "") == (process.returncode, errors)
    assert {"OK": BRIEF} == outdoors.outcomes()
    assert BRIEF == outdoors.arrived
    assert set(range(workers)) == set(outdoors.rows()["worker"].tolist())
    assert msgspec.json.decode(out)["stopped_at_s"] is None


@pytest.mark.live
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_order(outdoors: Outdoors, workers: int, number: signal.Signals) -> None:
    """What was due later is not sent, what is in flight is marked, the rest keeps its answers."""
    process = outdoors.start(workers)
    outdoors.await_arrivals(20)
    process.send_signal(number)
    out, errors = process.communicate(timeout=100)
    assert (0, "") == (process.returncode, errors)
    outcomes = outdoors.outcomes()
    assert outcomes.keys() <= {"OK", "INTERRUPTED", "NOT_SENT"}
    assert COUNT == sum(outcomes.values())
    assert outcomes["NOT_SENT"] > 0
    assert 0 < msgspec.json.decode(out)["stopped_at_s"] < COUNT / RATE


@pytest.mark.live
def test_a_killed_worker_is_lost_and_said_so(outdoors: Outdoors) -> None:
    """`kill -9` of one of two: its unreported rows are lost, the other's are all there, and the run ends."""
    process = outdoors.start(2)
    outdoors.await_arrivals(20)
    os.kill(children_of(process.pid)[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=100)
    assert 0 == process.returncode
    rows = outdoors.rows()
    lost = rows["outcome"] == Outcome.LOST_WORKER
    assert 1 == len(set(rows["worker"][lost].tolist()))
    assert {Outcome.OK, Outcome.LOST_WORKER} == set(rows["outcome"].tolist())
    assert 1 == msgspec.json.decode(out)["last"]["workers_lost"]


@pytest.mark.live
def test_a_frozen_worker_accounts_for_every_request(outdoors: Outdoors) -> None:
    """A worker stopped beyond the lateness limit comes back, skips what is too late, and nothing is sent twice."""
    process = outdoors.start(2)
    outdoors.await_arrivals(20)
    worker = children_of(process.pid)[0]
    os.kill(worker, signal.SIGSTOP)
    clock.sleep(4.5)  # longer than Locust's own patience of three heartbeats
    os.kill(worker, signal.SIGCONT)
    _, errors = process.communicate(timeout=100)
    assert (0, "") == (process.returncode, errors)
    outcomes = outdoors.outcomes()
    assert {"OK", "SKIPPED_LATE"} == outcomes.keys()
    assert COUNT == sum(outcomes.values())
    assert outcomes["OK"] == outdoors.arrived


@pytest.mark.live
def test_a_dead_master_takes_its_workers_along_and_the_journals_stay(outdoors: Outdoors) -> None:
    """After `kill -9` of the master no worker is left, and the run is rebuilt from what they wrote."""
    process = outdoors.start(2)
    outdoors.await_arrivals(60)
    workers = children_of(process.pid)
    process.kill()
    process.communicate(timeout=100)
    give_up = clock.monotonic_ns() + 20_000_000_000
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert clock.monotonic_ns() < give_up, "a worker outlived its master"
        clock.sleep(0.02)
    outcomes = outdoors.outcomes()
    assert COUNT == sum(outcomes.values())
    assert outcomes["OK"] > 0
    assert outcomes["LOST_WORKER"] > 0


def test_two_runs_in_one_process(outdoors: Outdoors, tmp_path: Path) -> None:
    """A demo or a search makes many runs one after the other in one process."""
    outdoors.plan(BRIEF)
    twice = PROGRAM.replace("measurement = _replay", "import shutil\nfirst = _replay", 1).replace(
        "rundir.write_table",
        f"other = Path({str(tmp_path / 'second')!r}); other.mkdir()\n"
        "shutil.copy(directory / 'schedule.npz', other)\n"
        "measurement = _replay(endpoint, settings, schedule, other, said.append)\nrundir.write_table",
        1,
    )
    process = subprocess.run(
        [sys.executable, "-P", "-c", twice, str(outdoors.folder), outdoors.server.url, "1", "hub"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (0, "") == (process.returncode, process.stderr)
    assert 2 * BRIEF == outdoors.arrived


def test_a_worker_that_cannot_write_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    """No schedule in the directory: the reason reaches the caller, nothing hangs."""
    from loadtest.replay.endpoint import Endpoint
    from loadtest.replay.sender import SenderOptions
    from loadtest.swarm.coordinator import LoadPlan
    from loadtest.swarm.embed import run_load

    endpoint = Endpoint.parse("http://127.0.0.1:1").resolve()
    with pytest.raises(GoodputError, match=r"worker 0: WorkloadError: .*schedule"):
        run_load(LoadPlan("r", tmp_path, endpoint, SenderOptions()))
