"""The page: complete in itself, honest, the same every time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import metrics.validity
from metrics.bins import bins
from metrics.decision import decide
from metrics.energy import Economy
from metrics.probes import Comparison as ProbeLine
from metrics.rundir import Run
from metrics.serverlines import PoolLine, ServerView
from metrics.summary import summarise
from reports import pages, static
from reports.advice import REMEDIES
from reports.page import Bill, PageData, RunView, breakable, coded, json_text, render_html
from reports.sections import drawn
from reports.sections.server import server_section
from reports.static import vega_bundle
from tests.reports import samples
from tests.reports.gates import gate_report

PAGES = ["one_html", "demo_html", "search_html", "compare_html", "plan_html", "gate_html"]


def readable(html: str) -> str:
    """The page without the Vega bundle and drawn charts, whose text depends on the machine's fonts."""
    html = html.replace(vega_bundle(), "VEGA")
    return re.sub(r"<svg xmlns.*?</svg>", "<svg/>", html, flags=re.DOTALL)


def page_of(run: Run, label: str) -> PageData:
    """The page of one run, judged by the sample targets."""
    found = RunView(label=label, summary=summarise(run, samples.TARGETS), bins=bins(run, samples.TARGETS))
    return PageData(title=label, runs=[found])


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)))


def test_page_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    """A change of the page is a change of a file a person reads."""
    golden("page.html", readable(render_html(samples.single_page(requests=40))))


def test_same_input_same_bytes() -> None:
    """Nothing random, no clock: two renderings are equal."""
    page = samples.single_page(requests=30)
    assert render_html(page) == render_html(page)


@pytest.mark.parametrize("page", PAGES)
def test_every_id_is_unique(page: str, request: pytest.FixtureRequest) -> None:
    """Ids of page, charts and their clip paths do not collide, and every reference has its target."""
    html = request.getfixturevalue(page).replace(vega_bundle(), "")
    ids = Counter(re.findall(r'\sid="([^"]+)"', html))
    assert [] == [name for name, n in ids.items() if n > 1]
    referred = re.findall(r'(?:aria-labelledby|aria-describedby|data-spec)="([^"]+)"', html)
    assert set(referred) <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_fetched(page: str, request: pytest.FixtureRequest) -> None:
    """No address of another machine is loaded: no src, no stylesheet, no font, no import."""
    html = request.getfixturevalue(page).replace(vega_bundle(), "")
    assert [] == re.findall(r'(?:src|href)="(?!#|data:,)[^"]*"', html)
    assert "@import" not in html
    assert [] == re.findall(r"url\((?!#)", html)


@pytest.mark.parametrize("page", PAGES)
def test_no_value_is_nan(page: str, request: pytest.FixtureRequest) -> None:
    """Neither text nor data nor drawn charts hold NaN, Infinity or undefined."""
    html = request.getfixturevalue(page).replace(vega_bundle(), "")
    assert [] == re.findall(r"\b(?:NaN|nan|Infinity|undefined)\b", html)
    for spec in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, flags=re.DOTALL):
        assert "layer" in json.loads(spec)


def test_sizes_stay_within_budget(one_html: str) -> None:
    """1.6 MB for one run, 2.5 MB for ten."""
    ten = [samples.view("chunked", requests=120, seed=i) for i in range(10)]
    many = PageData(title="ten", runs=[msgspec.structs.replace(v, label=f"run {i}") for i, v in enumerate(ten)])
    assert len(one_html.encode()) < 1_600_000
    assert len(render_html(many).encode()) < 2_500_000


def test_the_page_reads_without_script(demo_html: str) -> None:
    """Headline, decision table, findings, drawn charts and numbers stand in the document itself."""
    told = text_of(demo_html)
    assert "Disaggregated wins: 1.35 times the goodput per GPU of chunked" in told
    for name in ("Colocated", "Chunked", "Disaggregated"):
        assert name in told
    assert demo_html.count("<svg xmlns") == demo_html.count('class="chart"')


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&\"'"


def evil_pages(evil: str = EVIL) -> dict[str, PageData]:
    """Every kind of page with this text wherever text comes from a file, a server or a user."""
    run = samples.run(requests=40, failures=0.3)
    run.table.errors[0] = evil
    for name in ("trace_name", "model", "name", "deployment", "endpoint", "target_url", "salt"):
        setattr(run.info, name, evil)
    run.info.warnings, run.info.tags, run.info.server = [evil], {evil: evil}, {evil: evil}
    probed = ServerView(
        [PoolLine(evil, "waiting", [0.0, 1.0], [0.0, 1.0])],
        [ProbeLine(quantity=evil, unit="", client=1.0, servers={evil: 2.0})],
    )
    view = RunView(label=evil, summary=summarise(run, samples.TARGETS), bins=bins(run, samples.TARGETS), server=probed)
    found, plan, comparison = samples.search_page().search, samples.plan_page().plan, samples.comparison_page()
    gate = gate_report("FAIL")
    assert found is not None
    assert plan is not None
    assert comparison.comparison is not None
    change = msgspec.structs.replace
    rows = [change(row, label=f"{evil}{i}", deployment=evil, binding=evil) for i, row in enumerate(found.rows)]
    sides = [change(side, label=f"{evil}{i}") for i, side in enumerate(comparison.comparison.sides)]
    contrasts = [change(c, label=f"{evil}1") for c in comparison.comparison.contrasts]
    facts = change(gate.baseline, label=evil, deployment=evil, model=evil)
    designs = [
        change(row, slo=evil, candidates=[change(c, arrangement=evil, deployment=evil) for c in row.candidates])
        for row in plan.rows
    ]
    return {
        "run": pages.runs_page(evil, [view]),
        "search": pages.search_page(change(found, rows=rows, trace=evil, slo=evil, warnings=[evil], command=[evil])),
        "comparison": pages.comparison_page(
            change(comparison.comparison, sides=sides, contrasts=contrasts, sentence=evil, trace=evil), [view]
        ),
        "gate": pages.gate_page(
            change(gate, sentence=evil, baseline=facts, trace=evil, warnings=[evil], versions={evil: evil})
        ),
        "plan": pages.plan_page(change(plan, rows=designs, trace=evil, model=evil, warnings=[evil])),
    }


def test_no_page_takes_foreign_text_for_markup() -> None:
    """A trace's name, a model's, a deployment's, a server's words: escaped in text, data and drawings alike."""
    for name, page in evil_pages().items():
        html = render_html(page).replace(vega_bundle(), "")
        assert "<script>alert" not in html, name
        assert "<img src=x" not in html, name
        assert "alert(1)" in html, name


def test_of_many_runs_four_are_drawn_and_all_are_told() -> None:
    """More lines cannot be told apart: the ends and those around goodput, or evenly spread; tables have them all."""
    ten = [samples.view("chunked", requests=40, seed=i) for i in range(10)]
    page = PageData(title="ten", runs=[msgspec.structs.replace(v, label=f"run {i}") for i, v in enumerate(ten)])
    assert ["run 0", "run 3", "run 6", "run 9"] == [run.label for run in drawn(page)]
    html = render_html(page)
    told = text_of(html)
    assert "Charts of single runs show 4 of the 10: run 0, run 3, run 6 and run 9." in told
    assert 10 == html.count("<td>time to first token (TTFT)</td>")
    found = msgspec.structs.replace(samples.sweeps()[0], goodput=samples.estimate(4.5, 4.0, 5.0))
    for i, view in enumerate(page.runs):
        view.summary.run.rate_per_s = float(i + 1)
    around = msgspec.structs.replace(page, sweeps=[found])
    assert ["run 0", "run 3", "run 4", "run 9"] == [run.label for run in drawn(around)]


def test_what_all_runs_share_is_told_once(demo_html: str) -> None:
    """Hashes and versions stand in one place; a run's own part has only what is its own."""
    told = text_of(demo_html)
    assert 1 == told.count("The same for all runs")
    assert 1 == demo_html.count("<td>goodput.toml</td>")


def test_a_bill_stands_in_the_page_with_its_numbers() -> None:
    """Per request, per good request, and what the misses add: 8 dollars for 1,000, 10 for 1,000 good ones."""
    spent = Economy(
        usd=4.0,
        usd_per_request=0.008,
        usd_per_good_request=0.010,
        wh=100.0,
        wh_per_request=0.2,
        wh_per_good_request=0.25,
        power_model="constant",
        idle_share=0.25,
    )
    page = samples.single_page(requests=40)
    page.bills = [Bill(label="chunked", economy=spent)]
    told = text_of(render_html(page))
    for needed in (
        "Cost and energy",
        "10.0 for the good ones; 20.0 % of it went into misses.",
        "25.0 % of the GPU",
    ):
        assert needed in told


def test_a_simulation_is_called_one() -> None:
    """Nobody must take a model's figures for a server's."""
    run = samples.run(requests=40, failures=0.0)
    run.table.rows["flags"] = 0
    run.info.server["clock"] = "virtual"
    told = text_of(render_html(page_of(run, "x")))
    assert "Simulated: these are a performance model" in told
    assert "client lag p50" not in told


def test_servers_of_several_runs_stand_side_by_side() -> None:
    """A line per run and pool in each chart, a column per pool in the table, every row with its run."""
    said = ServerView(
        [PoolLine("decode", "kv_usage", [0.0, 1.0], [0.1, 0.5])],
        [ProbeLine(quantity="preemptions", unit="", client=None, servers={"decode": 3.0})],
    )
    views = [msgspec.structs.replace(samples.view(n, requests=20), server=said) for n in ("colocated", "chunked")]
    found = server_section(views)
    assert found is not None
    assert ["colocated: decode", "chunked: decode"] == [entry.name for entry in found.key]
    assert [
        ["colocated", "preemptions", "\N{EN DASH}", "3"],
        ["chunked", "preemptions", "\N{EN DASH}", "3"],
    ] == found.table.rows
    assert "colocated: decode 50.0\N{NO-BREAK SPACE}% (at 1 s)" in found.panels[0].tells
    assert server_section([samples.view("chunked", requests=20)]) is None


def test_unsound_runs_are_not_compared_in_silence() -> None:
    """Several runs without a decision: the caution stands under the headline."""
    late = samples.run(requests=30)
    late.table.rows["sent_s"] += 0.2
    views = [RunView(label=n, summary=summarise(late, samples.TARGETS), bins=bins(late, samples.TARGETS)) for n in "ab"]
    html = render_html(PageData(title="late", runs=views))
    assert '<p class="caution">Do not use the figures of a and b' in html


def test_an_unsound_run_says_so_before_anything_else() -> None:
    """The headline of an invalid run is its reason, never its attainment."""
    run = samples.run(requests=30)
    run.table.rows["sent_s"] += 0.2
    html = render_html(
        PageData(
            title="late",
            runs=[RunView(label="late", summary=summarise(run, samples.TARGETS), bins=bins(run, samples.TARGETS))],
        )
    )
    assert "<h1>This measurement is not sound. The client sent late" in html
    assert html.index("Can these figures be trusted?") < html.index("<figure>")


def test_method_names_everything_needed_to_repeat(one_html: str) -> None:
    """Hashes, seed, salt, versions, settings with their origin, and a command that pins seed and salt."""
    told = text_of(one_html)
    for needed in (
        "9f3b6c2a",
        "b2f0c1d4a7e95833",
        "--seed 1",
        "--salt 9f3b6c2a",
        "3.11.7",
        "GOODPUT_SLO",
        "goodput.toml",
    ):
        assert needed in told


def test_a_run_that_sent_nothing_still_has_a_page() -> None:
    """No answer, no event, no SLO: the page says what there is."""
    run = samples.run(requests=12, failures=1.0)
    run.table.events = None
    html = render_html(PageData(title="empty", runs=[RunView(label="x", summary=summarise(run), bins=bins(run, None))]))
    assert "No request was answered: 12 HTTP 503." in text_of(html)


def test_a_decision_without_goodput_still_has_a_page() -> None:
    """Before any search the table stands with dashes and no chart of goodput."""
    page = samples.demo_page(requests=20)
    assert page.decision is not None
    rows = [msgspec.structs.replace(row, goodput_per_gpu=None, goodput_per_s=None) for row in page.decision.rows]
    html = render_html(msgspec.structs.replace(page, decision=decide(rows)))
    assert "No deployment can be ranked." in html
    assert "How much each GPU serves" not in html


def test_a_deployment_breaks_after_its_commas_only() -> None:
    """Break opportunities are markup around escaped text."""
    assert "a,<wbr>b &lt;c&gt;" == breakable("a,b <c>")


def test_json_in_a_script_element_cannot_end_it() -> None:
    """Angle brackets and ampersands are written as escapes; the value is unchanged."""
    text = json_text({"a": "</script>&"})
    assert "<" not in text
    assert {"a": "</script>&"} == json.loads(text)


@pytest.mark.parametrize(
    ("page", "needed"),
    [
        ("search_html", ["What was found", "as the rate grows", "Which objective binds", "one <run> was odd"]),
        ("compare_html", ["Disaggregated against colocated", "What was not the same", "Cannot tell"]),
        ("plan_html", ["Which arrangement for which demand", "What each freedom adds", "GPUs for 14.0/s"]),
        ("gate_html", ["FAIL. The candidate is worse than allowed", "Each rule and what the pairs say", "ttft.p90"]),
        ("demo_html", ["Where the KV hand-off sits", "Goodput against SLO scale", "Predicted against measured"]),
        ("one_html", ["Where the time goes", "How tight could the targets be?", "Which workloads are served well"]),
    ],
)
def test_each_page_has_its_sections(page: str, needed: list[str], request: pytest.FixtureRequest) -> None:
    """What a run, several, a search, a comparison, a plan and a gate are asked about."""
    told = text_of(request.getfixturevalue(page)).replace("&lt;", "<").replace("&gt;", ">")
    assert [] == [text for text in needed if text not in told]


def test_every_finding_says_what_helps() -> None:
    """Each code of `validity` has a reason and a remedy, and each option named there exists."""
    source = Path(metrics.validity.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'_(?:in)?(?:valid|warning)\(\s*"([a-z_]+)"', source)) | {"short_outputs", "buffered_stream"}
    assert codes
    assert [] == [code for code in codes if not all(REMEDIES.get(code, ("", "")))]


def test_boxes_tell_how_many_why_and_what_helps(one_html: str) -> None:
    """A warning is a box with its count, its meaning and an option; options are code."""
    told = text_of(one_html)
    assert "3 of 400 requests gave fewer tokens than asked" in told
    assert "<code>--extra-body ignore_eos=true</code>" in one_html


def test_backticks_become_code_and_nothing_else_markup() -> None:
    """Escaped inside and outside."""
    assert "a <code>&lt;b&gt;</code> &lt;c&gt;" == coded("a `<b>` <c>")


def test_a_cached_chart_script_that_was_cut_off_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a whole file is believed, and a folder that cannot be written is no reason to fail."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(static, "_make_bundle", lambda: "made")
    static.vega_bundle.cache_clear()
    try:
        first = static.vega_bundle()
        (kept,) = (tmp_path / "goodput").iterdir()
        assert first == kept.read_text(encoding="utf-8")
        kept.write_text("cut", encoding="utf-8")
        static.vega_bundle.cache_clear()
        assert first == static.vega_bundle()
        monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
        static.vega_bundle.cache_clear()
        assert first == static.vega_bundle()
    finally:
        static.vega_bundle.cache_clear()
