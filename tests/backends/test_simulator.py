from __future__ import annotations

from math import inf

import numpy as np
import pytest

from loadtest.backends.cluster import Cluster
from loadtest.backends.simulator import run_simulation, simulate
from loadtest.deployment import Deployment
from metrics.records import Outcome, StampSource
from workloads.schedule import Schedule

SMALL = "model=demo-8b,max_model_len=600,block_size=16,num_gpu_blocks=60"


def schedule(requests: int, rate_per_s: float, *, longest: int = 300) -> Schedule:
    """Poisson arrivals of random lengths, the same for the same arguments."""
    rng = np.random.default_rng(7)
    return Schedule(
        request_id=np.arange(100, 100 + requests),
        scheduled_s=np.cumsum(rng.exponential(1 / rate_per_s, requests)),
        prompt_tokens=rng.integers(1, longest, requests).astype(np.int32),
        max_tokens=rng.integers(1, 200, requests).astype(np.int32),
        session=np.full(requests, -1),
        slo_class=np.zeros(requests, dtype=np.uint8),
        warmup=np.arange(requests) < requests // 5,
        seed=7,
        salt="00",
        trace_name="test",
        trace_hash="test",
    )


SHAPES = ("chunked,instances=2", "colocated", "colocated_prefill_first", "disaggregated", "disaggregated,decode=2")


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_and_events_are_what_the_server_would_stream(shape: str) -> None:
    """The same cluster, asked for every token, gives the same times: also with preempted requests."""
    name, *options = shape.split(",")
    deployment = Deployment.parse(",".join([f"emulated:{name}", SMALL, *options]))
    plan = schedule(200, 20)
    table, stats = run_simulation(deployment, plan)
    cluster = Cluster(deployment)
    for row in range(len(plan)):
        cluster.submit(row, int(plan.prompt_tokens[row]), int(plan.max_tokens[row]), float(plan.scheduled_s[row]))
    streamed: dict[int, list[float]] = {}
    for emission in cluster.advance(inf):
        streamed.setdefault(emission.request_id, []).append(emission.time)
    assert table.events is not None
    assert cluster.stats().busy_s == pytest.approx(stats.busy_s)
    assert cluster.stats().preemptions == stats.preemptions > 0
    for row in range(len(plan)):
        times = streamed[row]
        assert times[0] == pytest.approx(table.rows["first_token_s"][row], abs=1e-9)
        assert times[-1] == pytest.approx(table.rows["last_token_s"][row], abs=1e-9)
        assert table.rows["last_token_s"][row] == table.rows["done_s"][row]
        us = table.events.us[table.events.start[row] : table.events.start[row + 1]]
        assert np.allclose(np.array(times) - plan.scheduled_s[row], us * 1e-6, atol=6e-7)


def test_rows_are_filled_as_in_a_real_run() -> None:
    """Planned columns, ok outcome, all tokens, spans that add up, simulated stamps, no lateness."""
    plan = schedule(50, 5)
    rows = simulate(Deployment.parse("emulated:disaggregated,model=demo-8b"), plan).rows
    assert np.array_equal(plan.request_id, rows["request_id"])
    assert np.array_equal(plan.warmup, rows["warmup"])
    assert np.array_equal(plan.scheduled_s, rows["sent_s"])
    assert np.array_equal(plan.max_tokens, rows["output_tokens"])
    assert np.array_equal(plan.prompt_tokens, rows["served_prompt_tokens"])
    assert {int(Outcome.OK)} == set(rows["outcome"].tolist())
    assert {int(StampSource.SIMULATED)} == set(rows["stamp_source"].tolist())
    assert {0} == set(rows["flags"].tolist())
    spans = sum(rows[name] for name in ("queue_s", "prefill_s", "transfer_s", "decode_s"))
    assert np.allclose(rows["done_s"] - rows["scheduled_s"], spans)
    assert (rows["transfer_s"][rows["max_tokens"] > 1] > 0).all()


def test_the_same_schedule_gives_the_same_bytes() -> None:
    """No hidden randomness, not even with the random router."""
    deployment = Deployment.parse(f"emulated:chunked,{SMALL},instances=3,router=random")
    first, second = (simulate(deployment, schedule(100, 50)) for _ in range(2))
    assert first.rows.tobytes() == second.rows.tobytes()
    assert first.events is not None
    assert second.events is not None
    assert first.events.us.tobytes() == second.events.us.tobytes()


def test_over_long_requests_are_rows_with_http_400() -> None:
    """They fail as they would against the server, and have no events."""
    table = simulate(Deployment.parse(f"emulated:chunked,{SMALL}"), schedule(100, 5, longest=1000))
    rows, events = table.rows, table.events
    too_long = rows["prompt_tokens"] + rows["max_tokens"] > 600
    assert too_long.any()
    assert np.array_equal(too_long, rows["http_status"] == 400)
    assert np.array_equal(too_long, rows["outcome"] == Outcome.HTTP_ERROR)
    assert "context" in table.errors[int(rows["error_id"][too_long][0])]
    assert events is not None
    assert not np.diff(events.start)[too_long].any()
    assert np.isnan(rows["first_token_s"][too_long]).all()


def test_a_full_queue_is_rows_with_http_429() -> None:
    """`max_queue` holds on the virtual clock too."""
    rows = simulate(Deployment.parse(f"emulated:chunked,{SMALL},max_queue=2"), schedule(200, 100)).rows
    assert {200, 429} == set(rows["http_status"].tolist())


def test_overload_ends() -> None:
    """Offered a hundred times what it can serve, the simulation still serves every request."""
    rows = simulate(Deployment.parse(f"emulated:colocated,{SMALL}"), schedule(500, 2000), events=False).rows
    assert {int(Outcome.OK)} == set(rows["outcome"].tolist())
    assert rows["first_token_s"][-1] - rows["sent_s"][-1] > 10


def test_an_empty_schedule_is_an_empty_table() -> None:
    """Nothing planned, nothing happens."""
    table = simulate(Deployment.parse("emulated:chunked"), schedule(0, 1))
    assert 0 == len(table)
    assert table.events is not None
    assert [0] == table.events.start.tolist()
