"""Limits scaled: all of them, or those on the time of a token."""

from __future__ import annotations

import pytest

from loadtest.plan.demands import asked_share, relaxed, token_limit_s, with_token_limit
from metrics.objective import Family, Limit, parse_objective
from metrics.slo import SLO


def test_a_relaxed_slo_has_larger_limits_and_the_same_share() -> None:
    """Those that are not set stay unset."""
    assert SLO(ttft_s=2.0, e2e_s=20.0, share=0.95) == relaxed(SLO(ttft_s=1.0, e2e_s=10.0, share=0.95), 2.0)


def test_a_relaxed_family_keeps_its_percentiles_and_says_so() -> None:
    """Times and slowdowns alike."""
    family = parse_objective("ttft_slowdown.p90=3x,itl.p99=60ms")
    assert isinstance(family, Family)
    found = relaxed(family, 2.0)
    assert isinstance(found, Family)
    assert (Limit("ttft_slowdown", 6.0, 0.9), Limit("itl", 0.12, 0.99)) == found.limits
    assert "splitwise x 2" == str(relaxed(parse_objective("splitwise"), 2.0))


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [("ttft=1s,tpot=45ms", 0.045), ("ttft=1s", None), ("sarathi:yi-34b-strict", 0.2), ("splitwise", None)],
)
def test_the_limit_on_a_tokens_time(text: str, limit_s: float | None) -> None:
    """TPOT, or the family's first on TPOT or token gaps in seconds."""
    assert limit_s == token_limit_s(parse_objective(text))


def test_another_limit_on_the_tokens_time_leaves_the_rest() -> None:
    """A family's limits on it keep their proportion."""
    assert SLO(ttft_s=1.0, tpot_s=0.03) == with_token_limit(SLO(ttft_s=1.0, tpot_s=0.045), 0.03)
    found = with_token_limit(parse_objective("ttft.p90=1s,itl.p50=20ms,itl.p99=60ms"), 0.04)
    assert isinstance(found, Family)
    assert [1.0, 0.04, pytest.approx(0.12)] == [limit.limit for limit in found.limits]


def test_the_share_that_is_good_at_goodput() -> None:
    """A family's limits speak of all requests together."""
    assert [0.95, 1.0] == [asked_share(parse_objective(text)) for text in ("ttft=1s,share=95%", "splitwise")]
