"""Deployments of several processes: started, loaded, sampled, stopped; nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from loadtest import clock
from loadtest.cli.main import run as goodput
from loadtest.errors import TargetError
from loadtest.launch import Ensemble, ports_in
from loadtest.replay.options import SenderOptions
from loadtest.sides import EndpointOptions, LaunchFile, launched
from loadtest.supervise import Server
from loadtest.target import LoadSettings
from metrics import rundir
from metrics.records import Outcome

EXAMPLES = Path(__file__).parents[1] / "examples"
READY = "import os, sys; print('{\"ready\": true}', flush=True); "

# A page that answers 200 for ever, as a stand-in for an instance behind a router.
PAGE = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"vllm:num_requests_running 7\\n")
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def launch_file(folder: Path) -> Path:
    """Our emulated server with such a page before it."""
    file = folder / "two.toml"
    server = ["-P", "-m", "loadtest.backends.server", "--deployment", "emulated:chunked,model=demo-8b"]
    document = f"""
        command = {msgspec.json.encode([sys.executable, *server, "--host", "127.0.0.1", "--port", "{port}"]).decode()}
        ready_timeout_s = 60
        [[before]]
        name = "prefill"
        command = {msgspec.json.encode([sys.executable, "-c", PAGE, "{prefill_port}", str(folder)]).decode()}
        ready = "http://127.0.0.1:{{prefill_port}}/health"
        [metrics]
        server = "/metrics"
        prefill = "http://127.0.0.1:{{prefill_port}}/metrics"
    """
    file.write_text(document)
    return file


def running(word: str) -> list[int]:
    """Ids of the other processes whose command line holds `word`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue
        if word in text and int(entry.parent.name) != os.getpid():
            found.append(int(entry.parent.name))
    return found


def test_free_ports_are_found_for_every_name() -> None:
    """Each `{..._port}` its own, `{port}` always, none where a value is set."""
    ports = ports_in(["--port {port}", "{a_port} {b_port}", "{a_port}", "{model}"], {"b_port": "5"})
    assert {"port", "a_port"} == ports.keys()
    assert 2 == len(set(ports.values()))


@pytest.mark.live
def test_one_that_fails_takes_the_others_along(tmp_path: Path) -> None:
    """The error is the dead one's last words, and the one that came up is gone."""
    good = Server([sys.executable, "-c", READY + "import time; time.sleep(60)"], log=tmp_path / "a.log", name="a")
    bad = Server([sys.executable, "-c", "import sys; sys.exit('no model')"], log=tmp_path / "b.log", name="b")
    with pytest.raises(TargetError, match="no model"):
        Ensemble([good, bad]).start()
    assert good.exit_status is not None


@pytest.mark.live
def test_a_deployment_is_started_loaded_sampled_and_stopped(tmp_path: Path) -> None:
    """Every request answered, both pools' pages sampled, the command repeats the run, no process is left."""
    file = launch_file(tmp_path)
    words = ["--trace", "azure-conv", "--rate", "20", "--requests", "10", "--out", str(tmp_path / "run")]
    assert goodput(["launch", str(file), *words]) in (0, 4)
    run = rundir.load(tmp_path / "run")
    assert (run.table.rows["outcome"] == 0).all()
    assert ["goodput", "launch", str(file)] == run.info.command[:3]
    table = msgspec.json.decode((tmp_path / "run" / "server.json").read_bytes())
    peaks = next(line for line in table if line["quantity"] == "requests running, peak")["servers"]
    assert 7 == peaks["prefill"]
    assert peaks["server"] is not None
    assert [] == running(str(tmp_path))


@pytest.mark.live
def test_a_part_that_dies_is_noticed(tmp_path: Path) -> None:
    """The router may live on: the deployment is dead all the same."""
    settings = LoadSettings(SenderOptions())
    with launched(launch_file(tmp_path), {}, settings, EndpointOptions()).open(tmp_path) as target:
        assert target.died() is None
        for page in running(tmp_path.name):
            os.kill(page, signal.SIGKILL)
        give_up = clock.monotonic_ns() + 30_000_000_000
        while (died := target.died()) is None:
            assert clock.monotonic_ns() < give_up, "nobody noticed"
            clock.sleep(0.02)
    assert "prefill" in died.message


@pytest.mark.live
def test_a_deployment_killed_in_mid_run(tmp_path: Path) -> None:
    """Exit 5 with its name, what was measured before is written, and no process is left."""
    file, folder = launch_file(tmp_path), tmp_path / "run"
    words = ["--trace", "azure-conv", "--rate", "20", "--duration", "4s", "--out", str(folder)]
    command = [sys.executable, "-P", "-m", "loadtest.cli.main", "launch", str(file), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=EXAMPLES.parent) as process:
        give_up = clock.monotonic_ns() + 60_000_000_000
        while not (folder / "records-0.bin").exists() or (folder / "records-0.bin").stat().st_size < 2000:
            assert clock.monotonic_ns() < give_up, "the load did not start"
            clock.sleep(0.02)
        for server in running("loadtest.backends.server --deployment emulated:chunked,model=demo-8b --host"):
            if _descends(server, process.pid):
                os.kill(server, signal.SIGKILL)
        _, errors = process.communicate(timeout=100)
    assert 5 == process.returncode, errors
    assert "ended with" in errors
    outcomes = {Outcome(value).name for value in rundir.load(folder).table.rows["outcome"]}
    assert "OK" in outcomes
    assert outcomes & {"REFUSED", "CONNECTION_LOST", "RESET", "CONNECT_FAILED", "CONNECT"}
    assert [] == running(tmp_path.name)


def _descends(pid: int, ancestor: int) -> bool:
    """Whether `ancestor` started `pid`, directly or not."""
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == ancestor


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_launch_files(file: Path) -> None:
    """Each can be read, has a place for each of its values, and samples its pages."""
    read = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), LaunchFile)
    assert read.metrics
    assert launched(file, {}, LoadSettings(SenderOptions()), EndpointOptions())
