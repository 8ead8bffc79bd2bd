from __future__ import annotations

from itertools import pairwise
from math import inf, isnan, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.backends.cluster import Cluster, Emission, PromptTooLong, QueueFull
from loadtest.backends.simulator import token_times as implied_times
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from tests.backends.reference import Arrival, SlowInstance

# An instance so small that a handful of requests fills its 20 blocks of 4 tokens.
SMALL = "model=demo-8b,max_model_len=64,block_size=4,num_gpu_blocks=20,max_num_batched_tokens=16,watermark=0.05"
POOLED = ("colocated", "colocated_prefill_first", "chunked")
SHAPES = (
    *(f"{name},max_num_seqs=6" for name in POOLED),
    "chunked,instances=2,long_prefill_token_threshold=5",
    "chunked,kv_policy=reserve_output",
    "colocated,instances=3,router=random",
    "colocated,policy=tests.backends.test_policies:ShortestFirst",
    "colocated_prefill_first,instances=2,router=round_robin",
    "disaggregated",
    "disaggregated,prefill=2,decode=2,router=round_robin,first_token=decode",
    "disaggregated,prefill=2,kv_transfer=layerwise,kv_link_gbps=0.01",
    "disaggregated,decode=2,kv_policy=reserve_output,kv_transfer=serial",
    "chunked,pp=2,num_gpu_blocks=40",
    "colocated,pp=3,num_gpu_blocks=60,instances=2",
    "disaggregated,prefill_pp=2,num_gpu_blocks=40,kv_contention=fabric,kv_link_gbps=0.01,prefill=2,decode=2",
    "disaggregated,kv_contention=none,decode=2,mixed_pool=on,mixed_prompt_tokens=30,mixed_decode_tokens=20",
    "disaggregated,prefill=2,decode=1,mixed_pool=on,mixed_prompt_tokens=20,mixed_decode_tokens=0,first_token=decode",
    "disaggregated,mixed_pool=on,mixed_prompt_tokens=10,mixed_decode_tokens=10,kv_policy=reserve_output",
)

gaps = st.floats(1e-6, 0.2, allow_nan=False)
lengths = st.tuples(st.integers(1, 40), st.integers(1, 24))


@st.composite
def arrival_lists(draw: st.DrawFn) -> list[Arrival]:
    """Up to 25 arrivals, in order, no two at one instant."""
    now, arrivals = 0.0, []
    for gap, (prompt, output) in draw(st.lists(st.tuples(gaps, lengths), max_size=25)):
        now += gap
        arrivals.append((now, prompt, output))
    return arrivals


def small(shape: str, **keywords: bool) -> Cluster:
    name, *options = shape.split(",")
    given = dict(option.split("=") for option in [*SMALL.split(","), *options])
    return Cluster(Deployment.parse(",".join([f"emulated:{name}", *map("=".join, given.items())])), **keywords)


def offer(cluster: Cluster, arrivals: list[Arrival]) -> None:
    for request_id, (when, prompt, output) in enumerate(arrivals):
        cluster.submit(request_id, prompt, output, when)


def run(cluster: Cluster, arrivals: list[Arrival]) -> list[Emission]:
    offer(cluster, arrivals)
    return cluster.advance(inf)


def token_times(emissions: list[Emission], requests: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in range(requests)]
    for emission in emissions:
        times[emission.request_id].append(emission.time)
    return times


@settings(max_examples=150)
@given(st.sampled_from(POOLED), arrival_lists())
def test_an_instance_schedules_as_the_slow_reference_does(arrangement: str, arrivals: list[Arrival]) -> None:
    """Token times and preemptions equal those of a scheduler that counts every token and block."""
    cluster = small(f"{arrangement},max_num_seqs=6")
    pool = cluster.spec.pools[0]
    slow = SlowInstance(arrangement, 16, pool.perf, pool.limits)
    expected = slow.run(arrivals)
    assert expected == token_times(run(cluster, arrivals), len(arrivals))
    assert slow.preemptions == cluster.stats().preemptions


def test_the_small_instance_is_under_memory_pressure() -> None:
    """The properties of this file are tried with preemptions, not only without."""
    cluster = small("chunked,max_num_seqs=6")
    run(cluster, [(0.001 * (i + 1), 10, 24) for i in range(20)])
    assert cluster.stats().preemptions > 5


@settings(max_examples=100)
@given(st.sampled_from(SHAPES), arrival_lists())
def test_every_token_of_every_request_comes_once_and_in_order(shape: str, arrivals: list[Arrival]) -> None:
    """Nothing is lost to preemption, hand-off or a full cluster; afterwards all memory is free."""
    cluster = small(shape)
    emissions = run(cluster, arrivals)
    for request_id, (arrived, _, output) in enumerate(arrivals):
        own = [emission for emission in emissions if emission.request_id == request_id]
        assert list(range(output)) == [emission.index for emission in own]
        assert [False] * (output - 1) + [True] == [emission.finished for emission in own]
        assert all(earlier < later for earlier, later in pairwise([arrived, *(e.time for e in own)]))
    stats = cluster.stats()
    assert (0, 0, 0.0) == (stats.running, stats.waiting, stats.kv_usage)
    assert sum(output for _, _, output in arrivals) == stats.generated_tokens
    assert cluster.next_deadline() is None


@settings(max_examples=100)
@given(st.sampled_from(SHAPES), arrival_lists())
def test_blocks_are_conserved_at_every_instant(shape: str, arrivals: list[Arrival]) -> None:
    """Never more blocks in use than there are, and none are used by nobody."""
    cluster = small(shape)
    offer(cluster, arrivals)
    while (deadline := cluster.next_deadline()) is not None:
        cluster.advance(deadline)
        for instance in cluster._all:
            holders = len(instance.running) + len(instance.reserved) + len(instance.outgoing)
            blocks = instance.limits.num_blocks
            assert 0 <= instance.memory.free <= blocks
            assert holders <= blocks - instance.memory.free
            assert (holders == 0) == (instance.memory.free == blocks)
            assert instance.pending_tokens >= 0


@settings(max_examples=60)
@given(st.sampled_from(SHAPES), arrival_lists(), st.lists(gaps, min_size=1, max_size=10))
def test_results_do_not_depend_on_when_the_clock_is_looked_at(
    shape: str, arrivals: list[Arrival], steps: list[float]
) -> None:
    """One big step, arbitrary steps, and a step per deadline give the same tokens at the same instants."""
    expected = run(small(shape), arrivals)
    cluster, stepped, now = small(shape), [], 0.0
    for request_id, (when, prompt, output) in enumerate(arrivals):
        for step in steps:
            if now + step < when:
                now += step
                stepped += cluster.advance(now)
        cluster.submit(request_id, prompt, output, when)
        now = when
    while (deadline := cluster.next_deadline()) is not None:
        stepped += cluster.advance(deadline)
    assert expected == stepped + cluster.advance(inf)


@settings(max_examples=150)
@given(st.sampled_from(SHAPES), arrival_lists())
def test_compressed_stretches_equal_single_iterations(shape: str, arrivals: list[Arrival]) -> None:
    """Many iterations as one event give every token within 1e-6 ms of one by one, and the same preemptions."""
    singly = small(shape)
    expected = token_times(run(singly, arrivals), len(arrivals))
    compressed = small(shape, every_token=False)
    requests = [compressed.submit(i, prompt, output, when) for i, (when, prompt, output) in enumerate(arrivals)]
    assert [] == compressed.advance(inf)
    for times, found in zip(expected, implied_times(requests), strict=True):
        assert times == pytest.approx(found.tolist(), abs=1e-9, rel=0)
    one, other = singly.stats(), compressed.stats()
    assert one.preemptions == other.preemptions
    assert one.transferred_bytes == other.transferred_bytes
    assert (one.busy_s, one.extrapolated_s) == pytest.approx((other.busy_s, other.extrapolated_s))


@settings(max_examples=100)
@given(st.sampled_from(SHAPES), arrival_lists(), st.data())
def test_abort_frees_all_and_disturbs_nobody(shape: str, arrivals: list[Arrival], data: st.DataObject) -> None:
    """Requests aborted at any moment emit nothing more; the others get all their tokens and memory ends up free."""
    cluster = small(shape)
    aborted: set[int] = set()
    emissions: list[Emission] = []
    for request_id, (when, prompt, output) in enumerate(arrivals):
        cluster.submit(request_id, prompt, output, when)
        if data.draw(st.booleans()):
            emissions += cluster.advance(when)
            victim = data.draw(st.integers(0, request_id))
            aborted.add(victim)
            cluster.abort(victim)
            emissions = [e for e in emissions if e.request_id != victim]
    emissions += cluster.advance(inf)
    assert not aborted & {emission.request_id for emission in emissions}
    for request_id in set(range(len(arrivals))) - aborted:
        assert arrivals[request_id][2] == sum(e.request_id == request_id for e in emissions)
    assert (0, 0, 0.0) == (cluster.stats().running, cluster.stats().waiting, cluster.stats().kv_usage)


@settings(max_examples=60)
@given(arrival_lists())
def test_chunked_is_stall_free(arrivals: list[Arrival]) -> None:
    """Every decode runs in every iteration, and no iteration exceeds the token budget."""
    cluster = small("chunked")
    (instance,) = cluster._all
    offered = 0
    while offered < len(arrivals) or cluster.next_deadline() is not None:
        deadline = cluster.next_deadline() or inf
        if offered < len(arrivals) and arrivals[offered][0] < deadline:
            when, prompt, output = arrivals[offered]
            cluster.submit(offered, prompt, output, when)
            offered += 1
            continue
        cluster.advance(deadline)
        if step := instance.step:
            assert len(instance.decodes.members) == step.decodes
            assert step.decodes + sum(tokens for _, tokens in step.chunks) <= 16


def worst_gap(text: str) -> float:
    """The worst token gap of 8 running 500-token requests when a 2,000-token prompt arrives among them."""
    cluster = Cluster(Deployment.parse(text))
    for request_id in range(8):
        cluster.submit(request_id, 500, 200, 0.0)
    cluster.advance(2.0)
    cluster.submit(8, 2000, 10, 2.0)
    times = token_times(cluster.advance(4.0), 9)
    return max(later - earlier for own in times[:8] for earlier, later in pairwise(own))


MACHINE = "model=llama2-70b,hardware=h100,tp=8"


def test_a_whole_prompt_stalls_the_decodes_for_its_prefill() -> None:
    """Colocated: (53.82^4 + (0.06658 x 2,008 + 1.53e-6 x 2,000^2)^4)^(1/4) = 140.57 ms, and 0.08 for 8 x 560 tokens."""
    assert 0.14065 == pytest.approx(worst_gap(f"emulated:colocated,{MACHINE}"), abs=1e-4)


def test_a_chunk_stalls_the_decodes_for_less_than_half_of_that() -> None:
    """Chunked 512, third chunk: (53.82^4 + (0.06658 x 512 + 1.53e-6 x 504 x 2,520)^4)^(1/4) = 56.34 ms, and 0.08."""
    gap = worst_gap(f"emulated:chunked,{MACHINE},max_num_batched_tokens=512")
    assert 0.05642 == pytest.approx(gap, abs=1e-4)


def test_disaggregated_decodes_do_not_notice_the_prompt() -> None:
    """A batch of 8 or 9 decodes takes 29.43 + 0.2822 x 9 = 32 ms and a little for its context."""
    assert 0.0321 == pytest.approx(worst_gap(f"emulated:disaggregated,{MACHINE}"), abs=2e-4)


def second_token_gap(prompt: int, options: str = "") -> tuple[float, float]:
    """TTFT and the second-token gap of one request on idle machines."""
    cluster = Cluster(Deployment.parse(f"emulated:disaggregated,{MACHINE}{options}"))
    cluster.submit(0, prompt, 3, 1.0)
    first, second, _ = (emission.time for emission in cluster.advance(inf))
    return first - 1.0, second - first


def test_layerwise_transfer_shows_in_the_second_token_only_by_its_last_layer() -> None:
    """1,500 tokens: 491.5 MB at 50 GB/s are 9.83 ms; a layer of 80 is 0.12 ms, and 5 ms do not overlap."""
    _, gap = second_token_gap(1500)
    decode = 0.02943 + 0.0002822 + (1.881e-8 + 2.07e-7) * 1501
    assert decode + 0.00012288 + 0.005 == pytest.approx(gap, abs=1e-7)


def test_short_prompts_are_sent_after_prefill() -> None:
    """500 tokens are below the 512 of the hybrid mode: all of 163.84 MB, 3.28 ms at 50 GB/s, is in the gap."""
    _, gap = second_token_gap(500)
    decode = 0.02943 + 0.0002822 + (1.881e-8 + 2.07e-7) * 501
    assert decode + 0.0032768 + 0.005 == pytest.approx(gap, abs=1e-7)


def test_when_the_decode_worker_streams_the_first_token_the_transfer_is_in_ttft() -> None:
    """The same total, moved from the second-token gap to TTFT."""
    prefill_ttft, prefill_gap = second_token_gap(1500)
    decode_ttft, decode_gap = second_token_gap(1500, ",first_token=decode")
    assert prefill_ttft + 0.00512288 == pytest.approx(decode_ttft, abs=1e-9)
    assert prefill_ttft + prefill_gap == pytest.approx(decode_ttft + decode_gap, abs=1e-9)


def test_spans_add_up_to_the_whole_request() -> None:
    """Queue, prefill, transfer and decode last from arrival to last token, and can be read when it ends."""
    cluster = Cluster(Deployment.parse(f"emulated:disaggregated,{MACHINE}"))
    cluster.submit(1, 3000, 5, 0.5)
    cluster.submit(2, 1500, 5, 0.6)
    ends = {e.request_id: e.time for e in cluster.advance(inf) if e.finished}
    spans = cluster.spans(2)
    assert ends[2] - 0.6 == pytest.approx(spans.queue_s + spans.prefill_s + spans.transfer_s + spans.decode_s)
    assert spans.queue_s > 0.1
    assert 0.00512288 == pytest.approx(spans.transfer_s)


def test_spans_not_reached_yet_are_nan() -> None:
    """A waiting request has no spans."""
    cluster = small("colocated")
    cluster.submit(0, 10, 5, 0.0)
    cluster.submit(1, 10, 5, 0.001)
    assert isnan(cluster.spans(1).queue_s)


def test_a_late_caller_delays_no_iteration() -> None:
    """Iterations start at the deadline of the one before them, however late `advance` is called."""
    punctual, late = small("chunked"), small("chunked")
    for cluster in (punctual, late):
        cluster.submit(0, 10, 20, 1.0)
    on_time = []
    while (deadline := punctual.next_deadline()) is not None:
        on_time += punctual.advance(deadline)
    assert on_time == late.advance(100.0)


def test_over_long_requests_are_refused_in_vllms_words() -> None:
    """Prompt and output together count against the context."""
    with pytest.raises(PromptTooLong, match=r"maximum context length is 64 tokens.*requested 65 tokens \(60 in"):
        small("chunked").submit(0, 60, 5, 0.0)


def test_a_full_queue_refuses_and_forgets() -> None:
    """`max_queue` waiting requests are the limit; the refused id may come again."""
    cluster = small("chunked,max_queue=1")
    cluster.submit(0, 16, 5, 0.0)
    cluster.submit(1, 16, 5, 0.0)
    with pytest.raises(QueueFull):
        cluster.submit(2, 16, 5, 0.0)
    cluster.advance(inf)
    cluster.submit(2, 16, 5, 100.0)
    assert 5 == len(cluster.advance(inf))


@pytest.mark.parametrize(("prompt", "output"), [(0, 5), (5, 0)])
def test_empty_requests_are_a_bug_of_the_caller(prompt: int, output: int) -> None:
    """Both lengths are at least one token."""
    with pytest.raises(ValueError, match="request 7"):
        small("chunked").submit(7, prompt, output, nan)


def test_shortest_queue_spreads_prompts_over_instances() -> None:
    """Two prompts that come together do not wait for each other on two instances."""
    cluster = small("colocated,instances=2")
    cluster.submit(0, 10, 5, 0.0)
    cluster.submit(1, 10, 5, 0.0)
    assert cluster.spans(0).queue_s == cluster.spans(1).queue_s == 0.0


def test_time_outside_the_calibrated_range_is_counted() -> None:
    """A 9,000-token context is beyond the 8,192 that were measured; a short one is not."""
    cluster = Cluster(Deployment.parse("emulated:chunked"))
    cluster.submit(0, 100, 10, 0.0)
    cluster.advance(inf)
    assert 0.0 == cluster.stats().extrapolated_s
    cluster.submit(1, 9000, 10, 100.0)
    cluster.advance(inf)
    assert 0.5 < cluster.stats().extrapolated_share < 1.0


def test_only_emulated_deployments_make_a_cluster() -> None:
    """A URL has no pools to build."""
    with pytest.raises(Exception, match="not an emulated deployment"):
        resolve(Deployment.parse("http://localhost:8000"))
