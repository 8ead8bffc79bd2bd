"""Plans on a small design space, against brute force over all of it."""

from __future__ import annotations

from functools import cache

import pytest

from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.plan import designs, planner, probe
from loadtest.plan.contest import Contest
from loadtest.plan.designs import Space, check, scaled
from loadtest.plan.planner import Planner
from loadtest.plan.probe import Probe
from loadtest.search import Search, VirtualRuns, Windows
from metrics.objective import parse_objective
from metrics.plan import DISAGGREGATED, PlanReport
from metrics.slo import SLO

SLO_ = SLO(ttft_s=1.0, tpot_s=0.045)
WINDOWS = Windows("azure-conv", max_tokens=16384)
SPACE = Space("llama2-70b", ("h100",), 16, (8,))
ALL_BUDGETS = designs.BUDGETS
BUDGETS = {"colocated": (2048,), "colocated_prefill_first": (2048,), "chunked": (256, 1024)}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few settings and short probes: what is promised does not hang on their number."""
    monkeypatch.setattr(designs, "BUDGETS", BUDGETS)
    monkeypatch.setattr(probe, "REQUESTS", 400)
    monkeypatch.setattr(probe, "MOST_REQUESTS", 600)
    monkeypatch.setattr(probe, "SATURATING_BETWEEN", (600, 1_200))
    monkeypatch.setattr(planner, "WORK_REQUESTS", 300)


@cache
def small_plan() -> PlanReport:
    return Planner(SPACE, WINDOWS, SLO_).plan(["goodput", "plan"], 12.0)


def test_a_space_holds_every_way_to_use_all_gpus() -> None:
    """16 GPUs in instances of 4 or 8: two or four in one pool, and 1+1, 1+2, 2+1, 1+3, 2+2, 3+1 in two."""
    space = Space("llama2-70b", ("h100",), 16, (4, 8))
    assert {16} == {design.gpus for design in space.single_pools()}
    splits = {
        (p[1], d[1]): [(int(s["prefill"]), int(s["decode"])) for s in space.splits(p, d)] for p, d in space.pairs()
    }
    assert {(4, 4): [(1, 3), (2, 2), (3, 1)], (4, 8): [(2, 1)], (8, 4): [(1, 2)], (8, 8): [(1, 1)]} == splits


def test_pools_may_have_hardware_of_their_own() -> None:
    """Both kinds, either way round."""
    space = Space("llama2-70b", ("h100", "a100"), 16, (8,))
    mixed = [str(split) for pair in space.pairs() for split in space.splits(*pair) if "prefill_hardware" in str(split)]
    assert 2 == len(mixed)
    assert {16} == {Deployment.parse(text).gpus for text in mixed}


def test_a_model_that_does_not_fit_is_refused() -> None:
    """With what would help."""
    with pytest.raises(UsageError, match="does not fit"):
        check(Space("llama2-70b", ("h100",), 1))


def test_an_slo_that_nothing_keeps_is_said() -> None:
    """No design has a first token within a millisecond, alone or not."""
    tight = Planner(Space("llama2-70b", ("h100",), 8, (8,)), WINDOWS, SLO(ttft_s=0.001))
    with pytest.raises(UsageError, match="no design keeps ttft=2ms,share=90% at any rate"):
        tight.plan([])


def test_the_quick_probe_agrees_with_the_search() -> None:
    """Within 12 %, for a single pool and for two."""
    for text in ("emulated:chunked,instances=2", "emulated:disaggregated"):
        deployment = Deployment.parse(text)
        searched = Search(VirtualRuns(deployment, WINDOWS, SLO_), 0.9).run(4.0, 6).goodput.rate
        assert pytest.approx(searched, rel=0.12) == Probe(deployment, WINDOWS).goodput_per_gpu(SLO_) * 16


def test_the_winner_of_a_contest_is_that_of_brute_force() -> None:
    """All probed to the end, or all but the leader dropped after one run: as good a design, but for noise."""
    contest = Contest(SPACE, WINDOWS)
    for arrangement in ("chunked", DISAGGREGATED):
        lead = contest.best(arrangement, SLO_)
        own = [d for d in SPACE.single_pools() if d.arrangement == arrangement]
        own = own or [s for pair in SPACE.pairs() for s in SPACE.splits(*pair)]
        every = {str(d): Probe(d, WINDOWS).goodput_per_gpu(SLO_) for d in own}
        assert lead.probe is not None
        assert every[str(lead.probe.deployment)] >= 0.93 * max(every.values())


def test_a_family_is_counted_as_a_search_counts_it() -> None:
    """The same window: the limit that is farthest from its share, in units of the misses it allows."""
    family = parse_objective("ttft.p90=300ms,itl.p99=60ms,tpot_slowdown.p90=3x")
    deployment = Deployment.parse("emulated:chunked")
    runs = VirtualRuns(deployment, WINDOWS, family, least_requests=400)
    shares = {limit.name: (limit.good / limit.total, limit.share) for limit in runs(2.0, 0).limits}
    shown = Probe(deployment, WINDOWS).shown(2.0, family)
    worst = min(shares.values(), key=lambda pair: (pair[0] - pair[1]) / (1 - pair[1]))
    assert (worst[0], (worst[0] - worst[1]) / (1 - worst[1])) == pytest.approx(shown)
    assert 3 == len(shares)


def test_the_rows_of_a_plan_are_those_of_brute_force_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the strict SLO each arrangement's best is within the intervals of the best of all its designs.

    One machine of 8 GPUs with every setting: a single instance is simulated fastest. Two pools need a second machine.
    """
    monkeypatch.setattr(designs, "BUDGETS", ALL_BUDGETS)
    space = Space("llama2-70b", ("h100",), 8, (8,))
    one_machine = Planner(space, WINDOWS, SLO_).plan([])
    two_pools = [c for c in small_plan().rows[-1].candidates if c.arrangement == DISAGGREGATED]
    every = [*space.single_pools(), *(s for pair in SPACE.pairs() for s in SPACE.splits(*pair))]
    assert 9 == len(every)
    for candidate in [*one_machine.rows[-1].candidates, *two_pools]:
        own = [d for d in every if d.arrangement == candidate.arrangement]
        found = [Search(VirtualRuns(d, WINDOWS, SLO_), 0.9).run(2.0, 6).goodput for d in own]
        best = max(found, key=lambda goodput: goodput.rate)
        assert candidate.goodput is not None
        assert candidate.goodput.most >= best.least
        assert pytest.approx(best.rate, rel=0.08) == candidate.goodput.rate
    assert ("there is only one kind of design", [], None) == (
        one_machine.flip_note,
        one_machine.waterfall,
        one_machine.kv,
    )


def test_a_plan_answers_every_demand_and_says_whether_the_rule_holds() -> None:
    """Tokens alone, relaxed, strict; the rule's note names each demand where it does not hold."""
    plan = small_plan()
    assert ["throughput only", "relaxed", "strict"] == [row.demand for row in plan.rows]
    assert {4} == {len(row.candidates) for row in plan.rows}
    assert plan.rule_holds == (plan.rule_note == "")
    assert all(row.candidates == sorted(row.candidates, key=lambda c: -c.worth) for row in plan.rows)
    assert DISAGGREGATED != plan.rows[0].winner.arrangement  # disaggregation does not improve throughput


def test_the_waterfall_adds_up() -> None:
    """From the first bar to the last by the gains; the transfer never gains."""
    steps = small_plan().waterfall
    assert ["no interference", "own parallelism", "minus transfer"] == [step.name for step in steps[1:]]
    assert pytest.approx(steps[-1].goodput_per_gpu) == steps[0].goodput_per_gpu + sum(step.gain for step in steps)
    assert steps[-1].gain <= 0.01 * steps[-1].goodput_per_gpu


def test_kv_facts_are_the_models() -> None:
    """Llama2-70B: 327,680 bytes a token over 400 Gb/s."""
    kv = small_plan().kv
    assert kv is not None
    assert (327_680, 400.0) == (kv.bytes_per_token, kv.link_gbps)
    assert pytest.approx(kv.prompt_tokens_p50 * 327_680 / 50e9) == kv.wire_s_p50


def test_break_evens_are_where_the_sides_are_level() -> None:
    """Above the flip one pool leads, below it two; below the link rate two pools lose the lead they have."""
    plan = small_plan()
    if plan.flip_tpot_s is not None:
        one, two = (
            [Probe(Deployment.parse(c.deployment), WINDOWS) for row in plan.rows[1:] for c in row.candidates if
             (c.arrangement == DISAGGREGATED) is wanted]
            for wanted in (False, True)
        )  # fmt: skip
        for factor, sign in ((1.15, -1), (1 / 1.15, 1)):
            slo = SLO(ttft_s=1.0, tpot_s=plan.flip_tpot_s * factor)
            gap = max(p.goodput_per_gpu(slo) for p in two) - max(p.goodput_per_gpu(slo) for p in one)
            assert sign * gap > -0.03
    else:
        assert plan.flip_note
    assert (plan.link_gbps is None) == bool(plan.link_note)


def test_a_wanted_rate_is_carried_by_what_is_sized_for_it() -> None:
    """At least 90 % good at 12 requests/s, cheapest first, at the list price of its GPUs."""
    sizing = small_plan().sizing
    assert sizing == sorted(sizing, key=lambda size: size.usd_per_hour)
    for size in sizing:
        assert size.attainment >= 0.9
        assert pytest.approx(size.gpus * 4.76) == size.usd_per_hour


def test_scaled_designs_come_smallest_first() -> None:
    """The same instances in other numbers."""
    sizes = [design.gpus for design in scaled(Deployment.parse("emulated:disaggregated,prefill=2,decode=3"), 2.0)]
    assert sizes == sorted(sizes)  # type: ignore[type-var]
    assert 80 in sizes
