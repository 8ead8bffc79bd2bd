from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.backends.cluster import Cluster
from loadtest.backends.perfmodel import load_perf_model
from loadtest.backends.prefixcache import PrefixCache
from loadtest.backends.simulator import run_simulation, token_times
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from tests.backends.test_quick import schedule
from workloads.trace import Prefix

SMALL = (
    "model=demo-8b,max_model_len=64,block_size=4,num_gpu_blocks=24,max_num_batched_tokens=16,watermark=0,"
    "prefix_cache=on,prefix_block_tokens=8"
)


def test_a_block_is_shared_then_kept_then_forgotten() -> None:
    """Two users count once; without a user it stays, until its memory is wanted; its prefix outlives its end."""
    cache = PrefixCache(block_tokens=8, block_size=4)
    assert 2 == cache.keep([1, 2])
    assert 2 == cache.known([1, 2, 3])
    assert 4 == cache.shared([1, 2])
    assert 0 == cache.take([1, 2])
    assert 0 == cache.give_back([1, 2])
    assert 4 == cache.give_back([1, 2])
    assert 2 == cache.known([1, 2])
    assert 0 == cache.shared([1, 2])
    cache.shrink(3)
    assert 1 == cache.known([1, 2])
    assert 2 == cache.take([1])


def test_what_somebody_else_brought_meanwhile_is_not_shared_twice() -> None:
    """Two equal prompts computed at once: the second keeps its blocks to itself."""
    cache = PrefixCache(8, 4)
    cache.keep([1])
    assert 0 == cache.keep([1, 2])


def test_a_known_prefix_is_not_computed_again() -> None:
    """The second of two prompts of 2,000 tokens that share 1,536 computes 464 of them."""
    text = "emulated:chunked,prefix_cache=on,max_num_batched_tokens=4096"
    cluster = Cluster(Deployment.parse(text))
    cluster.submit(0, 2000, 5, 0.0, [1, 2, 3])
    cluster.advance(100.0)
    cluster.submit(1, 2000, 5, 100.0, [1, 2, 3, 4])  # the fourth block is not whole
    first = cluster.advance(200.0)[0].time
    expected = load_perf_model("llama2-70b", "h100", 8).prefill_s(464, 464 * (2 * 1536 + 464))
    assert expected == pytest.approx(first - 100.0)
    assert 1536 == cluster.stats().prefix_tokens


def test_a_prompt_that_is_known_altogether_computes_its_last_token() -> None:
    """There is no first token without an iteration."""
    cluster = Cluster(Deployment.parse("emulated:chunked,prefix_cache=on"))
    cluster.submit(0, 1024, 5, 0.0, [1, 2])
    cluster.advance(100.0)
    cluster.submit(1, 1024, 5, 100.0, [1, 2])
    cluster.advance(200.0)
    assert 1023 == cluster.stats().prefix_tokens


prompts = st.lists(
    st.tuples(st.floats(1e-6, 0.2), st.integers(1, 40), st.integers(1, 20), st.integers(0, 3)), max_size=25
)


@settings(max_examples=100)
@given(st.sampled_from(["chunked", "colocated", "disaggregated"]), prompts)
def test_blocks_are_conserved_and_compression_stays_exact(
    name: str, requests: list[tuple[float, int, int, int]]
) -> None:
    """With sharing and eviction under memory pressure all tokens come, both ways at the same instants."""
    clusters = [Cluster(Deployment.parse(f"emulated:{name},{SMALL}"), every_token=every) for every in (True, False)]
    found = []
    for cluster in clusters:
        now, taken = 0.0, []
        for number, (gap, prompt, output, family) in enumerate(requests):
            now += gap
            prefix = [family * 100 + block for block in range(5)]
            taken.append(cluster.submit(number, prompt, output, now, prefix))
            for instance in cluster._all:
                assert 0 <= instance.memory.free <= 24
        emissions = cluster.advance(inf)
        assert all(instance.memory.free == 24 for instance in cluster._all)
        times = [[e.time for e in emissions if e.request_id == number] for number in range(len(requests))]
        found.append(times if cluster is clusters[0] else [own.tolist() for own in token_times(taken)])
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, abs=1e-9, rel=0)


def test_a_trace_with_other_blocks_is_refused() -> None:
    """Hashes of blocks of 512 tokens say nothing of blocks of 256."""
    plan = schedule([(0.1, 1024, 5)])
    hashed = type(plan)(
        **{name: getattr(plan, name) for name in plan.__dataclass_fields__ if name != "prefix"},
        prefix=Prefix(np.array([0, 2]), np.array([7, 8]), 512),
    )
    assert run_simulation(Deployment.parse("emulated:chunked,prefix_cache=on"), hashed).stats.prompt_tokens == 1024
    with pytest.raises(UsageError, match="blocks of 512 tokens"):
        run_simulation(Deployment.parse("emulated:chunked,prefix_cache=on,prefix_block_tokens=256"), hashed)


def test_blocks_that_do_not_fit_kv_blocks_are_refused() -> None:
    """A hash block is a whole number of KV blocks."""
    with pytest.raises(UsageError, match="not a whole number of KV blocks of 16"):
        Cluster(Deployment.parse("emulated:chunked,prefix_cache=on,prefix_block_tokens=100"))
