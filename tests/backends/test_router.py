from __future__ import annotations

from math import inf

import pytest

from loadtest.backends.cluster import Cluster
from loadtest.deployment import Deployment


def served_by(text: str, arrivals: list[tuple[float, int, int]]) -> list[int]:
    """Which instance took each request at its arrival."""
    cluster = Cluster(Deployment.parse(text))
    requests = [cluster.submit(i, prompt, output, when) for i, (when, prompt, output) in enumerate(arrivals)]
    return [cluster._all.index(request.instance) for request in requests if request.instance is not None]


def test_round_robin_takes_turns() -> None:
    """Whatever the lengths."""
    arrivals = [(0.01 * i, 100 + 1000 * (i % 2), 5) for i in range(6)]
    assert [0, 1, 2, 0, 1, 2] == served_by("emulated:chunked,instances=3,router=round_robin", arrivals)


def test_the_shortest_queue_is_measured_in_prompt_tokens() -> None:
    """A long prompt counts for more than two short ones."""
    arrivals = [(0.0, 8000, 5), (0.001, 1000, 5), (0.002, 1000, 5), (0.003, 1000, 5)]
    assert [0, 1, 1, 1] == served_by("emulated:chunked,instances=2", arrivals)


def test_random_is_the_same_each_time_and_uses_all() -> None:
    """From a generator of its own."""
    arrivals = [(0.01 * i, 100, 5) for i in range(40)]
    first, second = (served_by("emulated:chunked,instances=3,router=random", arrivals) for _ in range(2))
    assert first == second
    assert {0, 1, 2} == set(first)


MIXED = "emulated:disaggregated,mixed_pool=on"


def test_a_long_prompt_queue_borrows_a_decode_instance() -> None:
    """Beyond 8,192 pending tokens the next prompt goes to the decode pool, which then is the mixed pool."""
    arrivals = [(0.0, 8000, 5), (0.001, 8000, 5), (0.002, 100, 5)]
    assert [0, 0, 0] == served_by("emulated:disaggregated", arrivals)
    assert [0, 0, 1] == served_by(MIXED, arrivals)


def test_a_borrowed_instance_decodes_what_it_computed_and_goes_home() -> None:
    """No KV crosses the link for it; with no prompts left it is an instance of its own pool again."""
    cluster = Cluster(Deployment.parse(MIXED))
    for number, (when, prompt) in enumerate([(0.0, 8000), (0.001, 8000), (0.002, 1000)]):
        cluster.submit(number, prompt, 5, when)
    cluster.advance(inf)
    assert 16_000 * 327_680 == cluster.stats().transferred_bytes
    assert [0, 0] == [instance.pending_tokens for instance in cluster._all]
    assert cluster.spec.mixed is not None


def test_a_full_decode_pool_leaves_decoding_to_the_prefill_pool() -> None:
    """KV without room for more than `mixed_decode_tokens` stays where it was computed."""
    small = "max_model_len=600,num_gpu_blocks=40,model=demo-8b,mixed_decode_tokens=100"
    without, with_mixed = (
        Cluster(Deployment.parse(f"emulated:disaggregated,{small},mixed_pool={mixed}")) for mixed in ("off", "on")
    )
    done = []
    for cluster in (without, with_mixed):
        for number in range(12):
            cluster.submit(number, 250, 200, 0.02 * number)
        done.append(max(emission.time for emission in cluster.advance(inf)))
    assert with_mixed.stats().transferred_bytes < without.stats().transferred_bytes
    assert done[1] < done[0]


@pytest.mark.parametrize(("contention", "last_s"), [("none", 0.0), ("port", 1.0), ("fabric", 3.0)])
def test_who_shares_a_link_waits_for_it(contention: str, last_s: float) -> None:
    """Four transfers that start at once, two senders to two receivers: alone, behind one other, behind all."""
    text = (
        "emulated:disaggregated,prefill=4,decode=2,kv_transfer=serial,kv_link_gbps=2.62144,kv_link_latency_us=0,"
        f"router=round_robin,kv_contention={contention}"
    )
    cluster = Cluster(Deployment.parse(text))  # 1,000 tokens of 327,680 bytes take 1 s
    for number in range(4):
        cluster.submit(number, 1000, 3, 0.0)
    cluster.advance(0.0)
    seconds = []
    for _ in range(4000):
        deadline = cluster.next_deadline()
        if deadline is None:
            break
        for emission in cluster.advance(deadline):
            if emission.finished:
                seconds.append(cluster.spans(emission.request_id).transfer_s)
    assert 1.0 + last_s == pytest.approx(max(seconds), abs=1e-6)
