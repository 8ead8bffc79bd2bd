"""Whole `goodput run` commands on a disk that is full for a while, or for good: what was measured is not lost."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest import clock
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from loadtest.supervise import python_module
from metrics import rundir
from metrics.journal import read_journal
from metrics.records import Outcome
from tests.replay.player import Play, Player
from tests.replay.streams import answer_bytes
from tests.replay.test_locust_run import ROOT, trace_of

pytestmark = pytest.mark.live

ROWS = 40
ANSWER = answer_bytes([" a", " b"])

# A disk that takes the journal's first flushes and nothing of it any more, and a patience that a test can wait for.
FULL_FOR_GOOD = """
import errno, os
import loadtest.swarm.replayer as replayer
from metrics import appender
replayer.DISK_PATIENCE_NS = 200_000_000
class Full:
    calls = 0
    def pwrite(self, descriptor, data, offset):
        self.calls += 1
        if self.calls > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(descriptor, data, offset)
    def __getattr__(self, name):
        return getattr(os, name)
appender.os = Full()
from loadtest.cli.main import main
main()
"""


def command(folder: Path, url: str, rows: int = ROWS) -> list[str]:
    trace = trace_of(folder / "t.csv", rows, 0.05)
    return ["run", "--target", url, "--model", "m", "--trace", str(trace), "--out", str(folder / "run"), "--json"]


def start(argv: list[str]) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcomes(folder: Path) -> dict[str, int]:
    found = [Outcome(value).name for value in rundir.load(folder).table.rows["outcome"]]
    return {name: found.count(name) for name in found}


def await_that(condition: object, seconds: float = 60.0) -> None:
    give_up_ns = clock.monotonic_ns() + int(seconds * 1e9)
    while not condition():  # type: ignore[operator]
        assert clock.monotonic_ns() < give_up_ns
        clock.sleep(0.02)


def test_a_disk_that_is_full_until_all_is_answered(tmp_path: Path) -> None:
    """From the first rows to after the last answer no file may grow; then it may, and every row is there."""
    journal = tmp_path / "run" / "records-0.bin"
    with Player(lambda *_: Play([(0, ANSWER)])) as player:
        process = start(python_module("loadtest.cli.main", *command(tmp_path, player.url())))
        await_that(lambda: journal.exists() and journal.stat().st_size > 2500)
        _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (journal.stat().st_size + 100, most))
        await_that(lambda: len(player.received) >= ROWS)
        clock.sleep(0.05)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        out, errors = process.communicate(timeout=100)
    assert {"OK": ROWS} == outcomes(tmp_path / "run"), errors
    assert {"ok": ROWS} == json.loads(out)["requests"]["by_outcome"]
    assert not read_journal(journal).torn


def test_a_journal_that_cannot_be_ended_ends_the_run_in_order(tmp_path: Path) -> None:
    """The report holds what was written and says so, exit 4; the disk's own word is in the sentence."""
    with Player(lambda *_: Play([(0, ANSWER)])) as player:
        process = start([sys.executable, "-P", "-c", FULL_FOR_GOOD, *command(tmp_path, player.url())])
        out, errors = process.communicate(timeout=100)
    assert ExitCode.INVALID == process.returncode, errors
    assert "the disk takes nothing more: No space left on device" in errors
    assert "worker 0: the disk of its journal is full (No space left on device): make room" in errors
    found = outcomes(tmp_path / "run")
    assert {"OK", "LOST_WORKER"} == found.keys()
    assert found["OK"] == json.loads(out)["requests"]["by_outcome"]["ok"]
    assert "partial" == rundir.read_info(tmp_path / "run").state


def test_a_run_whose_rows_wait_for_too_long_stops_sending(tmp_path: Path) -> None:
    """Twenty seconds of load, and memory for some rows only: what is under way ends, nothing more is sent, exit 4."""
    small = "from metrics import journal; journal.MOST_WAITING_BYTES = 2000\n" + FULL_FOR_GOOD
    with Player(lambda *_: Play([(0, ANSWER)])) as player:
        process = start([sys.executable, "-P", "-c", small, *command(tmp_path, player.url(), 10 * ROWS)])
        _, errors = process.communicate(timeout=100)
        assert len(player.received) < 9 * ROWS
    assert ExitCode.INVALID == process.returncode, errors
    assert "the disk takes nothing more: No space left on device" in errors
    info = rundir.read_info(tmp_path / "run")
    assert ("partial", 10 * ROWS) == (info.state, info.requests)


def test_a_result_that_cannot_be_written_is_made_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The journals fit, records.npz does not: one sentence, exit 2, and `goodput report` has all of it afterwards."""
    journal = tmp_path / "run" / "records-0.bin"
    with Player(lambda *_: Play([(0, ANSWER)])) as player:
        process = start(python_module("loadtest.cli.main", *command(tmp_path, player.url())))
        await_that(lambda: journal.exists() and journal.stat().st_size > 2500)
        # The journal of 40 rows has some 11 kB; the table of their forty columns is larger, and so is the page.
        _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (13_000, most))
        out, errors = process.communicate(timeout=100)
    assert ExitCode.USAGE == process.returncode, (out, errors)
    error = json.loads(out)["error"]
    assert "cannot write" in error["message"]
    assert "File too large" in error["message"]
    assert f"goodput report {tmp_path / 'run'}" in error["hint"]
    assert {"OK": ROWS} == outcomes(tmp_path / "run")
    assert ExitCode.OK == run(["report", "--json", str(tmp_path / "run")])
    assert {"ok": ROWS} == json.loads(capsys.readouterr().out)["requests"]["by_outcome"]
