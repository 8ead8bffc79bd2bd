"""The plain locustfile, run by Locust's own command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest import clock
from loadtest.supervise import Server, python_module
from metrics import rundir
from metrics.records import Outcome

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
    # Locust's own CSV writer may meet a file that it has closed already; a traceback through our code is a fault.
    assert f"{ROOT}/loadtest/" not in done.stderr


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_a_stop_is_in_order(server: Server, tmp_path: Path, number: signal.Signals) -> None:
    """TERM too, which Locust itself does not hear in a run by a shape: partial results of all rows, exit 130."""
    asked = ["--headless", "--host", server.url, "--requests", "600", "--rate", "20", "--out", str(tmp_path / "run")]
    argv = [sys.executable, "-P", "-m", "locust", "-f", str(LOCUSTFILE), *asked]
    environment, arrivals = {**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path / "arrivals"
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        give_up = clock.monotonic_ns() + 60_000_000_000
        while not arrivals.exists() or len(arrivals.read_text().splitlines()) < 10:
            assert clock.monotonic_ns() < give_up, "the load did not start"
            clock.sleep(0.02)
        process.send_signal(number)
        assert 130 == process.wait(60)
    run = rundir.load(tmp_path / "run")
    assert "partial" == run.info.state
    assert 600 == len(run.table.rows)
    assert not (run.table.rows["outcome"] == Outcome.LOST_WORKER).any()


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


@pytest.mark.live
def test_a_worker_that_fetches_the_file_from_its_master(server: Server, tmp_path: Path) -> None:
    """`locust -f - --worker`: the file comes by message, the shard is replayed, both end with 0."""
    port = free_port()
    argv = [sys.executable, "-P", "-m", "locust", "-f", "-", "--worker", "--master-host", "127.0.0.1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*argv, "--master-port", port], env=environment, stderr=subprocess.DEVNULL) as worker:
        try:
            words = ("--master", "--expect-workers", "1", "--master-bind-port", port)
            done = locust(tmp_path, server.url, *words)
            assert 0 == done.returncode, done.stderr
            assert 0 == worker.wait(60)
        finally:
            worker.kill()
    assert COUNT == len((tmp_path / "arrivals").read_text().splitlines())


@pytest.mark.live
def test_the_web_page_starts_a_test(server: Server, tmp_path: Path) -> None:
    """A form sent as the page sends it: the run takes place, and Locust's statistics count its requests."""
    port = free_port()
    argv = [sys.executable, "-P", "-m", "locust", "-f", str(LOCUSTFILE), "--web-port", port, "--host", server.url]
    asked = ["--requests", str(COUNT), "--rate", "30", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*argv, *asked], env=environment, stderr=subprocess.DEVNULL) as page:
        try:
            # Numbers as the page sends them: texts, and empty where there is none.
            form = f"user_count=1&spawn_rate=1&host={server.url}&rate=30&requests={COUNT}&duration=&model=".encode()
            await_page(f"http://127.0.0.1:{port}/stats/requests")
            strangers: list[tuple[dict[str, str], bytes]] = [
                ({"Origin": "http://elsewhere.example"}, form),
                ({"Host": f"rebound.example:{port}"}, form),
                ({"Sec-Fetch-Site": "cross-site"}, form),
                ({}, form + b"&out=chosen-by-a-page"),
            ]
            for headers, sent in strangers:
                assert 403 == status(f"http://127.0.0.1:{port}/swarm", sent, headers)
            assert await_page(f"http://127.0.0.1:{port}/swarm", form)["success"]
            give_up = clock.monotonic_ns() + 90_000_000_000
            while not (tmp_path / "run" / rundir.RECORDS).exists():
                assert clock.monotonic_ns() < give_up, "the test did not end"
                clock.sleep(0.05)
            stats = await_page(f"http://127.0.0.1:{port}/stats/requests")["stats"]
            assert COUNT == next(row["num_requests"] for row in stats if row["name"] == "request")
        finally:
            page.terminate()
    assert "complete" == rundir.read_info(tmp_path / "run").state


def status(url: str, form: bytes, headers: dict[str, str]) -> int:
    """How a page that is up answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, form, headers), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def await_page(url: str, form: bytes | None = None) -> dict[str, Any]:
    """What the page answers, once it is there."""
    give_up = clock.monotonic_ns() + 60_000_000_000
    while True:
        try:
            with urllib.request.urlopen(url, form, timeout=10) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except OSError:
            assert clock.monotonic_ns() < give_up, "Locust's web page did not come up"
            clock.sleep(0.05)


@pytest.mark.live
def test_other_machines_are_let_in_by_a_token_only(server: Server, tmp_path: Path) -> None:
    """`--master-bind-host` beyond loopback without one: exit 2 and a sentence, nothing is sent; a bad file likewise."""
    wide = ("--master", "--expect-workers", "1", "--master-bind-host", "0.0.0.0")
    for words, said in ((wide, "--token-file"), ((*wide, "--token-file", "nowhere"), "nowhere")):
        done = locust(tmp_path, server.url, *words)
        assert 2 == done.returncode, done.stderr
        assert said in done.stderr
    assert not (tmp_path / "arrivals").exists()
