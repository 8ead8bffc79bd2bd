"""The plain locustfile, run by Locust's own command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.supervise import Server, python_module
from metrics import rundir

ROOT = Path(__file__).parents[2]
LOCUSTFILE = ROOT / "loadtest" / "swarm" / "locustfile.py"
COUNT = 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    argv = python_module("tests.load_server", json.dumps({"log": str(tmp_path / "arrivals")}))
    with Server(argv, log=tmp_path / "server.log", env={"PYTHONPATH": str(ROOT)}) as running:
        yield running


def free_port() -> str:
    """A master's port of our own: a neighbour's Locust must not send us its workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def locust(folder: Path, host: str, *words: str) -> subprocess.CompletedProcess[str]:
    asked = ["--trace", "azure-conv", "--requests", str(COUNT), "--rate", "30", "--out", str(folder / "run")]
    port = free_port()
    words = (*asked, "--master-bind-port", port, "--master-port", port, *words)
    return subprocess.run(
        [sys.executable, "-P", "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--host", host, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.live
@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_locust_runs_it(server: Server, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Alone and with workers: every request once, a complete run directory, Locust's CSV, exit 0."""
    done = locust(tmp_path, server.url, "--csv", str(tmp_path / "stats"), *words)
    assert 0 == done.returncode, done.stderr
    run = rundir.load(tmp_path / "run")
    assert "complete" == run.info.state
    assert (run.table.rows["outcome"] == 0).all()
    assert COUNT == len((tmp_path / "arrivals").read_text().splitlines())
    assert f"request,{COUNT}," in (tmp_path / "stats_stats.csv").read_text()
    assert "Traceback" not in done.stderr


@pytest.mark.live
def test_an_unreachable_host_is_our_exit_code(tmp_path: Path) -> None:
    """One sentence and exit 5, not Locust's 0 or 1."""
    done = locust(tmp_path, "http://127.0.0.1:1")
    assert 5 == done.returncode, done.stderr
    assert "cannot connect" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.live
def test_rebalancing_is_refused(server: Server, tmp_path: Path) -> None:
    """It would replay a part of the schedule twice: exit 2, nothing is sent."""
    done = locust(tmp_path, server.url, "--enable-rebalancing")
    assert 2 == done.returncode, done.stderr
    assert "--enable-rebalancing" in done.stderr
    assert not (tmp_path / "arrivals").exists()
