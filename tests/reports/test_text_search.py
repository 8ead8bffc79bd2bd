"""A search and a plan in words and tables."""

from __future__ import annotations

import io

import msgspec

from metrics.goodput import GoodputEstimate, sweep_goodput
from metrics.goodput import SweepPoint as Point
from metrics.plan import Candidate, PlanReport, Step, row_of, rule
from metrics.search import Attempt, Found, SearchReport, SearchRow, extrapolation, mark_best, scale_of
from metrics.search import row_of as search_row_of
from reports.search_words import ranked
from reports.text import console
from reports.text_plan import render_plan, setting
from reports.text_search import goodput, interval, render_search, swept


def estimate(rate: float, low: float, high: float) -> GoodputEstimate:
    return GoodputEstimate(rate=rate, low=low, high=high, bound="estimate", runs=6)


def report(**changes: object) -> SearchReport:
    about = {"mode": "search", "clock": "virtual", "trace": "azure-conv", "slo": "ttft=1s", "seed": 0, "share": 0.9}
    return SearchReport(**{**about, "command": [], **changes})  # type: ignore[arg-type]


def printed(found: SearchReport) -> str:
    out = io.StringIO()
    render_search(found, console(out, width=80))
    assert 80 >= max(len(line) for line in out.getvalue().splitlines())
    return " ".join(out.getvalue().split())


def test_bounds_are_said_as_such() -> None:
    """Never a number that was not measured."""
    assert "3.21" == goodput(estimate(3.21, 3.0, 3.4))
    assert "at least 4.00" == goodput(GoodputEstimate(rate=4, low=4, high=None, bound="at_least", runs=3))
    assert "below 1.00" == goodput(GoodputEstimate(rate=1, low=None, high=1, bound="below", runs=3))
    assert "3.00-3.40" == interval(estimate(3.21, 3.0, 3.4))
    assert "at least 2" == swept(sweep_goodput([Point(1, 1.0), Point(2, 0.95)]))
    assert "below 1" == swept(sweep_goodput([Point(1, 0.4)]))


def test_limits_that_no_rate_keeps_are_said_as_such() -> None:
    """Nobody wants to read that a server serves below 0.0000884 requests/s."""
    below = GoodputEstimate(rate=8.84e-5, low=None, high=None, bound="below", runs=25)
    text = printed(report(rows=[search_row_of("one", "emulated:chunked", 8, Found(below, []))]))
    assert "One does not keep TTFT ≤ 1 s for 90 % of requests: fewer do even at 0.0000884 requests/s" in text


def test_deployments_stand_best_first() -> None:
    """Whatever the order they were asked for in; the values of a sweep keep theirs."""
    slow, fast = (
        search_row_of(n, n, 8, Found(estimate(r, r * 0.9, r * 1.1), [])) for n, r in (("slow", 1.0), ("fast", 2.0))
    )
    assert ["fast", "slow"] == [label for label, _ in ranked(report(rows=[slow, fast]))]
    swept = report(rows=[row("256", 1.0, 0.1), row("512", 2.0, 0.1)], swept="chunk")
    assert ["chunk=256", "chunk=512"] == [label for label, _ in ranked(swept)]


def test_a_trace_of_simulated_time_outside_the_range_is_not_said_as_nothing() -> None:
    """Less than 0.05 % would be printed as 0.0 %; the value of a sweep stands once."""
    attempts = {
        x: [Attempt(9, 10, rate_per_s=1.0, purpose="fit", extrapolated=x, seconds=10.0)] for x in (0.0004, 0.111)
    }
    rows = [search_row_of("a=512", "d", 8, Found(estimate(1.0, 0.9, 1.1), tried)) for tried in attempts.values()]
    said = extrapolation([msgspec.structs.replace(one, value="512") for one in rows])
    assert ["a=512: 11.1 % of the simulated time lay outside the range the performance model was fitted on"] == said


def test_a_search_says_what_binds() -> None:
    """The share within each limit, failures counted as missing all of them."""
    attempts = [
        Attempt(85, 100, rate_per_s=3.1, purpose="fit", misses={"failures": 5, "ttft": 0, "tpot": 10}, requests=130)
    ]
    row = search_row_of("one", "emulated:chunked", 8, Found(estimate(3.0, 2.8, 3.2), attempts, binding="tpot"))
    assert {"failures": 0.95, "ttft": 0.95, "tpot": 0.85} == {k: round(v, 9) for k, v in row.marginals.items()}
    text = printed(report(rows=[row]))
    assert "One serves 3.00 (2.80 to 3.20) requests/s, 0.375 per GPU, within TTFT ≤ 1 s for 90 % of requests." in text
    assert "TPOT 85.0 %" in text


def test_a_dip_names_the_rates_to_run_again() -> None:
    """In a plain sweep."""
    sweep = sweep_goodput([Point(1, 1.0), Point(2, 0.8), Point(3, 0.95)])
    text = printed(report(mode="rates", rows=[SearchRow(label="a", deployment="a", gpus=None, sweep=sweep)]))
    assert "A serves 1 requests/s, but not 2, within TTFT ≤ 1 s" in text
    assert "run 2, 3 again" in text


def test_a_sweep_that_nothing_passed_is_below_its_lowest_rate() -> None:
    """Not below 0."""
    sweep = sweep_goodput([Point(4, 0.5), Point(8, 0.1)])
    text = printed(report(mode="rates", rows=[SearchRow(label="a", deployment="a", gpus=None, sweep=sweep)]))
    assert "below 4 requests/s" in text


def row(value: str, rate: float, half: float) -> SearchRow:
    return SearchRow(label=value, deployment="d", gpus=8, value=value, goodput=estimate(rate, rate - half, rate + half))


def test_the_best_of_a_sweep_is_marked_and_what_cannot_be_told_apart_is_said() -> None:
    """Both ends lose only when their intervals lie below the best one's."""
    rows, sentence = mark_best([row("256", 1.0, 0.1), row("512", 2.0, 0.1), row("1024", 1.2, 0.1)])
    assert ([False, True, False], "512 is the best value; both ends lose (256 and 1024).") == (
        [r.best for r in rows],
        sentence,
    )
    _, sentence = mark_best([row("256", 1.0, 0.1), row("512", 2.0, 0.3), row("1024", 1.8, 0.3)])
    assert "512 has the highest estimate, but cannot be told from 1024; of the ends only 256 loses." == sentence


def test_an_slo_scale_has_an_interval_over_runs() -> None:
    """The geometric mean of 0.5 and 2 is 1; a run that no factor helps leaves nothing to say."""
    assert 1.0 == round(scale_of(3.0, [0.5, 2.0]).scale or 0.0, 9)
    assert scale_of(3.0, [0.5, None]).scale is None
    assert scale_of(3.0, [0.5]).low is None


def candidate(arrangement: str, rate: float, half: float, text: str = "") -> Candidate:
    return Candidate(
        arrangement=arrangement,
        deployment=text or f"emulated:{arrangement}",
        gpus=16,
        goodput=estimate(16 * rate, 16 * (rate - half), 16 * (rate + half)),
        goodput_per_gpu=estimate(rate, rate - half, rate + half),
        output_tokens_per_s_per_gpu=100.0,
        usd_per_1000_good=2.0,
        wh_per_good=0.5,
    )


def test_the_rule_of_thumb_holds_or_is_reported_as_not_holding() -> None:
    """A tie with the wrong side does not confirm it."""
    chunked, pools = candidate("chunked", 0.5, 0.01), candidate("disaggregated", 0.6, 0.01)
    strict, relaxed = row_of("strict", "s", [chunked, pools]), row_of("relaxed", "r", [chunked])
    assert (True, "") == rule([relaxed, strict])
    level = row_of("strict", "s", [candidate("chunked", 0.59, 0.05), pools])
    assert (False, True) == (rule([level])[0], level.tie)
    assert "disaggregated and chunked are level" in rule([level])[1]
    assert "chunked wins, not disaggregated" in rule([row_of("strict", "s", [chunked])])[1]
    tied = row_of("strict", "s", [candidate("chunked", 0.61, 0.05), pools])
    assert "strict: chunked leads, not disaggregated" == rule([tied])[1]


def test_a_plan_prints_settings_without_what_the_title_says() -> None:
    """And its sentence at the end."""
    text = "emulated:chunked,model=llama2-70b,hardware=h100,tp=4,instances=4,max_num_batched_tokens=512"
    assert "chunked tp=4 x=4 budget=512" == setting(text)
    assert "chunked h100 tp=4 x=4 budget=512" == setting(text, kinds=2)
    rows = [row_of("strict", "ttft=1s,tpot=45ms,share=90%", [candidate("chunked", 0.5, 0.01, text)])]
    plan = PlanReport(
        trace="azure-conv", model="llama2-70b", hardware=["h100"], gpus=16, slo="ttft=1s,tpot=45ms", seed=0, command=[],
        designs=3, rows=rows, kv=None, flip_tpot_s=None, flip_note="one pool leads from 22 to 90 ms", link_gbps=12.5,
        link_note="", waterfall=[Step(name="colocated", deployment=text, goodput_per_gpu=0.3, gain=0.0)],
        rule_holds=False, rule_note="strict: chunked wins, not disaggregated",
    )  # fmt: skip
    out = io.StringIO()
    render_plan(plan, console(out, width=80))
    words = " ".join(out.getvalue().split())
    assert 80 >= max(len(line) for line in out.getvalue().splitlines())
    assert "nowhere: one pool leads" in words
    assert "below 12.5 Gb/s" in words
    assert "does not hold here: strict: chunked wins, not disaggregated." in words
