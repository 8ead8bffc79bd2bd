"""Phrases that pages and terminal share."""

from __future__ import annotations

import re
from io import StringIO

import pytest

from metrics.bins import bins
from metrics.records import Outcome
from metrics.slo import SLO
from metrics.summary import summarise
from reports import words
from reports.block import render_block
from reports.numbers import THIN
from reports.page import PageData, RunView, render_html
from reports.text import console, render_text
from tests.metrics.rows import ok_rows, run_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("chunked against colocated", "Chunked against colocated"),
        ("chunked, 2 instances", "Chunked, 2 instances"),
        ("vllm-chunked against vllm-colocated", "vllm-chunked against vllm-colocated"),
        ("http://h:1 is better", "http://h:1 is better"),
        ("tp=8", "tp=8"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_and_a_name_as_it_is_written(text: str, shown: str) -> None:
    """A name with anything but letters in it is somebody's own."""
    assert shown == words.capital(text)


def plain(text: str) -> str:
    return text.replace(THIN, " ")


def cut_off(good: int, late: int, undecided: int) -> RunView:
    """A run that its user stopped."""
    rows = ok_rows([0.1] * good + [0.5] * late + [0.1] * undecided)
    rows["outcome"][good + late :] = Outcome.INTERRUPTED
    run, slo = run_of(rows, stopped_at_s=float(len(rows))), SLO.parse("ttft=200ms,share=90%")
    return RunView(label="cut", summary=summarise(run, slo), bins=bins(run, slo))


def test_undecided_requests_are_told_beside_the_share() -> None:
    """Headline with both bounds, subline with the count; the verdict is that of those decided where it could turn."""
    view = cut_off(95, 5, 20)
    told = plain(words.headline(view.summary))
    assert "95.0 % of requests met" in told
    assert told.endswith("90 % target met by those decided; with the undecided 79.2 % to 95.8 %.")
    assert "20 more undecided when the run ended" in words.subline(view.summary)
    assert "20 more were undecided" in words.outcomes(view.bins.quadrants)  # type: ignore[arg-type]
    few = cut_off(995, 5, 5)
    assert plain(words.headline(few.summary)).endswith("90 % target met.")
    assert "5 more undecided" in words.subline(few.summary)


def test_the_terminal_the_page_and_the_block_say_how_many_are_undecided() -> None:
    """Wherever the share stands."""
    view = cut_off(95, 5, 20)
    page = render_html(PageData(title="cut", runs=[view]))
    table = re.findall(r"<th[^>]*>undecided</th>", page)
    assert table
    assert "20 more undecided when the run ended" in page
    assert "20 undecided, with them 79.17% to 95.83%" in " ".join(render_block(view.summary).split())
    printed = StringIO()
    render_text(view.summary, console(printed, width=80), view.bins)
    assert "undecided 20 of 120 requests" in " ".join(printed.getvalue().split())


def test_answers_that_could_not_be_measured_have_a_part_of_their_own() -> None:
    """Two of forty: neither good, nor slow, nor failed."""
    rows = ok_rows([0.1] * 40)
    rows["last_token_s"][:2] = rows["first_token_s"][:2]
    run, slo = run_of(rows), SLO.parse("ttft=200ms,tpot=50ms,share=90%")
    found = bins(run, slo)
    assert found.quadrants is not None
    assert "38 good and 2 not measurable, of 40 planned requests." == words.outcomes(found.quadrants)
    assert "most misses are answers that could not be measured" in words.subline(summarise(run, slo))
    assert found.density is not None
    assert (38, 2) == (sum(found.density.count), found.density.without_tpot)
