"""Links by themselves: what is written is there, what is late is dropped, and a slow wire keeps its arithmetic."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.engine.stage import PICO, cache_of, torch

# isort: split
from loadtest import clock
from loadtest.backends.engine.kvcache import Blocks, KvCache
from loadtest.backends.engine.link import Inbox, SharedLink, TcpLink, Transfer, VirtualWire


def filled(cache: KvCache, blocks: Blocks, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for layer in cache.tensor:
        layer[blocks.ids] = torch.randn(layer[blocks.ids].shape, generator=generator)


def wait_for(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        clock.sleep(0.002)
    raise AssertionError("it did not come")


@pytest.fixture
def target() -> KvCache:
    return cache_of(PICO, 16)


@pytest.fixture
def inbox(target: KvCache) -> Iterator[Inbox]:
    box = Inbox(target, lambda: None)
    yield box
    box.close()


@pytest.mark.parametrize("into", [[3, 4, 5], [9, 2, 7]])
@pytest.mark.parametrize("source", [[0, 1], [5, 3]])
def test_both_links_put_every_layer_where_it_belongs(
    source: list[int], into: list[int], target: KvCache, inbox: Inbox
) -> None:
    """Neighbouring blocks or not, on either side; the decode side may have more blocks than the prompt fills."""
    cache = cache_of(PICO, 8)
    blocks, place = Blocks(source, 16), Blocks(into, 16)
    filled(cache, blocks, 1)
    other = cache_of(PICO, 16)
    shared, tcp = SharedLink(cache, other), TcpLink(cache)
    tcp.reset(inbox.address)
    inbox.expect(7, 1, place)
    for layer in range(PICO.layers):
        sizes = {link.write(Transfer(7, 1, blocks, place), layer) for link in (shared, tcp)}
        assert {2 * 16 * 2 * 2 * 8 * 4} == sizes
    wait_for(lambda: inbox.arrived(7))
    for found in (other, target):
        assert bool(torch.equal(cache.tensor[:, source], found.tensor[:, into[:2]]))
        assert 0 == int(found.tensor[:, into[2]].count_nonzero())
    tcp.reset("")


def test_a_late_layer_never_lands_in_reused_blocks(target: KvCache, inbox: Inbox) -> None:
    """An old generation, and a request that was forgotten while its layers were on the way."""
    cache = cache_of(PICO, 8)
    blocks, place = Blocks([0, 1], 16), Blocks([4, 5], 16)
    filled(cache, blocks, 1)
    tcp = TcpLink(cache)
    tcp.reset(inbox.address)
    inbox.expect(7, 1, place)
    tcp.write(Transfer(7, 1, blocks, place), 0)
    wait_for(lambda: inbox.received == 1)
    inbox.forget(7)
    inbox.expect(8, 1, place)
    filled(target, place, 2)
    mine = target.tensor.clone()
    inbox.expect(9, 2, Blocks([6, 7], 16))
    tcp.write(Transfer(7, 1, blocks, place), 1)  # forgotten
    tcp.write(Transfer(9, 1, blocks, place), 0)  # an earlier attempt
    wait_for(lambda: inbox.received == 3)
    assert (2, False) == (inbox.dropped, inbox.arrived(7))
    assert bool(torch.equal(mine, target.tensor))
    tcp.reset("")


def test_a_stuck_write_is_woken_by_a_reset() -> None:
    """From another thread, with OSError; the next write goes to the new address."""
    cache = cache_of(PICO, 4096)
    blocks = Blocks(range(4096), 16)
    errors: list[OSError] = []
    with socket.create_server(("127.0.0.1", 0)) as hole:
        tcp = TcpLink(cache)
        tcp.reset(f"127.0.0.1:{hole.getsockname()[1]}")

        def write() -> None:
            try:
                for _ in range(50):
                    tcp.write(Transfer(1, 1, blocks, blocks), 0)
            except OSError as error:
                errors.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        writer.join(0.05)
        assert writer.is_alive()
        tcp.reset("")
        writer.join(30)
        assert not writer.is_alive()
        assert 1 == len(errors)


def test_the_wire_carries_first_come_first_served() -> None:
    """1 Gb/s, 100 us: serial is latency + bytes/rate after the prompt; layers ready one by one overlap with it."""
    layers, size = 8, 125_000  # 1 ms a layer
    serial = VirtualWire(1.0, 100.0)
    assert pytest.approx(0.0081) == [serial.carry(0.0, size) for _ in range(layers)][-1]
    slow_prompt = VirtualWire(1.0, 100.0)  # a layer every 2 ms: only the last is exposed
    assert pytest.approx(0.0161 + 0.001) == [slow_prompt.carry(0.002 * (n + 1), size) for n in range(layers)][-1]
    fast_prompt = VirtualWire(1.0, 100.0)  # a layer every 0.5 ms: the wire is behind, all but the first wait
    assert pytest.approx(0.0005 + 0.008 + 0.0001) == [fast_prompt.carry(0.0005 * (n + 1), size) for n in range(8)][-1]
    assert 5.0 == VirtualWire(0.0, 0.0).carry(5.0, size)


def test_two_transfers_share_one_wire() -> None:
    """The second waits for the first, and cannot pass it."""
    wire = VirtualWire(8.0, 0.0)
    assert pytest.approx(1.001) == wire.carry(1.0, 1_000_000)
    assert pytest.approx(1.002) == wire.carry(1.0, 1_000_000)
    assert pytest.approx(3.001) == wire.carry(3.0, 1_000_000)
