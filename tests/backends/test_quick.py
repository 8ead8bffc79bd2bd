from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.backends import quick
from loadtest.backends.simulator import run_simulation
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from workloads.schedule import Schedule, unrelated

MODEL = "model=demo-8b,max_model_len=600"
POLICIES = (
    "colocated",
    "colocated_prefill_first",
    "chunked",
    "chunked,max_num_batched_tokens=64",
    "colocated,max_num_batched_tokens=100,kv_policy=reserve_output",
)
# so little memory that the short cut has to give up now and then
MEMORY = ("", ",num_gpu_blocks=400", ",num_gpu_blocks=60", ",max_num_seqs=5")


def schedule(arrivals: list[tuple[float, int, int]]) -> Schedule:
    gaps, prompts, outputs = (np.array(column) for column in zip(*arrivals, strict=True))
    return unrelated(np.cumsum(gaps), prompts, outputs)


arrivals = st.lists(
    st.tuples(st.floats(0, 0.3, allow_subnormal=False), st.integers(1, 400), st.integers(1, 220)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=200)
@given(st.sampled_from(POLICIES), st.sampled_from(MEMORY), arrivals)
def test_the_short_cut_gives_what_the_cluster_gives(
    policy: str, memory: str, arrivals: list[tuple[float, int, int]]
) -> None:
    """Rows, token times and busy seconds are those of the block-exact cluster, to 1e-6 ms."""
    name, *options = policy.split(",")
    deployment = Deployment.parse(",".join([f"emulated:{name}", MODEL, *options]) + memory)
    short, exact = (run_simulation(deployment, schedule(arrivals), quickly=quickly) for quickly in (True, False))
    for column in ("first_token_s", "done_s", "queue_s", "prefill_s", "decode_s"):
        assert np.allclose(exact.table.rows[column], short.table.rows[column], atol=1e-9, rtol=0, equal_nan=True)
    assert short.table.events is not None
    assert exact.table.events is not None
    assert np.abs(exact.table.events.us.astype(int) - short.table.events.us.astype(int)).max(initial=0) <= 1
    assert exact.stats.busy_s == pytest.approx(short.stats.busy_s)
    assert exact.stats.extrapolated_s == pytest.approx(short.stats.extrapolated_s)
    assert exact.stats.prompt_tokens >= short.stats.prompt_tokens  # more only where somebody was preempted
    assert exact.stats.pools[0].prefill_iterations == short.stats.pools[0].prefill_iterations


def test_the_short_cut_gives_up_where_memory_matters() -> None:
    """It says None rather than an answer that a preemption might have changed."""
    pool = resolve(Deployment.parse(f"emulated:chunked,{MODEL},num_gpu_blocks=60")).pools[0]
    assert quick.serve(pool, [0.0, 0.1], [300, 300], [200, 200], events=False) is None
    assert quick.serve(pool, [0.0, 100.0], [300, 300], [200, 200], events=False) is not None


@pytest.mark.parametrize(
    "text",
    [
        "emulated:disaggregated",
        "emulated:chunked,instances=2",
        "emulated:chunked,pp=2",
        "emulated:chunked,max_queue=5",
        "emulated:chunked,prefix_cache=on",
        "emulated:chunked,long_prefill_token_threshold=5",
        "emulated:colocated,policy=tests.backends.test_policies:ShortestFirst",
    ],
)
def test_the_short_cut_is_for_one_plain_instance(text: str) -> None:
    """Everything else takes the cluster."""
    assert not quick.applies(resolve(Deployment.parse(text)))
    assert quick.applies(resolve(Deployment.parse("emulated:chunked")))
