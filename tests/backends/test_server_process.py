"""The emulated server as users meet it: a process of its own, over loopback."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from loadtest import clock
from loadtest.backends.server import command
from loadtest.errors import TargetError
from loadtest.supervise import Server

pytestmark = pytest.mark.live
DEPLOYMENT = "emulated:chunked,model=demo-8b"


@pytest.fixture(scope="module")
def arrival_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "arrivals.jsonl"


@pytest.fixture(scope="module")
def server(arrival_log: Path) -> Iterator[Server]:
    argv = command(DEPLOYMENT, arrival_log=arrival_log)
    with Server(argv, log=arrival_log.with_name("server.log")) as running:
        yield running
    assert running.exit_status == 0
    assert "" == running.log_tail()


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)


def post(connection: http.client.HTTPConnection, **body: object) -> http.client.HTTPResponse:
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def test_ready_line_names_model_and_deployment(server: Server) -> None:
    """What preflight would otherwise have to ask for."""
    assert (DEPLOYMENT, "demo-8b") == (server.ready["deployment"], server.ready["model"])


def test_token_id_prompt_streams_the_asked_tokens(server: Server) -> None:
    """200 ids in, 20 token events out, usage to match."""
    connection = connect(server)
    response = post(
        connection,
        prompt=[300] * 200,
        max_tokens=20,
        ignore_eos=True,
        stream=True,
        stream_options={"include_usage": True},
    )
    events = response.read().decode().strip().split("\n\n")
    connection.close()
    assert 20 == sum('"text":" ' in event for event in events)
    usage = json.loads(events[-2].removeprefix("data: "))["usage"]
    assert {"prompt_tokens": 200, "total_tokens": 220, "completion_tokens": 20} == usage
    assert "data: [DONE]" == events[-1]


def test_prompt_over_the_context_is_400(server: Server) -> None:
    """With vLLM's sentence."""
    connection = connect(server)
    response = post(connection, prompt=[300] * 20_000, max_tokens=1)
    assert 400 == response.status
    assert b"maximum context length is 16384 tokens" in response.read()
    connection.close()


def test_disconnect_frees_the_memory(server: Server) -> None:
    """A running request whose client resets the connection leaves the batch."""
    connection = connect(server)
    response = post(connection, prompt=[300] * 100, max_tokens=10_000, stream=True)
    response.fp.readline()  # it runs
    connection.close()
    response.close()
    give_up = clock.monotonic_ns() + 20_000_000_000
    while 'num_requests_running{engine="0",model_name="demo-8b"} 0.0' not in metrics(server):
        assert clock.monotonic_ns() < give_up, "the aborted request still runs"
        clock.sleep(0.01)
    assert 'kv_cache_usage_perc{engine="0",model_name="demo-8b"} 0.0' in metrics(server)


def test_idle_server_uses_no_cpu(server: Server) -> None:
    """Nothing polls: over a second of idling, at most a hundredth of it is used."""
    metrics(server)
    before = cpu_ticks(server.pid)
    for _ in range(20):
        clock.sleep(0.05)
    assert cpu_ticks(server.pid) - before <= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly_while_streaming(tmp_path: Path, number: signal.Signals) -> None:
    """Exit status 0, nothing on stderr, the arrival log complete."""
    log = tmp_path / "arrivals.jsonl"
    server = Server(command(DEPLOYMENT, arrival_log=log), log=tmp_path / "log").start()
    connection = connect(server)
    response = post(connection, prompt=[300] * 100, max_tokens=10_000, stream=True)
    response.fp.readline()
    os.kill(server.pid, number)
    assert 0 == server.wait()
    server.stop()
    response.close()
    connection.close()
    assert "" == server.log_tail()
    assert [100] == [json.loads(line)["prompt_tokens"] for line in log.read_text().splitlines()]


def test_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    """The parent quotes the child: which address, and why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TargetError, match=f"cannot listen on 127.0.0.1 port {port}: address already in use$"):
            Server(command(DEPLOYMENT, port=port), log=tmp_path / "log").start()


@pytest.mark.parametrize("deployment", ["emulated:chunky", "http://127.0.0.1:1"])
def test_deployment_it_cannot_serve_is_one_sentence(tmp_path: Path, deployment: str) -> None:
    """No traceback reaches the log."""
    server = Server(command(deployment), log=tmp_path / "log")
    with pytest.raises(TargetError, match="exit status 2") as raised:
        server.start()
    assert deployment in raised.value.message
    assert "Traceback" not in (tmp_path / "log").read_text()


def metrics(server: Server) -> str:
    connection = connect(server)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return page


def cpu_ticks(pid: int) -> int:
    """User and system time of a process, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
