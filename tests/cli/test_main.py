"""The command as a whole: exit codes, one JSON document on errors, start-up guard, speed of --help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from loadtest.cli import main as module
from loadtest.cli.main import COMMANDS, run
from loadtest.errors import ExitCode, InvalidError, UsageError
from metrics.errors import MetricsError
from workloads.errors import WorkloadError

ROOT = Path(__file__).parents[2]


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make the next command line end with `error`."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module.cli, "main", fail)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """--help lists the commands without importing them."""
    assert ExitCode.OK == run(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("words", [["nope"], ["run", "--nope"], ["run", "--duration", "5"], []])
def test_a_bad_command_line_is_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown command, unknown option, bad value, nothing at all: exit 2, and stdout stays empty."""
    assert ExitCode.USAGE == run(words)
    printed = capsys.readouterr()
    assert "" == printed.out
    assert printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (UsageError("m", hint="h", code="c"), 2, "c"),
        (InvalidError("m"), 4, "invalid"),
        (MetricsError("m", code="bad_slo"), 2, "bad_slo"),
        (WorkloadError("m", code="empty_trace"), 2, "empty_trace"),
        (click.BadParameter("m"), 2, "usage"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_exit_codes_and_one_json_document(
    error: BaseException, code: int, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every kind of error has its exit code; with --json it is one document on stdout."""
    raising(monkeypatch, error)
    assert code == run(["run", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert {"error"} == document.keys()
    assert {"code", "message", "hint"} == document["error"].keys()
    assert name == document["error"]["code"]


def test_a_bug_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An unexpected exception exits 6 and says where its traceback is."""
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: _opened(tmp_path / "trace.txt"))
    monkeypatch.delenv("GOODPUT_DEBUG", raising=False)
    raising(monkeypatch, ZeroDivisionError("oops"))
    assert ExitCode.INTERNAL == run(["run"])
    printed = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in printed
    assert str(tmp_path / "trace.txt") in printed
    assert "Traceback" not in printed
    assert "Traceback" in (tmp_path / "trace.txt").read_text()


def _opened(path: Path) -> tuple[int, str]:
    return os.open(path, os.O_CREAT | os.O_RDWR), str(path)


def test_a_bug_shows_its_traceback_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GOODPUT_DEBUG=1 is for developers."""
    monkeypatch.setenv("GOODPUT_DEBUG", "1")
    raising(monkeypatch, ZeroDivisionError("oops"))
    assert ExitCode.INTERNAL == run(["run"])
    assert "Traceback" in capsys.readouterr().err


def test_a_foreign_package_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    """A `metrics` folder from elsewhere would be imported silently; start-up says so in one sentence."""
    foreign = tmp_path / "metrics"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import loadtest; sys.path.insert(0, {str(tmp_path)!r}); "
    done = subprocess.run(
        [sys.executable, "-P", "-c", program + "from loadtest.cli.main import main; main(['run', '--json'])"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ExitCode.INTERNAL == done.returncode, done.stderr
    error = json.loads(done.stdout)["error"]
    assert "foreign_package" == error["code"]
    assert str(foreign) in error["message"]


def test_a_closed_pipe_is_no_error() -> None:
    """`goodput ... | head` ends quietly."""
    program = f"{sys.executable} -P -m loadtest.cli.main trace info azure-conv --json | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert "" == done.stderr
