from __future__ import annotations

import pytest

from loadtest.backends.policies import Chunked, Colocated, ColocatedPrefillFirst
from loadtest.backends.spec import ClusterSpec, resolve
from loadtest.deployment import Deployment
from loadtest.errors import UsageError


def spec(text: str) -> ClusterSpec:
    return resolve(Deployment.parse(text))


def test_memory_becomes_blocks() -> None:
    """1,466,416 tokens of KV fit beside Llama2-70B on 8 x 80 GiB at 90 %: 91,651 blocks, 1 % kept free."""
    limits = spec("emulated:chunked").pools[0].limits
    assert (91_651, 16, 916, 256) == (
        limits.num_blocks,
        limits.block_size,
        limits.watermark_blocks,
        limits.max_num_seqs,
    )


def test_each_arrangement_has_its_policy() -> None:
    """Pools for one phase run batches of whole prompts, or of decodes: the colocated policy does both."""
    assert (
        Chunked(512, 100)
        == spec("emulated:chunked,max_num_batched_tokens=512,long_prefill_token_threshold=100").pools[0].policy
    )
    assert Colocated(2048) == spec("emulated:colocated").pools[0].policy
    assert ColocatedPrefillFirst(2048) == spec("emulated:colocated_prefill_first").pools[0].policy
    assert [("prefill", Colocated(2048)), ("decode", Colocated(2048))] == [
        (pool.role, pool.policy) for pool in spec("emulated:disaggregated").pools
    ]


@pytest.mark.parametrize(
    ("options", "gbps", "latency_s"),
    [
        ("", 400, 0.005),
        (",hardware=a100", 200, 0.008),
        (",prefill_hardware=a100", 200, 0.008),
        (",kv_link=25GbE", 25, 0.005),
        (",kv_link=nvlink", 3600, 0.005),
        (",kv_link=25GbE,kv_link_gbps=2.5,kv_link_latency_us=0", 2.5, 0.0),
    ],
)
def test_the_link_is_the_senders_unless_told_otherwise(options: str, gbps: float, latency_s: float) -> None:
    """InfiniBand of the prefill machines by default; presets; explicit figures win."""
    link = spec(f"emulated:disaggregated{options}").link
    assert link is not None
    assert (gbps * 1e9 / 8, latency_s) == (link.bytes_per_s, link.latency_s)


def test_colocated_instances_have_no_link() -> None:
    """Nothing to transfer."""
    assert spec("emulated:chunked,instances=2").link is None


def test_small_budgets_lower_the_default_batch() -> None:
    """A budget of 128 has room for 128 decodes; asking for more is an error."""
    assert 128 == spec("emulated:chunked,max_num_batched_tokens=128").pools[0].limits.max_num_seqs
    with pytest.raises(UsageError, match="max_num_batched_tokens=128 has no room for max_num_seqs=129"):
        spec("emulated:chunked,max_num_batched_tokens=128,max_num_seqs=129")


def test_a_context_that_does_not_fit_memory_is_refused() -> None:
    """One request of max_model_len must fit, or it could wait for ever."""
    with pytest.raises(UsageError, match="KV memory holds 16000 tokens on 8 x h100, fewer than max_model_len=16384"):
        spec("emulated:chunked,num_gpu_blocks=1000")


def test_other_backends_are_refused() -> None:
    """A URL or the reference engine is not emulated."""
    with pytest.raises(UsageError, match="is not an emulated deployment"):
        spec("torch:chunked")
