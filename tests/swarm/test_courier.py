"""A journal's way to another machine: whatever the network does, the copy is the journal."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtest import clock
from loadtest.swarm import courier as module
from loadtest.swarm.courier import Copy, Courier
from loadtest.swarm.protocol import Ack, Batch
from tests.metrics.test_appender import Disk

counter = itertools.count()


class Network:
    """Batches and acknowledgements that a script loses, keeps back and repeats."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        self.there = folder / "copy"
        self.copy = Copy(self.there)
        self.under_way: list[Batch] = []
        self.courier = Courier("r", self.journal, self.under_way.append)

    def write(self, data: bytes) -> None:
        with self.journal.open("ab") as file:
            file.write(data)

    def deliver(self, batch: Batch, *, answer: bool = True) -> None:
        size = self.copy.take(batch)
        if answer:
            self.courier.heard(Ack("r", size))


def test_what_grows_arrives(tmp_path: Path) -> None:
    """Each turn sends what is new; delivered only when all of it is acknowledged."""
    network = Network(tmp_path)
    for data in (b"abc", b"", b"de"):
        network.write(data)
        network.courier.turn()
    assert [(0, b"abc"), (3, b"de")] == [(batch.offset, batch.data) for batch in network.under_way]
    assert not network.courier.delivered
    for batch in network.under_way:
        network.deliver(batch)
    assert network.courier.delivered
    assert b"abcde" == network.there.read_bytes()


def test_what_is_lost_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without progress the courier goes back to what is acknowledged."""
    now = [0]
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now[0])
    network = Network(tmp_path)
    network.write(b"abc")
    network.courier.turn()
    network.under_way.clear()
    network.courier.turn()
    assert [] == network.under_way
    now[0] += module.RESEND_NS + 1
    network.courier.turn()
    assert [b"abc"] == [batch.data for batch in network.under_way]


def test_no_more_than_a_window_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that does not answer is not buried, and the worker's memory stays flat."""
    monkeypatch.setattr(module, "BATCH_BYTES", 10)
    monkeypatch.setattr(module, "WINDOW_BYTES", 40)
    network = Network(tmp_path)
    network.write(bytes(1000))
    network.courier.turn()
    network.courier.turn()
    assert 4 == len(network.under_way)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.binary(max_size=30), max_size=8),
    fates=st.lists(st.sampled_from(["arrives", "lost", "twice", "late", "unanswered"]), max_size=60),
)
def test_the_copy_is_the_journal_whatever_the_network_does(
    tmp_path: Path, pieces: list[bytes], fates: list[str]
) -> None:
    """Lost, doubled, reordered or unanswered batches: at every moment a prefix, and in the end all of it."""
    folder = tmp_path / str(next(counter))
    folder.mkdir()
    network = Network(folder)
    whole, late = b"", []
    now = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic_ns", lambda: now)
        patch.setattr(module, "BATCH_BYTES", 7)
        patch.setattr(module, "WINDOW_BYTES", 21)
        script = iter(fates)
        for piece in [*pieces, *[b""] * 100]:
            network.write(piece)
            whole += piece
            now += module.RESEND_NS + 1
            network.courier.turn()
            batches, network.under_way[:] = list(network.under_way), []
            for batch in [*batches, *late]:
                match next(script, "arrives"):
                    case "lost":
                        continue
                    case "late":
                        late.append(batch)
                        continue
                    case "unanswered":
                        network.deliver(batch, answer=False)
                    case "twice":
                        network.deliver(batch)
                        network.deliver(batch)
                    case _:
                        network.deliver(batch)
                assert whole.startswith(network.there.read_bytes())
            late = late[-3:]
        assert network.courier.delivered
        assert whole == network.there.read_bytes()


def test_a_full_disk_at_the_master_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did not take is not acknowledged, so it comes again; a write that was cut short is not there twice."""
    now = [0]
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now[0])
    network = Network(tmp_path)
    network.write(b"abcdef")
    with monkeypatch.context() as full:
        disk = Disk(full, room=2)
        network.courier.turn()
        network.deliver(network.under_way.pop())
        assert (b"ab", "No space left on device") == (network.there.read_bytes(), network.copy.trouble)
        now[0] += module.RESEND_NS + 1
        assert not network.copy.hopeless(2 * module.RESEND_NS)
        network.courier.turn()
        network.deliver(network.under_way.pop())
        now[0] += module.RESEND_NS + 1
        assert network.copy.hopeless(2 * module.RESEND_NS)
        assert not network.courier.delivered
        disk.room = 100
        network.courier.turn()
        network.deliver(network.under_way.pop())
    assert (b"abcdef", "") == (network.there.read_bytes(), network.copy.trouble)
    assert network.courier.delivered
    assert not network.copy.hopeless(0)


def test_a_copy_that_was_taken_away_is_trouble_and_no_crash(tmp_path: Path) -> None:
    """Somebody cleared the run directory: the batch is not acknowledged."""
    network = Network(tmp_path)
    network.write(b"abc")
    network.there.unlink()
    network.courier.turn()
    network.deliver(network.under_way.pop())
    assert "No such file or directory" == network.copy.trouble
    assert not network.courier.delivered
