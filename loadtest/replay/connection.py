"""One TCP connection: non-blocking, TCP_NODELAY, kernel-stamped; it collects reads and lets others decode them."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loadtest import clock
from loadtest.replay import stamps
from loadtest.replay.stamps import ANCILLARY_BYTES, NO_STAMP

if TYPE_CHECKING:
    from loadtest.replay.exchange import Exchange
    from loadtest.replay.reactor import Reactor
    from loadtest.replay.timerfd import Handle

READ_BYTES = 16 * 1024
# Shared by all connections, which are read one at a time: room made for each read and cut to its size afterwards
# leaves the heap in pieces.
READ_ROOM = memoryview(bytearray(READ_BYTES))
LARGE_READ_BYTES = 4 * 1024
MAX_READS_KEPT = 128
READ_ROOMS = [READ_ROOM]
LAST_CHUNK = b"0\r\n\r\n"
SENT_AT_ONCE_BYTES = 256 * 1024  # of a long request: a fraction of a millisecond, also through TLS
_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY)


class Address(NamedTuple):
    """A resolved peer."""

    family: int
    sockaddr: tuple[str | int, ...]


class Owner(Protocol):
    """Whom a connection tells."""

    def connected(self, connection: Connection) -> None: ...
    def received(self, connection: Connection) -> None:
        """There are reads that should be decoded soon."""

    def lost(self, connection: Connection, error: OSError | None) -> None:
        """The peer closed (None) or the connection broke."""


class Connection:
    """Opens, sends, collects `(user stamp ns, kernel stamp, bytes)` per read. Knows nothing of HTTP.

    `decode_soon` asks to be told of every read (heads, unusual framing); otherwise the owner hears of reads that
    end a chunked body, large reads and full backlogs, and looks at the rest in its own time.
    """

    __slots__ = (
        "_owner",
        "_pieces",
        "_reactor",
        "_read_handle",
        "_recvmsg_into",
        "_unsent",
        "_write_handle",
        "connect_ns",
        "decode_soon",
        "exchange",
        "idle_since_ns",
        "open",
        "opened_ns",
        "place",
        "queued",
        "reads",
        "sock",
        "uses",
    )

    def __init__(self, address: Address, reactor: Reactor, owner: Owner) -> None:
        self._owner, self._reactor = owner, reactor
        self.reads: list[tuple[int, bytes, bytes]] = []
        self.exchange: Exchange | None = None
        self.open = self.queued = False
        self.decode_soon = True
        self.uses = 0
        self.place = 0  # of its address among the target's
        self.connect_ns = self.idle_since_ns = 0
        self._unsent: memoryview | None = None
        self._pieces: deque[bytes] = deque()  # of a long request, still to be sent
        self._read_handle: Handle | None = None
        self.opened_ns = clock.monotonic_ns()
        self.sock = socket.socket(address.family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamps.enable(self.sock)
        self._recvmsg_into = self.sock.recvmsg_into
        code = self.sock.connect_ex(address.sockaddr)
        if code and code not in _IN_PROGRESS:
            self.sock.close()
            raise OSError(code, os.strerror(code))
        self._write_handle: Handle | None = reactor.on_writable(self.sock.fileno(), self._writable)

    @property
    def sending(self) -> bool:
        """A part of the last request has not left yet."""
        return self._unsent is not None or bool(self._pieces)

    def send(self, data: bytes) -> int:
        """Hand `data` to the kernel, the rest of it as the socket drains; returns the stamp taken just before."""
        now = clock.monotonic_ns()
        if self._unsent is not None:  # TLS has a word of its own to say
            self._unsent = memoryview(bytes(self._unsent) + data)
            return now
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            broken = error
            self._pieces.clear()
            self._reactor.soon(lambda: self._owner.lost(self, broken))
            return now
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._write_handle = self._reactor.on_writable(self.sock.fileno(), self._writable)
        return now

    def send_pieces(self, pieces: tuple[bytes, ...]) -> int:
        """As `send`, a part of them at each turn of the loop."""
        now = clock.monotonic_ns()
        self._pieces.extend(pieces)
        self._send_on()
        return now

    def close(self) -> None:
        """Close at once; may be called twice."""
        self.open = False
        for handle in (self._read_handle, self._write_handle):
            if handle is not None:
                handle.stop()
        self._read_handle = self._write_handle = None
        self._pieces.clear()
        self.sock.close()

    def _writable(self) -> None:
        if self._unsent is not None:
            self._drain()
            return
        self._stop_writing()
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._owner.lost(self, OSError(code, os.strerror(code)))
            return
        self.open = True
        self._read_handle = self._reactor.on_readable(self.sock.fileno(), self._readable)
        self._established()

    def _established(self) -> None:
        self.connect_ns = clock.monotonic_ns() - self.opened_ns
        self._owner.connected(self)

    def _drain(self) -> None:
        """The socket took no more and now does: what is left of a send, then the pieces behind it."""
        assert self._unsent is not None
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._stop_writing()
            self._owner.lost(self, error)
            return
        if not self._unsent:
            self._unsent = None
            self._stop_writing()
            if self._pieces:
                self._send_on()

    def _send_on(self) -> None:
        """Send pieces until the socket takes no more, or others should have their turn."""
        sent = 0
        while self._pieces and self._unsent is None and self.open:
            if sent >= SENT_AT_ONCE_BYTES:
                self._reactor.soon(self._send_on)
                return
            piece = self._pieces.popleft()
            sent += len(piece)
            self.send(piece)

    def _stop_writing(self) -> None:
        if self._write_handle is not None:
            self._write_handle.stop()
            self._write_handle = None

    def _readable(self) -> None:
        """The one method that runs for every token: receive, stamp, keep, and seldom more."""
        try:
            length, ancillary, _, _ = self._recvmsg_into(READ_ROOMS, ANCILLARY_BYTES)
        except OSError as error:
            self._not_received(error)
            return
        now = clock.monotonic_ns()
        if not length:
            self._owner.lost(self, None)
            return
        data, reads = READ_ROOM[:length].tobytes(), self.reads
        reads.append((now, ancillary[0][2] if ancillary else NO_STAMP, data))
        if length == READ_BYTES:
            self._reactor.soon(self._read_on)
        if self.decode_soon or data[-5:] == LAST_CHUNK or length >= LARGE_READ_BYTES or len(reads) >= MAX_READS_KEPT:
            self._owner.received(self)

    def _read_on(self) -> None:
        """The last read was filled, so there may be more, and reactors tell of arrivals only."""
        if self._read_handle is not None:
            self._readable()

    def _not_received(self, error: OSError) -> None:
        if not isinstance(error, BlockingIOError | InterruptedError):
            self._owner.lost(self, error)
