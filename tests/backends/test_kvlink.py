from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.backends.kvlink import KvLink, Port, transfer
from loadtest.backends.request import Request

LAYERS, KV_BYTES = 80, 327_680


def link(mode: str, gbps: float = 400) -> KvLink:
    return KvLink(gbps * 1e9 / 8, 0.005, mode, LAYERS, KV_BYTES)


def prefilled(tokens: int, start: float, end: float) -> Request:
    request = Request(0, tokens, 10, start)
    request.prefill_started, request.prefill_ended = start, end
    return request


@pytest.mark.parametrize(
    ("mode", "tokens", "prefill_s", "visible_s"),
    [
        ("serial", 3000, 0.2, 0.0196608),  # 64 % of a 30.5 ms token time
        ("layerwise", 1500, 0.1, 0.0001229),  # only the last layer: 9.83 ms / 80
        ("layerwise", 1500, 0.004, 0.0058804),  # prefill too short to hide it: 9.83 - 4 x 79/80 ms
        ("hybrid", 511, 0.06, 0.0033489),
        ("hybrid", 512, 0.06, 0.0000419),
    ],
)
def test_an_idle_link_by_hand(mode: str, tokens: int, prefill_s: float, visible_s: float) -> None:
    """Llama2-70B with GQA over 400 Gb/s, counted from the end of prefill, beside 5 ms of latency."""
    seen = transfer(link(mode), Port(), Port(), prefilled(tokens, 1.0, 1.0 + prefill_s), 1.0 + prefill_s)
    assert visible_s + 0.005 == pytest.approx(seen - 1.0 - prefill_s, abs=1e-7)


def test_a_decode_pool_without_room_at_first_gets_it_all_later() -> None:
    """Layers cannot leave before their blocks are reserved: the whole transfer comes after that."""
    seen = transfer(link("layerwise"), Port(), Port(), prefilled(1500, 1.0, 1.1), 2.0)
    assert 2.0 + 0.0098304 + 0.005 == pytest.approx(seen)


@given(
    st.sampled_from(["serial", "layerwise", "hybrid"]),
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(0.001, 0.5), st.integers(1, 9000)), min_size=1, max_size=20),
)
def test_a_link_is_first_come_first_served_and_never_faster_than_its_rate(
    mode: str, gbps: float, sends: list[tuple[float, float, int]]
) -> None:
    """KV arrives in the order sent, not before its prefill ends, and a busy stretch carries at most rate x time."""
    wire, out, into, now = link(mode, gbps), Port(), Port(), 1.0
    began, seen, sent_bytes = 1.0, [], 0.0
    for gap, prefill_s, tokens in sends:
        now += gap + prefill_s
        arrival = transfer(wire, out, into, prefilled(tokens, now - prefill_s, now), now) - wire.latency_s
        seen.append(arrival)
        sent_bytes += tokens * KV_BYTES
        assert arrival >= now
        assert sent_bytes <= (arrival - began) * wire.bytes_per_s * (1 + 1e-9)
    assert all(earlier <= later for earlier, later in pairwise(seen))


def test_two_senders_share_the_receivers_port() -> None:
    """Two serial transfers into one decode instance take twice the time of one."""
    into = Port()
    seen = [transfer(link("serial"), Port(), into, prefilled(3000, 0.8, 1.0), 1.0) for _ in range(2)]
    assert [1.0246608, 1.0443216] == pytest.approx(seen)
