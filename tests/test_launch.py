"""Deployments of several processes: started, loaded, sampled, stopped; nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from loadtest import clock
from loadtest.cli.launch import launch
from loadtest.cli.load_options import endpoint_of
from loadtest.cli.main import run as goodput
from loadtest.descendants import descendants
from loadtest.errors import TargetError
from loadtest.launch import Ensemble, free_ports, ports_in, supervised
from loadtest.replay.options import SenderOptions
from loadtest.sides import EndpointOptions, LaunchFile, launched
from loadtest.supervise import Server
from loadtest.target import LoadSettings
from metrics import rundir
from metrics.journal import read_journal
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
        gpus = 2
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


def trace_of(folder: Path, output_tokens: list[int]) -> str:
    """A trace with these answers, ten requests a second."""
    file = folder / "trace.csv"
    rows = [f"2024-01-01 00:00:{i / 10:09.6f},50,{tokens}" for i, tokens in enumerate(output_tokens)]
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return str(file)


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
    """Every request answered, both pools' pages sampled, the command repeats the run, its GPUs count, none is left."""
    file = launch_file(tmp_path)
    words = ["--trace", trace_of(tmp_path, [5] * 10), "--out", str(tmp_path / "run")]
    assert goodput(["launch", str(file), *words]) in (0, 4)
    run = rundir.load(tmp_path / "run")
    assert (run.table.rows["outcome"] == 0).all()
    assert 2 == run.info.gpus
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
        _await(lambda: target.died() is not None, "nobody noticed")
        died = target.died()
    assert died is not None
    assert "prefill" in died.message


@pytest.mark.live
def test_a_server_does_not_outlive_its_watcher(tmp_path: Path) -> None:
    """Killed without a chance to clean up, as by the out-of-memory killer, it takes the foreign server along."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    page = [sys.executable, "-c", PAGE, port, str(tmp_path)]
    server = supervised("page", url, url, 60.0, page, {}, tmp_path / "page.log")
    with server:
        os.kill(server.pid, signal.SIGKILL)
        _await(lambda: not running(str(tmp_path)), "the server lives on")
        assert "signal SIGKILL" in server.died().message


@pytest.mark.live
def test_a_deployment_killed_in_mid_run(tmp_path: Path) -> None:
    """Exit 5 with its name, what was measured before is written, and no process is left."""
    file, folder = launch_file(tmp_path), tmp_path / "run"
    # The kill ends the load: the answers of 3,000 tokens would take another half a minute.
    words = ["--trace", trace_of(tmp_path, [3, 3, 3, *[3000] * 7]), "--out", str(folder)]
    command = [sys.executable, "-P", "-m", "loadtest.cli.main", "launch", str(file), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=EXAMPLES.parent) as process:
        _await(lambda: _answered(folder / "records-0.bin") > 0, "nothing was answered")
        # All are found before the first is killed: the child of a dead one descends from nobody.
        servers = [pid for pid in running("-m loadtest.backends.server --dep") if _descends(pid, process.pid)]
        for server in servers:
            os.kill(server, signal.SIGKILL)
        _, errors = process.communicate(timeout=100)
    assert 2 == len(servers), "the server and its watcher"
    assert 5 == process.returncode, errors
    assert "ended with signal SIGKILL" in errors
    outcomes = {Outcome(value).name for value in rundir.load(folder).table.rows["outcome"]}
    assert "OK" in outcomes
    assert outcomes & {"CONNECTION_LOST", "TRUNCATED_STREAM"}
    assert [] == running(tmp_path.name)


STUBBORN = """
import http.server, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(100)"]
subprocess.Popen([*sleep, sys.argv[2]], start_new_session=len(sys.argv) > 3)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""
# Supervises a server as goodput does, with less patience, and waits for its end.
WATCHED = """
import sys, time
import loadtest.launched as launched
launched.STOP_LIMIT_S = 1
sys.exit(launched.main(sys.argv[1:]))
"""


@pytest.mark.live
@pytest.mark.parametrize("ready", ["/", ""], ids=["loaded", "starting"])
def test_a_server_that_ignores_term_does_not_outlive_goodput(tmp_path: Path, ready: str) -> None:
    """Nor does its child: when goodput was killed, what is left of the group is killed after a while."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    asked = url + ready if ready else "http://127.0.0.1:1/"
    server = [sys.executable, "-c", STUBBORN, url.rpartition(":")[2], str(tmp_path)]
    watcher = [sys.executable, "-P", "-c", WATCHED, url, asked, "60", "--", *server]
    parent = f"""
import sys, time
from pathlib import Path
from loadtest.supervise import Server
server = Server({watcher!r}, log=Path({str(tmp_path / "log")!r}), ready_timeout_s=60)
server.launch()
if {bool(ready)}: server.wait_ready()
print("up", flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", parent], cwd=EXAMPLES.parent, stdout=subprocess.PIPE) as goodputs:
        assert goodputs.stdout is not None
        assert b"up" in goodputs.stdout.readline()
        # The watcher, the server and its child, all with the folder's name in their command line.
        _await(lambda: len(running(f"sleep(100) {tmp_path}")) == 1, "the server's child did not start")
        goodputs.kill()
    _await(lambda: not running(str(tmp_path)), "something lives on")


@pytest.mark.live
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """Another program answers 200 there: it is not measured in the place of ours, which could not even listen."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    with supervised("page", url, url, 60.0, [sys.executable, "-c", PAGE, port], {}, tmp_path / "a.log"):
        other = supervised("other", url, url, 60.0, [sys.executable, "-c", PAGE, port], {}, tmp_path / "b.log")
        with pytest.raises(TargetError, match="another program listens at"):
            other.start()


@pytest.mark.live
def test_what_it_answers_instead_of_200_is_said(tmp_path: Path) -> None:
    """A health path that is not there would else be waited for without a reason."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    missing = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    server = supervised("files", url, f"{url}/health", 3.0, missing, {}, tmp_path / "log")
    with pytest.raises(TargetError, match="did not answer 200 but 404 within 3 s"):
        server.start()
    assert "exit status 3" in server.died().message


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
@pytest.mark.parametrize("words", [["--keep"], ["--requests", "3"]], ids=["keep", "load"])
def test_a_start_that_takes_too_long_can_be_ended(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    """At once, with exit 130, and nothing is left: a model may take ten minutes to load."""
    file = tmp_path / "slow.toml"
    sleeper = [sys.executable, "-c", "import time; time.sleep(100)", str(tmp_path)]
    file.write_text(f"command = {msgspec.json.encode(sleeper).decode()}\n")
    command = [sys.executable, "-P", "-m", "loadtest.cli.main", "launch", str(file), *words]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        _await(lambda: len(running(f"sleep(100) {tmp_path}")) == 2, "the server was not started")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert 130 == process.returncode, errors
    assert [] == running(f"sleep(100) {tmp_path}")
    assert [] == list(tmp_path.glob("goodput-launch-*"))


@pytest.mark.live
def test_the_log_that_an_error_names_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --keep there is no run directory: the folder stays when a server did not come up."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = tmp_path / "bad.toml"
    file.write_text(f"command = {msgspec.json.encode([sys.executable, '-c', 'raise SystemExit(9)']).decode()}\n")
    assert 5 == goodput(["launch", str(file), "--keep"])
    assert 1 == len(list(tmp_path.glob("goodput-launch-*/server.log")))


def test_the_options_of_a_request_reach_the_launched_server(tmp_path: Path) -> None:
    """All that `goodput run --target` takes: none is left out without a word."""
    words = ["--api", "chat", "--extra-body", "a=1", "--path", "/own", "--no-stream", "--api-key-env", "KEY"]
    words += ["--rename-field", "max_tokens=mine", "--drop-field", "min_tokens"]
    words += ["--header", "X: y", "--ca-file", "ca.pem", "--no-verify", "--model", "mine"]
    with launch.make_context("launch", [str(launch_file(tmp_path)), *words]) as context:
        asked = endpoint_of(context.params).endpoint("http://127.0.0.1:1")
    assert ("chat", {"a": 1}, "/own", False, "KEY") == (
        *(asked.api, asked.extra_body, asked.path),
        *(asked.stream, asked.api_key_env),
    )
    assert ({"max_tokens": "mine"}, ["min_tokens"]) == (asked.rename, asked.leave_out)
    assert ([("X", "y")], "ca.pem", False, "mine") == (asked.headers, asked.ca_file, asked.verify, asked.model)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--extra-body", "word"], "neither K=V nor a JSON object"),
        (["--abort-on", "nonsense"], "not a rule to abort on"),
        (["--metrics-url", "prefill=http://h:1"], "two metrics pages have one name"),
        (["--metrics-url", "ftp://h"], "not an http URL"),
        (["--predict", "torch:chunked"], "has no simulator"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_started(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model may take minutes to load."""
    out = tmp_path / "run"
    assert 2 == goodput(["launch", str(launch_file(tmp_path)), *words, "--requests", "3", "--out", str(out)])
    assert says in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("words", [["--path", "/x"], ["--gpus", "2"], ["--api", "llamacpp"]])
def test_a_launched_deployment_refuses_what_run_refuses(tmp_path: Path, words: list[str]) -> None:
    """A bundled server speaks plain OpenAI, launched or not."""
    file = tmp_path / "own.toml"
    file.write_text('deployment = "emulated:chunked,model=demo-8b"\n')
    assert 2 == goodput(["launch", str(file), *words, "--requests", "3", "--out", str(tmp_path / "run")])


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    give_up = clock.monotonic_ns() + 60_000_000_000
    while not condition():
        assert clock.monotonic_ns() < give_up, otherwise
        clock.sleep(0.02)


def _answered(journal: Path) -> int:
    """Requests that were answered well, by the journal so far."""
    if not journal.exists() or journal.stat().st_size == 0:
        return 0
    return int((read_journal(journal).rows["outcome"] == Outcome.OK).sum())


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
    assert read.metrics or read.deployment
    assert launched(file, {}, LoadSettings(SenderOptions()), EndpointOptions())


def stubborn(tmp_path: Path, *more: str) -> Server:
    """A server that ignores TERM, with a child that does so, too."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    words = [sys.executable, "-c", STUBBORN, url.rpartition(":")[2], str(tmp_path), *more]
    return supervised("stubborn", url, url, 60.0, words, {}, tmp_path / "log")


@pytest.mark.live
@pytest.mark.skipif(sys.platform != "linux", reason="found by /proc")
def test_a_child_in_a_session_of_its_own_does_not_outlive_the_server(tmp_path: Path) -> None:
    """The server is killed first, so that its child is an orphan when all is stopped."""
    server = stubborn(tmp_path, "setsid")
    with server:
        _await(lambda: len(running(f"sleep(100) {tmp_path}")) == 1, "the child did not start")
        (main,) = [process.pid for process in descendants(server.pid)][:1]
        os.kill(main, signal.SIGKILL)
        _await(lambda: not running(str(tmp_path)), "the child lives on")


@pytest.mark.live
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel sends the signal")
def test_a_stubborn_server_dies_with_goodput_and_its_watcher(tmp_path: Path) -> None:
    """kill -9 of both at once: the server goes, without anybody left to end it."""
    parent = f"""
import os, signal, time
from pathlib import Path
from loadtest.descendants import descendants
from tests.test_launch import stubborn
server = stubborn(Path({str(tmp_path)!r})).start()
(main,) = [process.pid for process in descendants(server.pid)][:1]
print(main, flush=True)
os.kill(server.pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", parent], cwd=EXAMPLES.parent, capture_output=True, check=False)
    main = int(done.stdout)
    _await(lambda: str(main) not in os.listdir("/proc"), "the server lives on")
    for child in running(f"sleep(100) {tmp_path}"):  # nobody is left to end it: docs/real-servers.md
        os.kill(child, signal.SIGKILL)
