"""Processes below one, wherever they stand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loadtest.descendants import Process, descendants, kill

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
CHILD = """
import subprocess, sys
subprocess.Popen(["sleep", "100"], start_new_session=True)
print("up", flush=True)
sys.stdin.read()
"""


def test_a_child_and_its_child_in_another_session() -> None:
    """Parents come first; killed, both are gone, and what has ended is no descendant."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (sleeper,) = descendants(parent.pid)
        kill([Process(sleeper.pid, sleeper.started + 1)])  # somebody else's by now: left alone
        assert [sleeper] == descendants(parent.pid)
        kill([sleeper])
        assert [] == descendants(sleeper.pid)
        parent.kill()


def test_nothing_runs_below_a_process_that_is_none() -> None:
    """Nor is anything killed."""
    assert [] == descendants(2**22 + 1)
    kill([Process(2**22 + 1, 1)])
