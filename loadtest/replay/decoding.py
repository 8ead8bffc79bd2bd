"""Takes what a connection has collected to the answer that it belongs to."""

from __future__ import annotations

from collections.abc import Callable

from loadtest.replay.connection import Connection
from loadtest.replay.exchange import Exchange
from loadtest.replay.texts import unreadable

# What takes well below a millisecond, however it is written.
SOME_READS, SOME_BYTES = 64, 16 * 1024


class Decoder:
    """Calls `ended(exchange)` when an answer is complete and `broken(exchange, why)` when it is damaged.

    `surplus(connection)` is called when there is more behind the end of an answer.
    """

    def __init__(
        self,
        *,
        ended: Callable[[Exchange], None],
        broken: Callable[[Exchange, str], None],
        surplus: Callable[[Connection], None],
    ) -> None:
        self._ended, self._broken, self._surplus = ended, broken, surplus

    def some(self, connection: Connection) -> None:
        """Decode a part, and leave the rest with the connection."""
        reads, exchange = connection.reads, connection.exchange
        some = size = 0
        for some, (_, _, data) in enumerate(reads, 1):
            size += len(data)
            if size >= SOME_BYTES or some >= SOME_READS:
                break
        if exchange is None or some >= len(reads):
            self.all(connection)
            return
        answer, rest, connection.reads = exchange.answer, reads[some:], reads[:some]
        self.all(connection)
        if connection.exchange is exchange and exchange.answer is answer:
            connection.reads[:0] = rest
        else:
            self._surplus(connection)

    def all(self, connection: Connection) -> None:
        """Decode all of it."""
        exchange, reads = connection.exchange, connection.reads
        if exchange is None or not reads:
            return
        connection.reads = []
        answer = exchange.answer
        try:
            answer.feed(reads)
        except Exception as error:  # mostly FramingError; what a server sends fails its own row, never the run
            answer.closed = True
            if answer.said_all:
                self._ended(exchange)
            else:
                self._broken(exchange, unreadable(error))
            return
        connection.decode_soon = not answer.in_steady_stream
        if answer.complete:
            self._ended(exchange)
