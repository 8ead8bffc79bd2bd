"""The terminal: 80 columns, plain when asked, first things first."""

from __future__ import annotations

import io

import pytest

from metrics.decision import Decision
from metrics.summary import summarise
from reports import text
from reports.numbers import THIN
from tests.reports import samples


def printed(summary: object, *, width: int = 80) -> str:
    out = io.StringIO()
    render = text.render_decision if isinstance(summary, Decision) else text.render_text
    render(summary, text.console(out, width=width))  # type: ignore[arg-type]
    return out.getvalue().replace(THIN, " ")


def decision() -> Decision:
    found = samples.demo_page(requests=30).decision
    assert found is not None
    return found


def test_a_run_fits_eighty_columns() -> None:
    """No line is wider than the terminal, and none is cut."""
    shown = printed(samples.view().summary)
    assert [] == [line for line in shown.splitlines() if len(line) > 80]
    assert "…" not in shown


def test_verdict_and_soundness_come_before_latencies() -> None:
    """Headline, then validity, then the table."""
    shown = printed(samples.view().summary)
    places = [
        shown.index(word) for word in ("96.2 % of requests met", "! warning", "! failures", "p50       p90", "rates")
    ]
    assert sorted(places) == places


def test_a_file_gets_no_colour() -> None:
    """Text that nobody watches has no escape codes."""
    assert "\x1b" not in printed(samples.view().summary) + printed(decision())


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR turns colours off on a terminal too."""
    from rich.console import Console

    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    text.render_text(
        samples.view(requests=20).summary, Console(file=out, force_terminal=True, width=80, highlight=False)
    )
    assert "\x1b[32m" not in out.getvalue()
    assert "\x1b[33m" not in out.getvalue()


def test_the_decision_names_every_deployment_uncut() -> None:
    """All three names, their goodput with interval, and the sentence."""
    shown = printed(decision())
    for told in ("disaggregated", "chunked", "colocated", "3.30-3.75", "Disaggregated wins: 1.35 times"):
        assert told in shown
    assert "…" not in shown
    assert [] == [line for line in shown.splitlines() if len(line) > 80]


def test_a_run_without_answers_has_no_empty_table() -> None:
    """All failed: the reasons are printed and no table of nothing."""
    shown = printed(summarise(samples.run(requests=5, failures=1.0), samples.TARGETS))
    assert "No request was answered: 5 HTTP 503." in shown
    assert "5 http_503" in shown
    assert "p50       p90" not in shown


def test_few_samples_are_marked() -> None:
    """A p99 of 30 samples carries its mark and the mark its meaning."""
    shown = printed(samples.view(requests=30).summary)
    assert "ms*" in shown
    assert "* too few samples" in shown


def test_server_text_cannot_steer_the_terminal() -> None:
    """Escape codes in an error text arrive as harmless characters."""
    run = samples.run(requests=30, failures=0.5)
    run.table.errors[0] = "\x1b[2Jgone"
    assert "\x1b" not in printed(summarise(run, samples.TARGETS))


def test_without_targets_nothing_is_judged() -> None:
    """No SLO: counts and latencies, no bar, no verdict."""
    shown = printed(summarise(samples.run(requests=30), None))
    assert "targets were set." in shown
    assert "target met" not in shown
