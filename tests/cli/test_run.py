"""`goodput run` from the outside: what it prints, writes and exits with, against scripted and bundled servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loadtest import clock
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from loadtest.supervise import Server, python_module
from metrics import rundir
from tests.metrics.test_folderlock import somebody_else

ROOT = Path(__file__).parents[2]
BUNDLED = "--backend emulated:chunked,model=demo-8b"


def start(line: str, out: Path) -> subprocess.Popen[str]:
    """`goodput run` with the options of `line` into `out`."""
    return subprocess.Popen(
        python_module("loadtest.cli.main", "run", *line.split(), "--out", str(out)),
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def played(line: str, out: Path) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a whole run."""
    process = start(line, out)
    out, errors = process.communicate(timeout=110)
    return process.returncode, out, errors


def assert_measured(code: int, stderr: str) -> None:
    """The run ended as it should, or was spoilt only by a machine too busy to send on time."""
    assert code == ExitCode.OK or (code == ExitCode.INVALID and "The client sent late" in stderr), stderr


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., Any]:
    """A scripted server by its settings: `with scripted(always=500) as url`."""

    @contextmanager
    def serve(**settings: Any) -> Iterator[str]:
        argv = python_module("tests.load_server", json.dumps(settings))
        with Server(argv, log=tmp_path / "server.log", env={"PYTHONPATH": str(ROOT)}) as server:
            yield server.url

    return serve


def error_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    document: dict[str, dict[str, str]] = json.loads(capsys.readouterr().out)
    return document["error"]


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["--target", "http://127.0.0.1:1"], "unreachable", ExitCode.TARGET),
        (["--target", "http://no.such.host.invalid"], "unreachable", ExitCode.TARGET),
        (["--target", "ftp://host"], "usage", ExitCode.USAGE),
        (["--target", "http://127.0.0.1:1", "--rate", "0"], "not_positive", ExitCode.USAGE),
        (["--target", "http://127.0.0.1:1", "--trace", "none.csv"], "unknown_trace", ExitCode.USAGE),
        (["--target", "http://127.0.0.1:1", "--slo", "ttft=200"], "bad_slo", ExitCode.USAGE),
        (["--backend", "emulated:chunkd"], "bad_deployment", ExitCode.USAGE),
        (["--backend", "emulated:chunked", "--gpus", "2"], "gpus", ExitCode.USAGE),
        (["--backend", "emulated:chunked", "--workers", "4", "--max-in-flight", "2"], "max_in_flight", ExitCode.USAGE),
        ([], "one_of", ExitCode.USAGE),
    ],
)
def test_one_sentence_and_the_exit_code_of_the_table(
    words: list[str],
    code: str,
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is left behind, stdout holds one JSON document, the sentence says what to do."""
    monkeypatch.chdir(tmp_path)
    assert exit_code == run(["run", "--json", *words])
    error = error_of(capsys)
    if code != "usage":
        assert code == error["code"]
    assert error["message"]
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("empty.csv", "", "empty_trace"),
        ("header.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "empty_trace"),
        ("broken.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,x,y\n", None),
    ],
)
def test_a_trace_that_cannot_be_replayed(
    name: str, content: str, code: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Empty, header only, nothing but broken rows: exit 2 before any server is looked at."""
    (tmp_path / name).write_text(content)
    out = tmp_path / "out"
    words = ["run", "--json", "--target", "http://127.0.0.1:1", "--trace", str(tmp_path / name), "--out", str(out)]
    assert ExitCode.USAGE == run(words)
    assert code in (None, error_of(capsys)["code"])
    assert not out.exists()


def test_an_existing_output_is_never_written_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with something in it: exit 2, and it stays as it is."""
    (tmp_path / "keep.txt").write_text("mine")
    words = ["run", "--json", "--target", "http://127.0.0.1:1", "--out", str(tmp_path)]
    assert ExitCode.USAGE == run(words)
    assert "output_exists" == error_of(capsys)["code"]
    assert ["keep.txt"] == [path.name for path in tmp_path.iterdir()]


def test_two_runs_in_one_second_have_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default names, which hold the second: the later one gets a number; nothing of a lock stays in either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clock, "utc_now", lambda: datetime(2026, 1, 31, 12, tzinfo=UTC))
    words = [*BUNDLED.split(), "--virtual", "--requests", "5", "--rate", "4", "--json"]
    for _ in range(2):
        assert ExitCode.OK == run(["run", *words])
    names = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert ["2026-01-31T12-00-00_azure-conv_r4_chunked", "2026-01-31T12-00-00_azure-conv_r4_chunked-2"] == names
    assert not list(tmp_path.glob("runs/*/.lock"))
    first = json.loads((tmp_path / "runs" / names[0] / "run.json").read_bytes())
    assert names[0] == first["name"]


def test_the_folder_of_a_running_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also while there is nothing in it yet: one sentence, exit 2, and it stays as it is."""
    with somebody_else(tmp_path):
        assert ExitCode.USAGE == run(["run", *BUNDLED.split(), "--virtual", "--out", str(tmp_path), "--json"])
    assert "output_in_use" == error_of(capsys)["code"]
    assert [".lock"] == [path.name for path in tmp_path.iterdir()]


def test_an_empty_output_folder_of_the_user_survives_a_failure(tmp_path: Path) -> None:
    """We remove only what we made."""
    out = tmp_path / "mine"
    out.mkdir()
    assert ExitCode.TARGET == run(["run", "--target", "http://127.0.0.1:1", "--out", str(out)])
    assert out.is_dir()
    assert ExitCode.TARGET == run(["run", "--target", "http://127.0.0.1:1", "--out", str(out / "a" / "b")])
    assert out.is_dir()


# --- dry run -------------------------------------------------------------------------------------------------------


def test_a_dry_run_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests, tokens and time of what would be sent; no target needed, no file written."""
    monkeypatch.chdir(tmp_path)
    assert ExitCode.OK == run(["run", "--dry-run", "--json", "--rate", "2", "--duration", "30s"])
    plan = json.loads(capsys.readouterr().out)
    assert (60, 2.0) == (plan["requests"], plan["rate_per_s"])
    assert plan["prompt_tokens"] > plan["requests"]
    assert [] == list(tmp_path.iterdir())


# --- whole runs ----------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_a_run_against_a_bundled_server(tmp_path: Path) -> None:
    """One JSON document on stdout, a complete run directory, counts that sum to what was planned, exit 0."""
    out = tmp_path / "run"
    line = f"{BUNDLED} --requests 8 --rate 8 --shape clip=60 --slo ttft=5s,tpot=1s --json --tag team=red --seed 5"
    code, stdout, stderr = played(line, out)
    assert_measured(code, stderr)
    summary = json.loads(stdout)
    assert {"ok": 8} == summary["requests"]["by_outcome"]
    assert 1.0 == summary["attainment"]["share"]
    made = {path.name for path in out.iterdir()}
    assert {"run.json", "schedule.npz", "records.npz", "events.npz", "errors.json", "workers.json"} <= made
    assert {"summary.json", "report.html", "server.log", "records-0.bin"} <= made
    info = rundir.load(out).info
    assert ("complete", "chunked", 1, 5) == (info.state, info.arrangement, info.gpus, info.seed)
    assert {"team": "red"} == info.tags
    assert ("flag", "default") == (info.config["rate"].origin, info.config["workers"].origin)
    assert ["--seed", "5", "--salt", info.salt] == info.command[-4:]


@pytest.mark.live
def test_text_on_stdout_progress_on_stderr(scripted: Callable[..., Any], tmp_path: Path) -> None:
    """Without --json the result is text at 80 columns without colour, and the report's path goes to stderr."""
    with scripted() as url:
        code, stdout, stderr = played(f"--target {url} --requests 4 --rate 20", tmp_path / "r")
    assert_measured(code, stderr)
    assert "\x1b" not in stdout + stderr
    assert max(map(len, stdout.splitlines())) <= 100
    assert "report.html" in stderr


@pytest.mark.live
@pytest.mark.parametrize("always", ["reset", "close", 503])
def test_every_request_failed(always: str | int, scripted: Callable[..., Any], tmp_path: Path) -> None:
    """The server's evidence is written and reported; the exit code says that there is nothing to judge."""
    with scripted(always=always) as url:
        code, stdout, stderr = played(f"--target {url} --requests 3 --rate 20 --slo ttft=1s --json", tmp_path / "r")
    assert ExitCode.TARGET == code
    assert "every request failed" in stderr
    assert 0.0 == json.loads(stdout)["attainment"]["share"]
    assert (tmp_path / "r" / "report.html").exists()


@pytest.mark.live
def test_what_can_only_fail_is_not_sent(scripted: Callable[..., Any], tmp_path: Path) -> None:
    """500 to every form of a request: exit 5 with what the server says, and nothing of the schedule."""
    log = tmp_path / "arrivals"
    with scripted(always=500, log=str(log)) as url:
        code, stdout, _ = played(f"--target {url} --requests 3 --rate 20 --json", tmp_path / "r")
    assert ExitCode.TARGET == code
    error = json.loads(stdout)["error"]
    assert "refused" == error["code"]
    assert "with 500: scripted 500" in error["message"]
    assert all(16 > json.loads(line)["max_tokens"] for line in (log.read_text().splitlines() if log.exists() else []))


@pytest.mark.live
def test_an_unknown_model_is_found_before_the_load(tmp_path: Path) -> None:
    """Preflight: exit 5, the server's sentence, no request of the schedule sent, nothing left behind."""
    out = tmp_path / "out"
    argv = python_module("loadtest.backends.server", "--deployment", "emulated:chunked,model=demo-8b")
    with Server(argv, log=tmp_path / "server.log", env={"PYTHONPATH": str(ROOT)}) as server:
        code, stdout, _ = played(f"--target {server.url} --model nope --requests 2 --json", out)
    assert ExitCode.TARGET == code
    assert "nope" in json.loads(stdout)["error"]["message"]
    assert not out.exists()


@pytest.mark.live
def test_no_row_fits_the_context(scripted: Callable[..., Any], tmp_path: Path) -> None:
    """The target cannot take this trace at all: exit 5."""
    with scripted(max_model_len=2) as url:
        code, stdout, _ = played(f"--target {url} --requests 3 --json", tmp_path / "r")
    assert (ExitCode.TARGET, "exceeds_context") == (code, json.loads(stdout)["error"]["code"])


@pytest.mark.live
def test_rows_beyond_the_context_are_reported(scripted: Callable[..., Any], tmp_path: Path) -> None:
    """Some rows fit: the run goes on without the others, and says how many."""
    with scripted(max_model_len=1000) as url:
        code, stdout, stderr = played(f"--target {url} --requests 20 --rate 50 --json", tmp_path / "r")
    assert_measured(code, stderr)
    assert json.loads(stdout)["run"]["rejected"]["exceeds_context"] > 0


@pytest.mark.live
def test_ctrl_c_writes_a_report_marked_partial(scripted: Callable[..., Any], tmp_path: Path) -> None:
    """Attainment counts what was due before; one JSON document all the same; exit 130."""
    log = tmp_path / "arrivals"
    with scripted(service_ms=50, log=str(log)) as url:
        process = start(f"--target {url} --rate 20 --duration 60s --slo ttft=1s --json", tmp_path / "r")
        give_up = clock.monotonic_ns() + 60_000_000_000
        while not log.exists() or len(log.read_text().splitlines()) < 20:
            assert clock.monotonic_ns() < give_up
            clock.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=100)
    assert ExitCode.INTERRUPTED == process.returncode, stderr
    summary = json.loads(stdout)
    assert "partial" == summary["run"]["state"]
    assert 1200 == summary["requests"]["planned"]
    assert 19 <= summary["attainment"]["total"] < 1200
    assert (tmp_path / "r" / "report.html").exists()
    assert "stopped by the user" in stderr


@pytest.mark.live
def test_a_server_that_dies_under_the_load(tmp_path: Path) -> None:
    """What it did until then is reported, its death is named, exit 5."""
    process = start(f"{BUNDLED} --rate 20 --duration 4s --shape clip=60 --json", tmp_path / "r")
    server = _child_of(process.pid, "loadtest.backends.server")
    give_up = clock.monotonic_ns() + 60_000_000_000
    journal = tmp_path / "r" / "records-0.bin"
    while not journal.exists() or journal.stat().st_size < 10_000:
        assert clock.monotonic_ns() < give_up
        clock.sleep(0.02)
    os.kill(server, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=100)
    assert ExitCode.TARGET == process.returncode, stderr
    assert "SIGKILL" in stderr
    outcomes = json.loads(stdout)["requests"]["by_outcome"]
    assert {"ok", "connection_lost"} <= outcomes.keys() <= {"ok", "connection_lost", "truncated_stream"}
    assert 80 == sum(outcomes.values())


def _child_of(pid: int, name: str) -> int:
    give_up = clock.monotonic_ns() + 60_000_000_000
    while True:
        argv = ["ps", "--ppid", str(pid), "-o", "pid=,args="]
        found = subprocess.run(argv, capture_output=True, text=True, check=False)
        matching = [int(line.split()[0]) for line in found.stdout.splitlines() if name in line]
        if matching:
            return matching[0]
        assert clock.monotonic_ns() < give_up
        clock.sleep(0.02)


def test_an_emulated_backend_can_be_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No server and no waiting: a run directory of the same form, a turn after the answer before it, cost included."""
    trace = tmp_path / "turns.csv"
    trace.write_text("arrival_ns,prompt_tokens,output_tokens,session\n0,500,50,1\n1000000000,800,40,1\n")
    line = f"run {BUNDLED},hardware=h200 --virtual --trace {trace} --think 2s --json --out {tmp_path / 'run'}"
    assert run(line.split()) == ExitCode.OK
    summary = json.loads(capsys.readouterr().out)
    stored = rundir.load(tmp_path / "run")
    first, second = stored.table.rows
    assert "virtual" == stored.info.server["clock"]
    assert second["scheduled_s"] > first["done_s"]
    assert stored.info.server["usd"] == summary["economy"]["usd"] > 0
    assert ["extrapolated_model"] == [finding["code"] for finding in summary["validity"]["findings"]]


def test_only_an_emulated_backend_can_be_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A live server has no simulator, and says so before anything is written."""
    line = f"run --target http://127.0.0.1:1 --virtual --json --out {tmp_path / 'run'}"
    assert run(line.split()) == ExitCode.USAGE
    assert "virtual" == error_of(capsys)["code"]
    assert not (tmp_path / "run").exists()
