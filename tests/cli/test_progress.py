"""The progress line: short, rewritten on a terminal, rare elsewhere."""

from __future__ import annotations

import pytest

from loadtest import clock
from loadtest.cli.progress import ProgressLine, so_far
from loadtest.replay.rowpacker import blank_row
from loadtest.replay.tally import Seen, Tally, quantile_s, together
from loadtest.swarm.coordinator import LoadProgress
from metrics.records import Outcome

NOW = LoadProgress(elapsed_s=12.4, planned=5, sent=240, in_flight=31, finished=209, failed=2, workers_lost=1)


def test_one_line_says_it_all() -> None:
    """Time, requests, what is in flight, and what went wrong."""
    line = ProgressLine(5400, 900.0).line(NOW)
    assert "12 of 900 s  sent 240 of 5400 (19.4/s)  in flight 31  failed 2  workers lost 1" == line
    assert len(line) < 80


def test_the_second_line_shows_what_was_seen_so_far() -> None:
    """Quantiles of what has finished, the good share, the client's own lag; nothing before anything finished."""
    tally = Tally("ttft=500ms,tpot=20ms")
    assert "" == so_far(tally.seen)
    row = blank_row()
    row |= {"scheduled_s": 1.0, "sent_s": 1.001, "first_token_s": 1.1, "last_token_s": 1.5}
    row |= {"outcome": Outcome.OK, "output_tokens": 21, "done_s": 1.5}
    for _ in range(9):
        tally.add(row)
    tally.add(row | {"outcome": Outcome.TIMEOUT})
    line = so_far(tally.seen)
    # 100, 20 and 1 ms as the middles of their bins: 10 us * 2 ** ((k + 1/2) / 8) for k = 106, 87 and 53.
    assert "TTFT 102/102 ms  TPOT 19.6/19.6 ms  good 90.0 %  client lag p99 1.03 ms" == line
    assert len(line) < 80


def test_the_warm_up_is_not_seen() -> None:
    """As in the report."""
    tally = Tally()
    tally.add(blank_row() | {"warmup": True})
    assert Seen() == tally.seen


def test_what_several_workers_saw_is_added_up() -> None:
    """A quantile of all is read from the sum of the counts."""
    parts = [Seen(good=2, judged=3), Seen(good=1, judged=1)]
    parts[0].ttft[40] = 9
    parts[1].ttft[80] = 1
    whole = together(parts)
    assert (3, 4) == (whole.good, whole.judged)
    assert whole.ttft[40] == 9
    assert quantile_s(whole.ttft, 0.5) == quantile_s(parts[0].ttft, 0.5)
    assert quantile_s(whole.ttft, 1.0) == quantile_s(parts[1].ttft, 1.0)
    assert quantile_s(whole.lag, 0.5) is None


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
