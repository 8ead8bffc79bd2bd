"""Hundreds of wrong usages: each ends with one sentence that names what was wrong, and none is called a bug."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import click
import pytest

from loadtest.cli.main import cli, run
from loadtest.errors import ExitCode, TargetError
from loadtest.plan.planner import Planner
from loadtest.swarm import remote

CHEAP = "emulated:chunked,model=demo-8b"
DEAD = "http://127.0.0.1:9"

# A command line of each command that is right and ends at once: no server is started, nothing is sent.
BASES = {
    "demo": ["--out", "full"],
    "run": ["--target", DEAD, "--requests", "3", "--dry-run"],
    "worker": ["--token-file", "missing"],
    "search": ["--backend", CHEAP, "--slo", "ttft=1s", "--out", "full"],
    "plan": ["--slo", "ttft=1s", "--emit", "full"],
    "compare": ["full", "full"],
    "gate": ["--baseline", "full", "--candidate", "full"],
    "calibrate": ["--model", "llama2-70b", "--hardware", "h100"],
    "launch": ["launch.toml", "--out", "full"],
    "serve": ["emulated:nope"],
    "report": ["missing"],
    "trace list": [],
    "trace fetch": ["nope"],
    "trace info": ["trace.csv"],
    "trace lint": ["trace.csv"],
    "trace convert": ["trace.csv", "--out", "full"],
    "trace sample": ["trace.csv", "2", "--out", "full"],
    "trace synth": ["azure-conv", "--requests", "5", "--out", "full"],
    "trace fit": ["trace.csv", "--out", "full"],
}
DIGITS = "9" * 5000
WORDS = [
    *("", " ", "nope", "-1", "0", "nan", "inf", "-inf", DIGITS, f"{DIGITS}s", f"1e{DIGITS}", "1e999", "0x10", "1_0"),
    *(
        "é",
        "٣",
        "½",
        "💥",
        "\udcff",
        "\x1b[31m",
        "a\nb",
        "\x7f",
        ",",
        ",,",
        "=",
        "a=b",
        "a=",
        "=b",
        ":",
        "%s",
        "{x}",
        "{}",
    ),
    *("[" * 3000, "{" * 3000, "x" * 5000, "../" * 200, "~", "0s", "99999999999h", "5", "1,nan", "nan,1", "3,2,1"),
    *("http://", "http://a..b", "http://[", "http://[::1", "http://a:99999", "http://a:b", "http://a:0", "ftp://x"),
    *(f"http://{'a' * 300}", "http://a b", "http://a\tb", "file:///etc/passwd", "http://u:p@h", "//h", "http://\udcff"),
    *("dir", "full", "file.txt", "missing", "missing/x", "unreadable", "binary", "empty", "file.txt/x", "/dev/null"),
    *("deep.json", "digits.json", "digits.toml", "zero.toml", "deep.toml", "dir/x/..", "."),
    *("emulated:", "emulated:chunked,tp=", "emulated:chunked,tp=nan", f"emulated:chunked,tp={DIGITS}", "torch:nope"),
    *("emulated:chunked,model=dir", "emulated:chunked,model=missing.json", "emulated:chunked,model=deep.json"),
    *("ttft=", "ttft=nans", "ttft=infs", "ttft=1s,share=nan%", f"ttft={DIGITS}s", "tpot=0s", "share=1%", "ttft=-1s"),
    *("ttft.p90 rise < nan%", "failed < inf%", f"failed < {DIGITS}%", "tpot.p0 < 1s", "ttft.p90 rise < 1e400%"),
]
PER_OPTION = 6


def options_of(name: str) -> list[click.Option]:
    """What a command takes, but for switches."""
    command: click.Command = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return [option for option in command.params if isinstance(option, click.Option) and not option.is_flag]


def without(words: list[str], flag: str) -> list[str]:
    """A command line without one option and its value."""
    place = words.index(flag) if flag in words else len(words)
    return words[:place] + words[place + 2 :]


def every_option(name: str) -> Iterator[list[str]]:
    """A few words of the list for each option, others for the next: over all commands each word comes many times."""
    words = cycle(WORDS)
    next(islice(words, len(name) * 7, None))
    for option in options_of(name):
        flag = max(option.opts, key=len)
        given = without(BASES[name], flag)
        for word in islice(words, PER_OPTION):
            yield [*name.split(), *given, flag, *([word] * option.nargs)]


def every_word(name: str) -> Iterator[list[str]]:
    """Each word in the place of the first argument, and after the last."""
    base = BASES[name]
    first = base[1:] if base and not base[0].startswith("-") else base
    for word in WORDS:
        yield [*name.split(), word, *first]
        yield [*name.split(), *base, word]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of every wrong kind; nothing can be started from it, and nothing fetched."""
    for folder in ("dir", "full", "dir/x", "cache"):
        (tmp_path / folder).mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "file.txt").write_text("hello\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "empty").touch()
    (tmp_path / "unreadable").touch(mode=0o000)
    (tmp_path / "trace.csv").write_text(
        "arrival_ns,prompt_tokens,output_tokens\n0,10,5\n1000000000,10,5\n2000000000,9,5\n"
    )
    (tmp_path / "launch.toml").write_text('command = ["true"]\n')
    (tmp_path / "zero.toml").write_text('command = ["a\\u0000b"]\n')
    (tmp_path / "digits.toml").write_text(f"gpus = {DIGITS}\n")
    (tmp_path / "deep.toml").write_text(f"set = {'[' * 5000}\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "digits.json").write_text(f'{{"schema": {DIGITS}}}')

    def refuse(argv: list[str], *_: Any, **__: Any) -> None:
        if any("\0" in word for word in argv):
            raise ValueError("embedded null byte")
        raise FileNotFoundError(2, "No such file or directory", argv[0])

    def decline(*_: Any, **__: Any) -> None:
        raise TargetError("this is as far as a test of usage goes")

    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    monkeypatch.setattr(Planner, "plan", decline)
    monkeypatch.setattr(remote, "join", decline)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how a command line ended; nothing when all is well."""
    code = run(words)
    err = capsys.readouterr().err
    if code == ExitCode.INTERNAL or "Traceback" in err or "bug" in err:
        return "called a bug"
    if code not in (ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE, ExitCode.TARGET, ExitCode.INVALID):
        return f"exit {code}"
    if code != ExitCode.OK and len(err.rpartition("goodput: ")[2]) < 10:  # what is named may hold a line end
        return f"exit {code} without a sentence"
    return ""


@pytest.mark.parametrize("name", BASES)
def test_no_wrong_usage_is_called_a_bug(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong types, empty, huge, negative, not a number, not ASCII, folders for files, nothing there, no URL."""
    assert place.is_dir()
    asked = [*every_option(name), *every_word(name)]
    told = {" ".join(word[:60] for word in words): judged(words, capsys) for words in asked}
    assert {} == {words: wrong for words, wrong in told.items() if wrong}


def test_the_matrix_is_wide() -> None:
    """Over all commands: at least 300 usages, each word of the list several times."""
    asked = [words for name in BASES for words in (*every_option(name), *every_word(name))]
    assert len(asked) > 300
    said = [word for words in asked for word in words]
    assert 1 <= min(said.count(word) for word in WORDS)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "--target", "http://a..b"], "'http://a..b' has a host name with an empty"),
        (["run", "--target", "http://["], "'http://[' has brackets"),
        (["calibrate", "--target", "http://a:b"], "'http://a:b' has no valid port"),
        (["compare", "http://a..b", DEAD], "'http://a..b'"),
        (["launch", "digits.toml"], "digits.toml"),
        (["launch", "deep.toml"], "deep.toml cannot be used: its values are nested too deeply"),
        (["run", "--target", DEAD, "--metrics-url", "p=http://["], "'p=http://[' has brackets"),
        (["run", "--target", DEAD, "--timeout", f"{DIGITS}h"], "longer than 20 days"),
        (["run", "--target", DEAD, "--dry-run", "--rate", "1e9", "--duration", "400h"], "memory"),
        (["trace", "fetch", "azure-2023-conv", "--url", "nope"], "'nope' is not an http or https URL"),
        (["trace", "info", "trace.csv", "--html", ""], "it is a folder"),
        (["trace", "info", "trace.csv", "--seed", "-1"], "--seed"),
        (
            ["gate", "--baseline", CHEAP, "--candidate", CHEAP, "--rule", "ttft.p90 rise < nan%"],
            "'ttft.p90 rise < nan%'",
        ),
        (["gate", "--baseline", CHEAP, "--candidate", CHEAP, "--rule", f"failed < {DIGITS}%"], "failed <"),
    ],
)
def test_the_sentence_names_what_was_wrong(
    words: list[str], named: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, and the value or the option or the file."""
    assert place.is_dir()
    assert ExitCode.USAGE == run(words)
    assert named in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_a_launch_file_with_a_zero_byte(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No process can be given one."""
    assert place.is_dir()
    assert ExitCode.TARGET == run(["launch", "zero.toml", "--requests", "3"])
    assert "embedded null byte" in capsys.readouterr().err


def test_a_folder_named_as_the_settings_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that is a binary, is missing, or cannot be read."""
    for name, why in {
        "dir": "Is a directory",
        "missing": "No such file",
        "binary": "invalid",
        "empty/x": "Not a",
    }.items():
        monkeypatch.setenv("GOODPUT_CONFIG", name)
        assert ExitCode.USAGE == run(["trace", "list"])
        assert re.search(rf"{name} cannot be read: .*{why}", capsys.readouterr().err)
    assert place.is_dir()


@pytest.mark.parametrize("columns", ["0", "-5", "1", "nope", "99999"])
def test_a_terminal_of_no_width(columns: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """COLUMNS as some shells and job runners leave it."""
    monkeypatch.setenv("COLUMNS", columns)
    words = ["--backend", CHEAP, "--virtual", "--requests", "3", "--rate", "5", "--out", str(tmp_path / "r")]
    assert ExitCode.OK == run(["run", *words])
    assert ExitCode.OK == run(["run", "--help"])


@pytest.mark.parametrize("name", BASES)
def test_a_current_folder_that_is_gone(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command says so, or does without."""
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "" == judged([*name.split(), *BASES[name]], capsys)
