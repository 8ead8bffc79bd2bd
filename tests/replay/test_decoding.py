"""A backlog is decoded in parts, so that one stream never holds up the others, and all of it is."""

from __future__ import annotations

from typing import Any

from loadtest.replay.answer import Answer
from loadtest.replay.decoding import SOME_BYTES, SOME_READS, Decoder
from loadtest.replay.exchange import Exchange
from loadtest.replay.stamps import NO_STAMP
from tests.replay.player import LAST_CHUNK, chunk
from tests.replay.streams import DONE, HEAD, completion_event, usage_event


class Held:
    """A connection of which only this matters."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.exchange: Exchange | None = Exchange(0, b"", Answer())
        self.reads = [(number, NO_STAMP, piece) for number, piece in enumerate(pieces, 1)]
        self.decode_soon = True


def decoded(pieces: list[bytes]) -> tuple[Any, list[int], list[Exchange], list[object]]:
    """The connection after all parts, how much was left after each, what ended, and who had a surplus."""
    held: Any = Held(pieces)
    ended: list[Exchange] = []
    surplus: list[object] = []

    def end(exchange: Exchange) -> None:
        ended.append(exchange)
        held.exchange = None

    decoder = Decoder(ended=end, broken=lambda exchange, _: ended.append(exchange), surplus=surplus.append)
    left = []
    while held.reads and held.exchange is not None:
        decoder.some(held)
        left.append(len(held.reads))
    return held, left, ended, surplus


def answer(tokens: int, text: str = " a") -> list[bytes]:
    pieces = [HEAD, *(chunk(completion_event(text)) for _ in range(tokens))]
    return [*pieces, chunk(completion_event("", "length")) + chunk(usage_event(tokens)) + chunk(DONE) + LAST_CHUNK]


def test_many_small_reads_are_taken_in_parts() -> None:
    """200 tokens: by the number of reads; each counts once, in its own read."""
    _, left, ended, surplus = decoded(answer(200))
    assert [202 - SOME_READS, 202 - 2 * SOME_READS, 202 - 3 * SOME_READS, 0] == left
    (exchange,) = ended
    assert list(range(1, 201)) == list(exchange.answer.event_reads)
    assert exchange.answer.complete
    assert [] == surplus


def test_large_reads_are_taken_by_their_size() -> None:
    """Tokens of 10 kB: two at a time."""
    _, left, ended, _ = decoded(answer(10, "x" * 10_000))
    assert max(a - b for a, b in zip([12, *left], left, strict=False)) <= SOME_BYTES // 10_000 + 2
    assert 10 == len(ended[0].answer.event_reads)


def test_what_stands_behind_the_end_is_nobodys() -> None:
    """The answer counts as it is, and the connection is given up."""
    held, _, ended, surplus = decoded([*answer(3), *(b"more" for _ in range(SOME_READS))])
    assert 3 == len(ended[0].answer.event_reads)
    assert [held] == surplus


def test_what_cannot_be_read_breaks_its_own_answer() -> None:
    """The rest of the bytes is left alone."""
    _, _, ended, _ = decoded([b"no HTTP at all\r\n\r\n"])
    assert ended[0].answer.closed
