"""Terminals as people have them: what they can hold, and whether they are there, decides nothing but the picture."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtest.cli import output, streams
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from metrics.errors import MetricsError

SAME = "emulated:chunked,model=demo-8b"
LOAD = ["--virtual", "--slo", "ttft=500ms,tpot=20ms", "--rate", "4", "--requests", "30"]
RUN = ["run", "--backend", SAME, *LOAD]
ENCODINGS = ("gbk", "ascii", "cp1252", "utf-16")
UNDRAWN = "import reports.page\nreports.page.render_html = lambda _: ''\n"  # drawing takes two seconds of a core


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[str]], tuple[int, str]]:
    """(exit code, everything printed) of a command whose terminal has an encoding."""
    import reports.page

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reports.page, "render_html", lambda _: "")
    streams.register()

    def play(encoding: str, words: list[str]) -> tuple[int, str]:
        with (tmp_path / "printed").open("wb") as file, monkeypatch.context() as patch:
            outlet = streams.Outlet(file.fileno(), "wb", closefd=False)
            stream = streams.text_stream(outlet, encoding)
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            code = run(words)
            stream.flush()
            stream.close()
        return code, (tmp_path / "printed").read_bytes().decode(encoding)

    return play


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "koi8-r"])
def test_readable_forms(tmp_path: Path, encoding: str) -> None:
    """Each character is there, or in a form that says the same; what has none is a question mark."""
    streams.register()
    with (tmp_path / "out").open("wb") as file:
        stream = streams.text_stream(streams.Outlet(file.fileno(), "wb", closefd=False), encoding)
        stream.write("a \N{EN DASH} b \N{MULTIPLICATION SIGN} ≠ ∞ ✓✗ é 模 \udcff")
        stream.close()
    told = (tmp_path / "out").read_bytes().decode(encoding)
    expected = {
        "ascii": "a - b x != inf +x e ? ?",
        "cp437": "a - b x != ∞ +x é ? ?",
        "koi8-r": "a - b x != inf +x e ? ?",
    }
    assert expected[encoding] == told


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_has_the_same_exit_code(encoding: str, printed: Callable[..., tuple[int, str]]) -> None:
    """A run, its report as text, a gate that passes, one that fails, and an error: each readable and as in UTF-8."""
    code, told = printed(encoding, [*RUN, "--out", "r"])
    assert (ExitCode.OK, True) == (code, " valid " in told)
    assert (Path("r") / "report.html").exists()
    code, told = printed(encoding, ["report", "r", "--format", "text"])
    assert (ExitCode.OK, True) == (code, "TTFT" in told)
    gate = ["gate", "--baseline", SAME, *LOAD, "--pairs", "3", "--candidate"]
    code, told = printed(encoding, [*gate, SAME])
    assert (ExitCode.OK, True) == (code, " PASS " in told)
    code, told = printed(encoding, [*gate, f"{SAME},max_num_batched_tokens=128"])
    assert (ExitCode.FAILED, True) == (code, " FAIL " in told)
    code, told = printed(encoding, ["run", "--trace", "n\N{EN DASH}pe 模"])
    assert (ExitCode.USAGE, True) == (code, "goodput: there is no trace" in told)


@pytest.mark.parametrize("words", [["trace", "info", "azure-conv", "--plot"], ["trace", "list"], ["serve", "--help"]])
def test_pictures_and_pages_in_ascii(words: list[str], printed: Callable[..., tuple[int, str]]) -> None:
    """Bars, tables and help."""
    assert ExitCode.OK == printed("ascii", words)[0]


def test_documents_are_utf_8_whatever_the_terminal_is(tmp_path: Path, printed: Callable[..., tuple[int, str]]) -> None:
    """Programs read them."""
    assert ExitCode.OK == printed("ascii", [*RUN, "--out", "r"])[0]
    printed("latin-1", ["report", "r", "--format", "json"])
    told = (tmp_path / "printed").read_bytes().decode("utf-8")
    assert '"schema": "goodput.summary/1"' in told


def test_what_nobody_takes_is_dropped() -> None:
    """After the first error nothing is written and nothing raises; the error is kept."""
    reader, writer = os.pipe()
    os.close(reader)
    outlet = streams.Outlet(writer, "wb")
    assert [3, 2] == [outlet.write(b"abc"), outlet.write(b"de")]
    assert outlet.error is not None
    assert errno.EPIPE == outlet.error.errno
    outlet.close()


def program(words: list[str], prefix: str = "") -> list[str]:
    return [sys.executable, "-c", f"{prefix}\nfrom loadtest.cli.main import main\nmain({words!r})"]


def process(words: list[str], prefix: str = "", **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(program(words, prefix), check=False, timeout=110, **{"stderr": subprocess.PIPE, **options})  # type: ignore[call-overload,no-any-return]


@pytest.mark.live
def test_a_reader_that_went_away_costs_no_report(tmp_path: Path) -> None:
    """`| head -1`: exit 0 and everything on the disk; a full disk behind stdout is exit 2 and says so."""
    reader, writer = os.pipe()
    os.close(reader)
    done = process([*RUN, "--out", str(tmp_path / "r")], UNDRAWN, stdout=writer, cwd=tmp_path)
    os.close(writer)
    assert (ExitCode.OK, True) == (done.returncode, (tmp_path / "r" / "report.html").exists())
    with open("/dev/full", "wb") as full:
        done = process(["report", str(tmp_path / "r"), "--format", "text"], stdout=full)
    assert ExitCode.USAGE == done.returncode
    assert b"stdout could not take all" in done.stderr


@pytest.mark.live
def test_closed_streams(tmp_path: Path) -> None:
    """As under some init systems: nobody hears, and the run is made all the same."""
    argv = program([*RUN, "--out", str(tmp_path / "r")], UNDRAWN)
    done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *argv], check=False, timeout=110)
    assert (ExitCode.OK, True) == (done.returncode, (tmp_path / "r" / "report.html").exists())


@pytest.mark.live
def test_a_user_without_a_home(tmp_path: Path) -> None:
    """No HOME and no entry for the user id: caches are not used, the report is drawn."""
    nobody = "import os, pwd\nos.environ.pop('HOME', None)\nos.environ.pop('XDG_CACHE_HOME', None)\n"
    nobody += "def unknown(_): raise KeyError\npwd.getpwuid = unknown"
    done = process([*RUN, "--out", str(tmp_path / "r")], nobody, stdout=subprocess.DEVNULL)
    assert (ExitCode.OK, True) == (done.returncode, (tmp_path / "r" / "report.html").exists()), done.stderr
    done = process(["trace", "fetch", "azure-2023-code"], nobody)
    assert (ExitCode.USAGE, True) == (done.returncode, b"set XDG_CACHE_HOME" in done.stderr)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ZeroDivisionError("x")])
def test_a_page_that_cannot_be_drawn_is_only_that(
    error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are whole, the exit code is the run's, and what happened is said."""
    import reports.page

    def render(_: object) -> str:
        raise error

    monkeypatch.setattr(reports.page, "render_html", render)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert ExitCode.OK == run([*RUN, "--out", str(tmp_path / "r")])
    told = capsys.readouterr()
    assert "report.html could not be drawn: " in told.err
    assert "report: " not in told.err
    assert " valid " in told.out
    assert (tmp_path / "r" / "summary.json").exists()


def test_output_that_cannot_be_written_is_no_bug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page whose folder is a file: named, exit 2."""
    (tmp_path / "file").touch()
    assert ExitCode.USAGE == run(["trace", "info", "azure-conv", "--html", str(tmp_path / "file" / "x.html")])
    assert "Not a directory" in capsys.readouterr().err
    with pytest.raises(MetricsError, match="Not a directory"):
        output.write_page(tmp_path / "file" / "x.html", "")


def test_a_directory_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    assert ExitCode.USAGE == run(["trace", "list"])
    assert "current directory is no longer there" in capsys.readouterr().err
