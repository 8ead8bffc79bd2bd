"""Text from elsewhere in every field, through every sink: what steers a reader's program never arrives as such."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from loadtest.cli import output, streams
from loadtest.cli.main import run as goodput
from metrics.compare import RunSet, compare
from metrics.peers import peers
from metrics.requests import request_rows
from metrics.rundir import Run
from metrics.summary import summarise
from reports import escape, export
from reports.annotations import render_annotations
from reports.block import render_block
from reports.junit import render_junit
from reports.markdown import render_markdown
from reports.openmetrics import render_openmetrics, render_runs
from reports.page import render_html
from reports.peers import render_peers
from reports.static import vega_bundle
from reports.text import console, render_text
from reports.text_gate import render_comparison, render_gate
from reports.text_plan import render_plan
from reports.text_search import render_search
from tests.reports import samples
from tests.reports.gates import gate_report
from tests.reports.test_page import evil_pages

HOSTILE = {
    "escape": "a\x1b[8mhidden\x1b[0m \x1b]0;title\x07 \x9b31m",
    "overwrite": "failed\rpassed \x08\x08\x08ok\x7f",
    "rich": "nginx[/b] [bold]x[/] [link=file:///etc/passwd]y[/link] :smile:",
    "html": "</script><script>alert(1)</script><img src=x onerror=alert(1)>&\"'",
    "markdown": "`x` | **b** [c](http://d) <img src=x> ![e](f) @all",
    "command": "::error::owned",
    "commands": "x\n::set-output name=a::b\n  ::stop-commands::t\r\n##[add-mask]y\n##vso[task.complete]z ##teamcity[a]",
    "formula": "=cmd|'/c calc'!A1",
    "formulas": "@SUM(1)\t+1,-1\n=2",
    "bidi": "abc\u202efed\u202c\u2066\u200f\u2028\u2029",
    "nul": "a\x00b",
    "surrogate": "a\ud83db\udc80",
    "long": "word " * 2_000,
    "longest": "x" * 20_000,
}
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)


@pytest.fixture(params=HOSTILE)
def text(request: pytest.FixtureRequest) -> str:
    return HOSTILE[str(request.param)]


def hostile_run(text: str) -> Run:
    """A run with this text in every field that anybody else may fill."""
    run = samples.run(requests=20, failures=0.3)
    run.table.errors[0] = text
    for name in ("trace_name", "model", "name", "deployment", "arrangement", "endpoint", "target_url", "salt", "id"):
        setattr(run.info, name, text)
    run.info.trace_hash = run.info.recipe_hash = run.info.created_at = run.info.stop_reason = text
    run.info.warnings, run.info.tags, run.info.command = [text], {text: text}, ["goodput", text]
    run.info.server, run.info.host, run.info.versions = {text: text, "server": text}, {text: text}, {text: text}
    run.info.rejected, run.info.trace_reading = {text: 3}, {"format": text, text: text}
    return run


def shown(draw: Callable[[Any], None], *, colours: bool = False) -> str:
    """What a terminal of 80 columns gets of a rich drawing, through our stream as it is installed."""
    out = io.StringIO()
    made = console(out, width=80)
    made._force_terminal = colours
    draw(made)
    return out.getvalue()


def through_stream(text: str, folder: Path, *, drawn: bool = False) -> str:
    """What arrives at the descriptor behind a stream of ours."""
    streams.register()
    with (folder / "out").open("wb") as file:
        stream = streams.text_stream(streams.Outlet(file.fileno(), "wb", closefd=False), "utf-8")
        stream.drawn = drawn  # type: ignore[attr-defined]
        stream.write(text)
        stream.close()
    return (folder / "out").read_bytes().decode()


def assert_steers_nothing(told: str) -> None:
    assert [] == STEERING.findall(told)
    assert [] == COMMAND.findall(told)


# --- terminal and log ------------------------------------------------------------------------------------------------


def drawings(text: str) -> dict[str, Callable[[Any], None]]:
    """Everything that is drawn with rich, of this text."""
    run = hostile_run(text)
    summary = summarise(run, samples.TARGETS)
    other = samples.run(requests=20, seed=2)
    compared = compare([RunSet(text, [run], samples.TARGETS), RunSet("b", [other], samples.TARGETS)])
    found, plan = samples.search_page().search, samples.plan_page().plan
    assert found is not None
    assert plan is not None
    change = msgspec.structs.replace
    rows = [change(row, label=f"{text}{i}", deployment=text, binding=text) for i, row in enumerate(found.rows)]
    searched = change(found, rows=rows, trace=text, warnings=[text], command=[text], swept=text)
    planned = change(plan, trace=text, model=text, warnings=[text], rule_note=text)
    gate = gate_report("INVALID", label=text)
    gate = change(gate, sentence=text, warnings=[text], trace=text, advice=[text])
    return {
        "run": lambda to: render_text(summary, to),
        "comparison": lambda to: render_comparison(compared, to, definitions=True),
        "search": lambda to: render_search(searched, to),
        "plan": lambda to: render_plan(planned, to),
        "gate": lambda to: render_gate(gate, to),
    }


def test_drawings_on_a_terminal(text: str, tmp_path: Path) -> None:
    """Rich markup is text, and nothing but our own colours moves anything; what rich folds stays in its line."""
    for name, draw in drawings(text).items():
        told = shown(draw)
        assert [] == STEERING.findall(told.encode(errors="replace").decode()), name
        assert_steers_nothing(through_stream(told, tmp_path))


def test_rich_markup_is_shown_as_it_is() -> None:
    """`Server: nginx[/b]` ended a comparison after all measuring."""
    told = shown(drawings("nginx[/b] [bold]x :smile:")["comparison"])
    assert "nginx[/b] [bold]x :smile:" in told


def test_lines_that_are_said(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """On both streams, also without the streams' own net."""
    for err in (False, True):
        output.say(f"error: {text}", err=err)
        output.say(text, err=err)
        told = capfd.readouterr()
        assert_steers_nothing((told.err if err else told.out).encode(errors="replace").decode())


def test_the_last_net(text: str, tmp_path: Path) -> None:
    """What anybody prints without a thought."""
    assert_steers_nothing(through_stream(f"{text}\n{text}", tmp_path))
    if "\x1b[8m" not in text and "\r" not in text:
        assert_steers_nothing(through_stream(text, tmp_path, drawn=True))


def test_what_the_last_net_lets_pass(tmp_path: Path) -> None:
    """Colours and rewritten lines on a terminal, tabs, our words, and `::` within a line."""
    ours = "\r\x1b[2K\x1b[1A\x1b[1;31mred\x1b[0m\n\ta::b 2\u202fms 90\xa0%\n"
    assert ours == through_stream(ours, tmp_path, drawn=True)
    assert "\x1b" not in through_stream(ours, tmp_path)
    with (tmp_path / "out").open("wb") as file:
        stream = streams.text_stream(streams.Outlet(file.fileno(), "wb", closefd=False), "utf-8")
        for piece in ("std", "::vector", "\n", "::error::x", "\n"):
            stream.write(piece)
        stream.close()
    assert "std::vector\n: :error::x\n" == (tmp_path / "out").read_text()


def test_commands_with_a_trace_of_hostile_names(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Class names, tags, salt and file names, by the commands that print them."""
    monkeypatch.chdir(tmp_path)
    named = re.sub(r"[\x00/\n]", "_", text)[:50]
    named = named.encode(errors="replace").decode()
    rows = [{"t": i, "p": 5, "o": 3, "c": text, "s": text} for i in range(30)]
    trace = Path(f"{named}.jsonl")
    trace.write_text("\n".join(map(json.dumps, rows)) + "\n")
    columns = ["--columns", "time=t,prompt=p,output=o,class=c,session=s,unit=s"]
    virtual = ["--backend", "emulated:chunked,model=demo-8b", "--virtual", "--slo", "ttft=1s", "--salt", named]
    for words in (
        ["trace", "info", str(trace), *columns],
        ["trace", "lint", str(trace), *columns, "--json"],
        ["run", *virtual, "--trace", f"./{trace}", *columns, "--dry-run"],
        ["run", "--trace", f"./no{trace}"],
    ):
        goodput(words)
        told = capsys.readouterr()
        assert_steers_nothing((told.out + told.err).encode(errors="replace").decode())


# --- documents -------------------------------------------------------------------------------------------------------


def test_csv(text: str) -> None:
    """One line a row, no formula, nothing for a terminal or a CI."""
    run = hostile_run(text)
    told = "".join(export.csv_lines([(text, request_rows(run, samples.TARGETS))]))
    assert_steers_nothing(told)
    assert 21 == len(told.splitlines())
    cells = [cell for row in csv.reader(io.StringIO(told)) for cell in row]
    assert [] == [cell for cell in cells if cell[:1] in "=+-@\t\r" and cell and not _is_number(cell)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_json(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The same value; printed and exported it steers nothing."""
    legible = text.encode(errors="replace").decode()
    output.print_json({text: [text]})
    told = capfd.readouterr().out
    assert_steers_nothing(told)
    assert [legible] == next(iter(json.loads(told).values()))
    if legible == text:
        lines = list(export.jsonl_lines([(text, request_rows(hostile_run(text), samples.TARGETS))]))
        assert_steers_nothing("".join(lines))
        assert {text} == {json.loads(line)["run"] for line in lines}


def test_html() -> None:
    """No element of theirs, and no control character; all texts at once, since pages take long to draw."""
    legible = " ".join(text[:200] for text in HOSTILE.values()).encode(errors="replace").decode()
    plain = render_html(evil_pages("plain")["run"]).replace(vega_bundle(), "")
    for name, page in evil_pages(legible).items():
        html = render_html(page).replace(vega_bundle(), "")
        assert "<script>alert" not in html, name
        assert "<img src=x" not in html, name
        assert [] == re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", html), name
        if name == "run":
            assert plain.count("<script") == html.count("<script")


def test_plain_text_forms(text: str) -> None:
    """The block and other tools' tables."""
    run = hostile_run(text)
    summary = summarise(run, samples.TARGETS)
    block = render_block(summary)
    assert_steers_nothing(block)
    assert block.isascii()
    assert_steers_nothing(render_peers(peers(run, samples.TARGETS), summary))


# --- what a CI reads -------------------------------------------------------------------------------------------------


def hostile_gate(text: str, verdict: str) -> Any:
    found = gate_report(verdict, label=text)
    change = msgspec.structs.replace
    invalid = [change(reason, message=text) for reason in found.invalid]
    return change(found, sentence=text, invalid=invalid, warnings=[text], trace=text, slo=text, advice=[text])


@pytest.mark.parametrize("verdict", ["FAIL", "INVALID"])
def test_files_of_a_gate(text: str, verdict: str) -> None:
    """Markdown, JUnit, OpenMetrics and annotations are what they are without the text."""
    gate, plain = hostile_gate(text, verdict), hostile_gate("plain", verdict)
    told, model = render_markdown(gate), render_markdown(plain)
    assert [] == STEERING.findall(told)
    if "(cut: " not in told:
        assert len(model.splitlines()) == len(told.splitlines())
        for mark in ("<", "[", "`", "*", "|"):
            assert _bare(model, mark) == _bare(told, mark), mark
    assert "@all" not in told
    junit = render_junit(gate).encode(errors="replace").decode()
    assert len(list(Xml.fromstring(render_junit(plain)).iter())) == len(list(Xml.fromstring(junit).iter()))
    assert [] != list(text_string_to_metric_families(render_openmetrics(gate)))
    lines = render_annotations(gate).splitlines()
    assert len(render_annotations(plain).splitlines()) == len(lines)
    assert {"::error", "::warning"} >= {line.split()[0] for line in lines}
    assert [] == STEERING.findall("".join(lines))
    assert "##[" not in "".join(lines)


def _bare(text: str, mark: str) -> int:
    return len(re.findall(rf"(?<!\\){re.escape(mark)}", text))


def test_openmetrics_of_runs(text: str) -> None:
    told = render_runs([(text, summarise(hostile_run(text), samples.TARGETS))])
    assert [] != list(text_string_to_metric_families(told))
    assert [] == STEERING.findall(told)


def test_file_names() -> None:
    """Figures are named by us, run folders by their time; with Locust also by the trace."""
    from loadtest.swarm.session import default_directory

    for text in HOSTILE.values():
        assert re.fullmatch(r"runs/[\d-]+T[\d-]+_[\w.-]{0,60}_locust", default_directory(text.replace("\0", "")))
    page = evil_pages("../x")["run"]
    from reports.sections import sections

    names = [panel.id for section in sections(page) for panel in section.panels]
    assert [] == [name for name in names if not re.fullmatch(r"[a-z0-9-]+", name)]


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_each_function() -> None:
    """Values worked out by hand."""
    gone = escape.GONE
    assert f"oops {gone}]0;owned{gone}{gone}{gone}" == escape.printable("oops \x1b]0;owned\x07\r\n")
    assert "naïve 文字" == escape.printable("naïve 文字")
    assert f"a\n\tb{gone}" == escape.printable_lines("a\n\tb\r")
    assert ": :error::x\n  : :a\nb::c ## [d] ## vso[e] # [f]" == escape.log(
        "::error::x\n  ::a\nb::c ##[d] ##vso[e] # [f]"
    )
    assert "100%25%0Ab" == escape.command_value("100%\nb")
    assert "a%3Ab%2Cc" == escape.command_property("a:b,c")
    assert r"\<b\> \[a\](c) \| \*d\*" == escape.markdown("<b> [a](c) | *d*")
    assert ["'=1", "'-x", "a", 3, None] == [escape.csv_cell(cell) for cell in ("=1", "-x", "a", 3, None)]
    assert '{"a": "\\u202e#\\u0023[b]"}' == escape.json_document('{"a": "\u202e##[b]"}')
    assert r"a\"b\\c\nd" == escape.metric_label('a"b\\c\nd')


def test_click_prints_nothing_by_itself() -> None:
    """One place writes lines, one JSON, one workflow commands."""
    root = Path(sys.modules["loadtest"].__file__ or "").parent
    found = {path.name for path in root.rglob("*.py") if "click.echo(" in path.read_text(encoding="utf-8")}
    assert {"output.py", "main.py"} == found
