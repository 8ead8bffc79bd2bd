"""Children of a few lines, started for real: the promises are about processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest import clock
from loadtest.errors import TargetError, UsageError
from loadtest.supervise import Server, log_folder, python_module

ROOT = Path(__file__).parents[1]
CHILD = "from loadtest.supervise import announce_ready, die_with_parent; import signal, sys, os, subprocess\n"
READY = CHILD + "die_with_parent(); announce_ready(url='http://127.0.0.1:1', pid=os.getpid())\n"


def child(code: str, tmp_path: Path, *, ready_timeout_s: float = 30.0, stop_timeout_s: float = 5.0) -> Server:
    return Server(
        [sys.executable, "-P", "-c", code],
        log=tmp_path / "logs" / "child.log",
        ready_timeout_s=ready_timeout_s,
        stop_timeout_s=stop_timeout_s,
    )


def gone(pid: int, *, within_s: float = 20.0) -> bool:
    """Wait until no process has this id, or it is only a zombie."""
    give_up = clock.monotonic_ns() + int(within_s * 1e9)
    while clock.monotonic_ns() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        clock.sleep(0.01)
    return False


def test_ready_facts_reach_the_parent_and_the_child_is_gone_after_the_block(tmp_path: Path) -> None:
    """Inside the block the child is ready and its facts are known; after it the process is gone."""
    with child(READY + "signal.pause()", tmp_path) as server:
        assert server.url == "http://127.0.0.1:1"
        assert server.ready["pid"] == server.pid
        assert server.exit_status is None
    assert server.exit_status == -signal.SIGTERM


def test_child_leads_a_process_group_of_its_own(tmp_path: Path) -> None:
    """Ctrl-C in the terminal must reach the parent only."""
    with child(READY + "signal.pause()", tmp_path) as server:
        assert server.pid == os.getpgid(server.pid) != os.getpgid(0)


def test_noise_before_the_readiness_line_is_skipped(tmp_path: Path) -> None:
    """A library that greets on stdout, even in JSON, is not taken for readiness."""
    noise = "print('hello'); print('{\"ready\": false}'); print('[1]'); sys.stdout.flush()\n"
    with child(CHILD + noise + READY + "signal.pause()", tmp_path) as server:
        assert server.url == "http://127.0.0.1:1"


def test_child_that_dies_first_is_a_target_error_with_its_last_words(tmp_path: Path) -> None:
    """The user sees what the child said, its status, and where the log is."""
    code = CHILD + "sys.stderr.write('loading\\n\\nthe port is taken\\n'); sys.exit(3)"
    with pytest.raises(TargetError) as raised:
        child(code, tmp_path).start()
    assert "exit status 3" in raised.value.message
    assert "the port is taken" in raised.value.message
    assert str(tmp_path / "logs" / "child.log") in raised.value.hint
    assert raised.value.code == "server_died"


def test_only_this_childs_lines_are_quoted(tmp_path: Path) -> None:
    """The log is appended to: an earlier run's lines are not this child's last words."""
    log = tmp_path / "logs" / "child.log"
    log.parent.mkdir()
    log.write_text("from an earlier run\n")
    with pytest.raises(TargetError) as raised:
        child(CHILD + "sys.exit('now')", tmp_path).start()
    assert "now" in raised.value.message
    assert "earlier" not in raised.value.message
    assert log.read_text().startswith("from an earlier run\n")


def test_silent_child_is_given_up_and_stopped(tmp_path: Path) -> None:
    """No readiness line within the time: TargetError, and nothing is left running."""
    server = child(CHILD + "signal.pause()", tmp_path, ready_timeout_s=0.2)
    with pytest.raises(TargetError, match=r"not ready within 0\.2 s"):
        server.start()
    assert server.exit_status is not None


def test_missing_program_is_a_target_error(tmp_path: Path) -> None:
    """A program that does not exist is the target's trouble, named."""
    server = Server(["/no/such/program"], log=tmp_path / "log")
    with pytest.raises(TargetError, match="/no/such/program: No such file or directory"):
        server.start()
    server.stop()


def test_stop_kills_a_child_that_ignores_term(tmp_path: Path) -> None:
    """TERM, wait, KILL."""
    deaf = CHILD + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + "\nwhile True: signal.pause()"
    server = child(deaf, tmp_path, stop_timeout_s=0.2).start()
    server.stop()
    assert server.exit_status == -signal.SIGKILL


def test_stop_takes_the_whole_group(tmp_path: Path) -> None:
    """A grandchild does not survive."""
    grandchild = (
        "p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], stdout=subprocess.DEVNULL)\n"
    )
    code = CHILD + grandchild + "die_with_parent(); announce_ready(url='', grandchild=p.pid); signal.pause()"
    server = child(code, tmp_path).start()
    server.stop()
    assert gone(int(server.ready["grandchild"]))


def test_stop_is_harmless_twice_and_before_the_start(tmp_path: Path) -> None:
    """`stop()` never raises, whatever happened before."""
    server = child(READY, tmp_path)
    server.stop()
    server.start()
    server.wait()
    server.stop()
    server.stop()
    assert server.exit_status == 0


def test_children_can_warm_up_side_by_side(tmp_path: Path) -> None:
    """`launch` does not wait; `wait_ready` does."""
    servers = [child(READY + "signal.pause()", tmp_path) for _ in range(2)]
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_ready()
        assert [server.pid for server in servers] == [server.ready["pid"] for server in servers]
    finally:
        for server in servers:
            server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child looks every half second")
def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """kill -9 of the parent must not leave a server behind."""
    grandchild_code = READY + "signal.pause()"
    code = (
        "import sys; from pathlib import Path; from loadtest.supervise import Server\n"
        f"server = Server([sys.executable, '-c', {grandchild_code!r}], log=Path({str(tmp_path / 'log')!r}))\n"
        "server.start(); print(server.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    grandchild = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    assert gone(grandchild)


def test_python_module_runs_this_interpreter_deaf_to_the_current_directory() -> None:
    """`-P` keeps a `metrics/` folder in the current directory from shadowing ours."""
    assert [sys.executable, "-P", "-m", "a.b", "--x"] == python_module("a.b", "--x")


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, where a server's log would have had no place."""

    def nowhere(**_: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    with pytest.raises(UsageError, match="no folder for a server's log: No usable"), log_folder("x"):
        pass
