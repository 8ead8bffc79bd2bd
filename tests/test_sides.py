"""Sides of a comparison: launch files, and a foreign server under our supervision."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadtest.errors import TargetError, UsageError
from loadtest.replay.sender import SenderOptions
from loadtest.sides import BundledSide, EndpointOptions, LaunchedSide, launched, read_launch_file, stored
from loadtest.supervise import Server, python_module
from loadtest.target import LoadSettings

SETTINGS = LoadSettings(SenderOptions())


def launch_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "base.toml"
    path.write_text(text)
    return path


def test_a_deployment_with_a_place_for_a_value(tmp_path: Path) -> None:
    """`--set` fills {name}; the file's own table is the default."""
    path = launch_file(tmp_path, 'deployment = "emulated:chunked,instances={n}"\n[set]\nn = 1\n')
    default = launched(path, {}, SETTINGS, EndpointOptions())
    chosen = launched(path, {"n": "3"}, SETTINGS, EndpointOptions())
    assert isinstance(default, BundledSide)
    assert isinstance(chosen, BundledSide)
    assert (1, 3) == (default.deployment["instances"], chosen.deployment["instances"])
    assert ("base", "base n=3") == (default.label, chosen.label)


def test_a_command_is_an_argument_list(tmp_path: Path) -> None:
    """Never a shell line; JSON in an argument keeps its braces."""
    text = (
        'command = ["vllm", "serve", "--port", "{port}", "--extra", "{\\"a\\": 1}", "--seqs", "{seqs}"]\nmodel = "m"\n'
    )
    side = launched(launch_file(tmp_path, text), {"seqs": "8"}, SETTINGS, EndpointOptions())
    assert isinstance(side, LaunchedSide)
    target = side.open(tmp_path)
    argv = target._server.argv  # type: ignore[attr-defined]
    assert ["--extra", '{"a": 1}', "--seqs", "8"] == argv[-4:]
    assert argv[argv.index("--port") + 1].isdigit()
    assert "m" == side.options.model


@pytest.mark.parametrize(
    ("text", "settings", "says"),
    [
        ("command = [", {}, "cannot be used"),
        ("", {}, "either command or deployment"),
        ('command = ["a"]\ndeployment = "emulated:chunked"\n', {}, "either command or deployment"),
        ('comand = ["a"]\n', {}, "comand"),
        ('command = "vllm serve"\n', {}, "cannot be used"),
        ('command = ["a"]\n', {"tp": "2"}, "no place for 'tp'"),
        ('command = ["a", "{tp}"]\n', {}, "nothing is set for {tp}"),
        ('command = ["a", \'{"k":"{tp}"}\']\n', {}, "nothing is set for {tp}"),
        ('command = ["a"]\nready = "health"\n', {}, "ready"),
        ('command = ["a"]\nready_timeout_s = 0\n', {}, "ready_timeout_s"),
        ('command = ["a"]\nready_timeout_s = inf\n', {}, "ready_timeout_s"),
        ('command = ["a"]\ngpus = 0\n', {}, "gpus"),
        ('command = ["a"]\n[[before]]\nname = "../b"\ncommand = ["b"]\nready = "http://h/"\n', {}, "name"),
        ('command = ["a"]\n[[before]]\nname = "b"\ncommand = []\nready = "http://h/"\n', {}, "command"),
        ('command = ["a"]\n' + 2 * '[[before]]\nname = "b"\ncommand = ["b"]\nready = "http://h/"\n', {}, "one name"),
        ('deployment = "emulated:chunked"\n[env]\nA = "b"\n', {}, "env, which is for a command"),
    ],
)
def test_what_is_wrong_with_a_launch_file_is_said(
    tmp_path: Path, text: str, settings: dict[str, str], says: str
) -> None:
    """One sentence, before anything is started."""
    with pytest.raises(UsageError) as error:
        launched(launch_file(tmp_path, text), settings, SETTINGS, EndpointOptions())
    assert says in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        'command = ["a"]\nurl = "https://127.0.0.1:{port}"\n',
        'command = ["a"]\nurl = "127.0.0.1:{port}"\n',
        'command = ["a"]\n[[before]]\nname = "b"\ncommand = ["b"]\nready = "/health"\n',
    ],
)
def test_a_server_that_could_never_be_ready(tmp_path: Path, text: str) -> None:
    """Its health cannot be asked: said now, and not after ten minutes of asking."""
    side = launched(launch_file(tmp_path, text), {}, SETTINGS, EndpointOptions())
    with pytest.raises(UsageError, match="cannot be asked whether it is ready"):
        side.open(tmp_path)


def test_a_secret_value_is_no_part_of_a_label(tmp_path: Path) -> None:
    """Labels are printed, and stand in reports."""
    side = launched(
        launch_file(tmp_path, 'command = ["a", "{hf_token}"]\n'), {"hf_token": "x"}, SETTINGS, EndpointOptions()
    )
    assert "base hf_token=***" == side.label


def test_the_api_of_a_full_url() -> None:
    """A side that is named by its whole path is asked there, as `goodput run --target` does."""
    assert "chat" == EndpointOptions().endpoint("http://h:1/v1/chat/completions").api
    assert "llamacpp" == EndpointOptions(api="llamacpp").endpoint("http://h:1").api


def test_a_launch_file_that_is_not_there() -> None:
    """Named, with the reason."""
    with pytest.raises(UsageError, match="no such"):
        read_launch_file(Path("no such.toml"), {})


def test_the_runs_of_a_folder(tmp_path: Path) -> None:
    """A run, some runs by name, of a gate its baseline's, of a pair made twice the second; nothing is None."""

    def folder(name: str, *runs: str) -> Path:
        for run in runs:
            (tmp_path / name / run).mkdir(parents=True)
            (tmp_path / name / run / "run.json").write_text("{}")
        return tmp_path / name

    gate = ["pair-01-baseline", "pair-01-candidate", "pair-01-baseline-again", "pair-02-baseline"]
    for path, expected in [
        (folder("some", "b", "a"), ["a", "b"]),
        (tmp_path / "some" / "a", ["a"]),
        (folder("gate", *gate), ["pair-01-baseline-again", "pair-02-baseline"]),
    ]:
        side = stored(path)
        assert side is not None
        assert expected == [run.name for run in side.folders]
    assert stored(tmp_path / "nothing") is None
    assert stored(tmp_path) is None


PAGE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
print("noise on stdout", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.live
def test_a_foreign_server_is_ready_when_it_is_healthy(tmp_path: Path) -> None:
    """Its output is in the log, not in our pipe; it is gone after the block."""
    from loadtest.launch import free_ports

    port = int(free_ports(1)[0])
    url = f"http://127.0.0.1:{port}"
    argv = python_module("loadtest.launched", url, f"{url}/health", "60", "--", sys.executable, "-c", PAGE, str(port))
    with Server(argv, log=tmp_path / "log", ready_timeout_s=60) as server:
        assert url == server.url
    assert "noise on stdout" in (tmp_path / "log").read_text()
    assert server.exit_status is not None


@pytest.mark.live
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["no-such-program-anywhere"], "No such file"),
        ([sys.executable, "-c", "raise SystemExit('out of memory')"], "out of memory"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "did not answer 200 within 0.3 s"),
    ],
)
def test_a_foreign_server_that_does_not_come_up_says_why(tmp_path: Path, command: list[str], says: str) -> None:
    """Not there, dead, or silent: a TargetError with its last words."""
    url = "http://127.0.0.1:9"
    argv = python_module("loadtest.launched", url, f"{url}/health", "0.3", "--", *command)
    with pytest.raises(TargetError, match=says), Server(argv, log=tmp_path / "log"):
        pass
