"""What may go wrong between machines, with real processes: afterwards every planned request is accounted for exactly
once, nothing was sent twice, the exit code is not 0, and the report says what is missing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest import clock
from loadtest.cli.main import run as goodput
from metrics import rundir
from tests.swarm.crew import Crew, end

pytestmark = [pytest.mark.live, pytest.mark.faults]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path)
    yield made
    made.close()


def test_one_of_three_is_killed_at_half_time(crew: Crew) -> None:
    """`kill -9`: its part is lost and named, the other two offer theirs to the end."""
    workers = [crew.worker() for _ in range(3)]
    master = crew.master(3, silence_s=5, drawn=True)
    crew.await_arrivals(crew.planned // 2)
    workers[0].kill()
    code, errors = end(master)
    assert 4 == code
    assert "worker_lost" in (crew.run / "report.html").read_text()
    assert "were lost with their worker" in errors
    assert [0, 0] == [end(worker)[0] for worker in workers[1:]]
    outcomes = crew.account()
    assert {"OK", "LOST_WORKER"} == outcomes.keys()
    assert crew.planned / 10 < outcomes["LOST_WORKER"] <= crew.planned / 3
    assert "worker_lost" in crew.findings()


def test_one_of_three_is_frozen_for_seven_seconds(tmp_path: Path) -> None:
    """It comes back, skips what is too late, and replays nothing twice; the report says so."""
    crew = Crew(tmp_path, rate=30, seconds=10.0)
    try:
        workers = [crew.worker() for _ in range(3)]
        master = crew.master(3)
        crew.await_arrivals(30)
        workers[1].send_signal(signal.SIGSTOP)
        clock.sleep(7)
        workers[1].send_signal(signal.SIGCONT)
        code, _ = end(master)
        assert 4 == code
        assert [0, 0, 0] == [end(worker)[0] for worker in workers]
        outcomes = crew.account()
        assert outcomes.pop("SKIPPED_LATE") > 0
        assert {"OK"} == outcomes.keys()
        assert "schedule_not_offered" in crew.findings()
    finally:
        crew.close()


def test_the_master_is_killed(crew: Crew) -> None:
    """The workers notice, stop sending and keep their journals; merged into the dead run they tell it all."""
    workers = [crew.worker(silence_s=6) for _ in range(3)]
    master = crew.master(3)
    crew.await_arrivals(crew.planned // 2)
    master.kill()
    for worker in workers:
        code, errors = end(worker)
        assert 5 == code, errors
        assert "--merge" in errors
    folders = crew.workers_folders()
    assert 3 == len(folders)
    merges = [word for folder in folders for word in ("--merge", str(folder))]
    assert 0 == goodput(["report", str(crew.run), *merges])
    outcomes = crew.account()
    assert outcomes["OK"] >= crew.planned // 2
    assert "LOST_WORKER" not in outcomes


def test_fewer_workers_than_expected_is_no_run(crew: Crew) -> None:
    """Two of three: nothing is sent, never two thirds of the load under the full label."""
    workers = [crew.worker() for _ in range(2)]
    master = crew.master(3, "--wait", "8s")
    code, errors = end(master)
    assert 4 == code
    assert "of 3 workers came up" in errors
    for worker in workers:
        code, errors = end(worker)
        assert 4 == code
        assert "nothing was sent" in errors
    assert [] == crew.arrived()


def test_a_late_worker_is_not_needed(crew: Crew) -> None:
    """It comes in the middle of the run, gets nothing, says so, and changes nothing."""
    workers = [crew.worker() for _ in range(2)]
    master = crew.master(2)
    crew.await_arrivals(10)
    late = crew.worker(wait="5s")
    assert end(master)[0] in (0, 4)  # 4 where the machine was too busy to send on time
    assert [0, 0] == [end(worker)[0] for worker in workers]
    code, errors = end(late)
    assert code in (4, 5), errors  # 5 when the run was over before it came
    assert {"OK": crew.planned} == crew.account()
    assert not crew.findings() & {"worker_lost", "schedule_not_offered"}


def test_a_worker_that_cannot_keep_time_is_the_reports_first_word(crew: Crew) -> None:
    """A core shared with others: the worker runs a fifth of the time. The run is not the server's figure."""
    workers = [crew.worker() for _ in range(2)]
    master = crew.master(2)
    crew.await_arrivals(10)
    over = threading.Event()
    burner = threading.Thread(target=_starve, args=(workers[0], over))
    burner.start()
    code, errors = end(master)
    over.set()
    burner.join()
    assert 4 == code
    assert "The client sent late" in errors
    assert "limited_by_client" in crew.findings()
    assert {"OK": crew.planned} == crew.account()


def _starve(process: subprocess.Popen[str], over: threading.Event) -> None:
    while process.poll() is None and not over.is_set():
        process.send_signal(signal.SIGSTOP)
        clock.sleep(0.16)
        process.send_signal(signal.SIGCONT)
        clock.sleep(0.04)


@pytest.mark.parametrize("times", [1, 2])
def test_the_user_stops_the_master(crew: Crew, times: int) -> None:
    """Once: in order, partial results. Twice: at once; the journals are there to be merged. No worker goes on."""
    workers = [crew.worker() for _ in range(3)]
    master = crew.master(3)
    crew.await_arrivals(crew.planned // 4)
    for _ in range(times):
        master.send_signal(signal.SIGINT)
        clock.sleep(0.2 if times > 1 else 0)  # two of one kind at one moment are one
    assert 130 == end(master)[0]
    for worker in workers:
        end(worker)
    stopped_at = len(crew.arrived())
    outcomes = crew.account()
    assert crew.planned == sum(outcomes.values())
    assert outcomes.get("OK", 0) + outcomes.get("INTERRUPTED", 0) > 0
    assert stopped_at < crew.planned
    if times == 1:
        assert "partial" == rundir.read_info(crew.run).state
        assert outcomes.keys() <= {"OK", "INTERRUPTED", "NOT_SENT"}


def test_the_user_stops_one_worker(crew: Crew) -> None:
    """Ctrl-C at one machine: its rest is not sent and named, the others go on to the end."""
    workers = [crew.worker() for _ in range(3)]
    master = crew.master(3)
    crew.await_arrivals(crew.planned // 4)
    workers[2].send_signal(signal.SIGINT)
    assert 130 == end(workers[2])[0]
    assert 4 == end(master)[0]
    outcomes = crew.account()
    assert {"OK", "NOT_SENT"} <= outcomes.keys() <= {"OK", "NOT_SENT", "INTERRUPTED"}
    assert "schedule_not_offered" in crew.findings()


# Says to the master's port what a neighbour's Locust, another version of ours and a scanner may say.
STRANGER = """
import socket, sys
import zmq
from locust.rpc import Message
port = int(sys.argv[1])
with socket.create_connection(("127.0.0.1", port)) as scanner:
    scanner.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
dealer = zmq.Context().socket(zmq.DEALER)
dealer.setsockopt(zmq.IDENTITY, b"stranger")
dealer.connect(f"tcp://127.0.0.1:{port}")
for kind, data in [("goodput.claim", b"junk"), ("goodput.beat", None), ("heartbeat", None), ("stats", {"x": 1}),
                   ("exception", {}), ("bogus", 1)]:
    dealer.send(Message(kind, data, "stranger").serialize())
for frame in (b"", b"\\xc1", b"\\x93\\x01", b"\\x01"):
    dealer.send(frame)
dealer.close(linger=5000)
"""


def test_strangers_at_the_port_change_nothing(crew: Crew) -> None:
    """No password keeps them out; what they say costs no request, and no worker."""
    workers = [crew.worker() for _ in range(2)]
    master = crew.master(2)
    crew.await_arrivals(10)
    subprocess.run([sys.executable, "-c", STRANGER, str(crew.port)], check=True, timeout=60)
    code, errors = end(master)
    assert code in (0, 4), errors  # 4 where the machine was too busy to send on time
    assert [0, 0] == [end(worker)[0] for worker in workers]
    assert {"OK": crew.planned} == crew.account()
    assert "Traceback" not in errors
