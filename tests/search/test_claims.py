"""Claims of the literature about chunk sizes and pools, on the simulator (Llama2-70B, 8 H100 an instance)."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from loadtest.search import Search, VirtualRuns, Windows
from loadtest.search.procedure import spread_of
from loadtest.search.windows import without_edges
from metrics.goodput import GoodputEstimate
from metrics.latency import itl_s, ttft_s
from metrics.objective import parse_objective

WINDOWS = Windows("azure-conv", max_tokens=16384)


def goodput(text: str, slo: str, start: float) -> GoodputEstimate:
    objective = parse_objective(slo)
    runs = VirtualRuns(Deployment.parse(text), WINDOWS, objective)
    return Search(runs, 0.9, spread=spread_of(objective)).run(start, 6).goodput


def tails(text: str, rate: float) -> tuple[float, float]:
    """P90 TTFT and P99 token gap at a rate."""
    table = simulate(Deployment.parse(text), without_edges(WINDOWS.trace(0, rate, 1500)))
    counted = ~table.rows["warmup"]
    assert table.events is not None
    return float(np.percentile(ttft_s(table.rows[counted]), 90)), float(np.percentile(itl_s(table.events, counted), 99))


def test_a_chunk_too_large_stalls_and_one_too_small_wastes() -> None:
    """Under a P99 token gap of 100 ms both ends of the sweep lose, intervals apart (Sarathi-Serve)."""
    small, middle, large = (
        goodput(f"emulated:chunked,max_num_batched_tokens={budget}", "ttft.p90=1s,itl.p99=100ms", 2.0)
        for budget in (256, 1024, 2048)
    )
    assert small.most < middle.least
    assert large.most < middle.least


def test_one_more_prefill_instance_moves_ttft_and_leaves_token_gaps_alone() -> None:
    """P90 TTFT by at least 20 %, P99 gap by at most 2 %; the chunk size moves both (vLLM's documentation)."""
    one, two = (tails(f"emulated:disaggregated,prefill={n},decode=1", 4.0) for n in (1, 2))
    assert two[0] <= 0.8 * one[0]
    assert pytest.approx(one[1], rel=0.02) == two[1]
    small, large = (tails(f"emulated:chunked,instances=2,max_num_batched_tokens={n}", 4.0) for n in (512, 2048))
    assert large[0] <= 0.8 * small[0]
    assert large[1] >= 1.2 * small[1]


def test_two_pools_keep_a_token_gap_that_no_chunk_size_keeps() -> None:
    """P99 gap of 50 ms on 16 GPUs: two pools keep it at 4 requests/s, no chunk size at 1 request/s.

    The model's floor of an iteration that holds any prompt token is 54 ms, so smaller chunks do not help.
    """
    assert tails("emulated:disaggregated", 4.0)[1] <= 0.050
    for budget in (64, 256, 512, 1024):
        text = f"emulated:chunked,instances=2,max_num_batched_tokens={budget},max_num_seqs=64"
        assert 0.050 < tails(text, 1.0)[1]


def test_above_that_floor_chunks_keep_the_gap_and_two_pools_do_not() -> None:
    """P99 gap of 60 ms and P90 TTFT of 1 s at 8 requests/s: what chunking only approximates, it here does better."""
    ttft_s, gap_s = tails("emulated:chunked,instances=2,max_num_batched_tokens=512", 8.0)
    assert (ttft_s <= 1.0, gap_s <= 0.060) == (True, True)
    assert 0.060 < tails("emulated:disaggregated", 8.0)[1]
