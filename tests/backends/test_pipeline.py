from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.backends.cluster import Cluster
from loadtest.backends.perfmodel import load_perf_model
from loadtest.backends.pipeline import Pipeline
from loadtest.deployment import Deployment


def test_equal_iterations_fill_the_pipeline() -> None:
    """A stage is free again after T / stages; two groups of equal T never wait."""
    pipeline = Pipeline(2)
    assert 1.0 == pipeline.enter(0.0, 1.0)
    assert 0.5 == pipeline.free_at
    assert 1.5 == pipeline.enter(0.5, 1.0)
    assert 2.0 == pipeline.enter(1.0, 1.0)
    assert 0.0 == pipeline.bubble_s


def test_a_short_iteration_waits_behind_a_long_one() -> None:
    """Uneven batches make bubbles: 4 s in front, so the 1 s one comes out after 4.5 s instead of 3 s."""
    pipeline = Pipeline(2)
    pipeline.enter(0.0, 4.0)
    assert 4.5 == pipeline.enter(2.0, 1.0)
    assert 1.5 == pipeline.bubble_s


@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 2)), max_size=30))
def test_stages_take_one_group_at_a_time(stages: int, iterations: list[tuple[float, float]]) -> None:
    """Nobody overtakes, nobody is faster than alone, and a stage's work never overlaps."""
    pipeline, now, ends = Pipeline(stages), 0.0, [0.0]
    for gap, duration in iterations:
        now = max(now + gap, pipeline.free_at)
        ends.append(pipeline.enter(now, duration))
        assert ends[-1] >= now + duration - 1e-12
        assert ends[-1] - ends[-2] >= duration / stages - 1e-12
    assert all(earlier <= later for earlier, later in pairwise(ends))


def test_two_decoding_groups_share_two_stages() -> None:
    """One request in each group: both get a token every T, as alone, half a step apart."""
    cluster = Cluster(Deployment.parse("emulated:chunked,pp=2"))
    cluster.submit(0, 100, 50, 0.0)
    cluster.submit(1, 100, 50, 0.0)
    times: dict[int, list[float]] = {0: [], 1: []}
    for emission in cluster.advance(inf):
        times[emission.request_id].append(emission.time)
    step_s = load_perf_model("llama2-70b", "h100", 8).decode_s(1, 120)
    for own in times.values():
        gaps = [later - earlier for earlier, later in pairwise(own)]
        assert step_s == pytest.approx(gaps[20], rel=0.02)


def test_a_pipeline_counts_its_gpus_and_shares_its_memory() -> None:
    """tp x pp GPUs; each of the groups has its part of the KV blocks and of the batch slots."""
    deployment = Deployment.parse("emulated:chunked,pp=2,instances=3")
    assert 48 == deployment.gpus
    limits = Cluster(deployment).spec.pools[0].limits
    memory_tokens = (16 * 80 * 2**30 * 0.9 - 2 * 68.98e9) / 327_680
    assert int(memory_tokens) // 16 // 2 == limits.num_blocks
    assert 128 == limits.max_num_seqs
