"""Closed loops and saturation, against what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.backends.cluster import Cluster
from loadtest.deployment import Deployment
from loadtest.search import Counted, Windows
from loadtest.search.concurrency import MOST_USERS, VirtualUsers, closed_loop, first_guess, most_users
from loadtest.search.saturation import saturation, saturation_of, start_rate
from metrics.records import Outcome, RecordTable, empty_rows
from metrics.slo import SLO

CHUNKED = Deployment.parse("emulated:chunked")


@pytest.mark.parametrize("limit", [1, 2, 7, 37, 500])
@pytest.mark.parametrize("start", [1, 10, 300])
def test_the_most_users_are_found_exactly(limit: int, start: int) -> None:
    """The highest number that passes, next to the first that fails."""

    def measure(users: int, _number: int) -> Counted:
        return Counted(100 if users <= limit else 0, 100)

    found, attempts = most_users(measure, 0.9, start)
    assert (limit, (limit, limit + 1)) == (found.rate, found.bracket)
    assert len(attempts) <= 2 + 2 * np.log2(max(limit, start) + 1)


@pytest.mark.parametrize(("good", "bound"), [(100, "at_least"), (0, "below")])
def test_a_server_for_any_number_of_users_or_for_none_gives_a_bound(good: int, bound: str) -> None:
    """Up to the most that is tried."""
    found, attempts = most_users(lambda _users, _number: Counted(good, 100), 0.9, 10)
    assert bound == found.bound
    assert {MOST_USERS if good else 1} <= {round(a.rate_per_s) for a in attempts}


def test_a_closed_loop_never_has_more_requests_under_way_than_users() -> None:
    """And always that many, until the last was asked."""
    table = closed_loop(Cluster(CHUNKED), [500] * 40, [20] * 40, 4)
    rows = table.rows
    assert (rows["outcome"] == Outcome.OK).all()
    under_way = [int(((rows["sent_s"] <= t) & (rows["done_s"] > t)).sum()) for t in rows["sent_s"] + 1e-9]
    assert {4} == set(under_way[3:])
    assert np.allclose(np.sort(rows["done_s"])[: 40 - 4], np.sort(rows["sent_s"])[4:])


def test_one_user_alone_is_always_served_well_and_a_thousand_are_not() -> None:
    """Latencies count from when each asked."""
    users = VirtualUsers(CHUNKED, Windows("azure-conv"), SLO.parse("ttft=1s,tpot=45ms"), 60)
    alone, crowd = users(1, 0), users(200, 0)
    assert alone.good == alone.total
    assert crowd.good < 0.5 * crowd.total


def test_littles_law_gives_the_first_guess() -> None:
    """Rate times duration, at least one."""
    assert (8, 1) == (first_guess(4.0, 2.0), first_guess(0.1, 1.0))


def test_saturation_counts_the_middle_half_of_all_ends() -> None:
    """One request of 100 tokens a second, whatever happens at the edges."""
    rows = empty_rows(40)
    rows["outcome"] = Outcome.OK
    rows["done_s"] = np.concatenate([np.full(10, 0.0), np.arange(20.0), np.full(10, 99.0)])
    rows["output_tokens"], rows["prompt_tokens"] = 100, 300
    found = saturation_of(RecordTable(rows, None, []), 4)
    assert (1.0, 100.0, 400.0, 25.0) == (
        found.requests_per_s,
        found.output_tokens_per_s,
        found.total_tokens_per_s,
        found.output_tokens_per_s_per_gpu,
    )


def test_a_search_begins_below_what_the_model_can_serve() -> None:
    """60 % of a quick saturation, to two digits; twice the machines serve about twice as much."""
    windows = Windows("azure-conv")
    one, two = (saturation(Deployment.parse(f"emulated:chunked,instances={n}"), windows, 800 * n) for n in (1, 2))
    assert pytest.approx(2.0, rel=0.1) == two.requests_per_s / one.requests_per_s
    assert 0.2 * one.requests_per_s < start_rate(CHUNKED, windows) < 0.9 * one.requests_per_s
