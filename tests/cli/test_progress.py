"""The progress line: short, rewritten on a terminal, rare elsewhere."""

from __future__ import annotations

import pytest

from loadtest import clock
from loadtest.cli.progress import ProgressLine
from loadtest.swarm.coordinator import LoadProgress

NOW = LoadProgress(elapsed_s=12.4, planned=5, sent=240, in_flight=31, finished=209, failed=2, workers_lost=1)


def test_one_line_says_it_all() -> None:
    """Time, requests, what is in flight, and what went wrong."""
    line = ProgressLine(5400, 900.0).line(NOW)
    assert "12 of 900 s  sent 240 of 5400  in flight 31  failed 2  workers lost 1" == line
    assert len(line) < 80


def test_a_log_gets_a_line_each_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a terminal: plain lines, no control characters."""
    time_ns = 0
    monkeypatch.setattr(clock, "monotonic_ns", lambda: time_ns)
    show = ProgressLine(5, 30.0)
    for second in range(26):
        time_ns = second * 1_000_000_000
        show(NOW)
    show.close()
    lines = capsys.readouterr().err
    assert 2 == lines.count("\n")
    assert "\x1b" not in lines
    assert "\r" not in lines


def test_a_terminal_line_is_rewritten_and_cleared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is left empty for what comes next."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show = ProgressLine(5, 30.0)
    monkeypatch.setattr(clock, "monotonic_ns", lambda: 1 << 62)
    show(NOW)
    show.close()
    written = capsys.readouterr().err
    assert written.startswith("\r\x1b[2K12 of 30 s")
    assert written.endswith("\r\x1b[2K")
