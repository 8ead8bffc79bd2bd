"""Messages over a stream socket: four bytes of length, then MessagePack."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

_READ_BYTES = 1 << 18
M = TypeVar("M")

_encode = msgspec.msgpack.Encoder().encode


def frame(message: object) -> bytes:
    """The bytes of one message."""
    body = _encode(message)
    return len(body).to_bytes(4, "little") + body


class Frames(Generic[M]):
    """Turns a stream of bytes back into messages of one type."""

    def __init__(self, kind: object) -> None:
        self._decode: Callable[[bytes], M] = msgspec.msgpack.Decoder(kind).decode
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """Every message that is complete with these bytes."""
        self._pending += data
        while len(self._pending) >= 4:
            end = 4 + int.from_bytes(self._pending[:4], "little")
            if len(self._pending) < end:
                return
            body = bytes(self._pending[4:end])
            del self._pending[:end]
            yield self._decode(body)


class Channel(Generic[M]):
    """A worker's end: any thread may send, one thread receives."""

    def __init__(self, sock: socket.socket, kind: object) -> None:
        self._socket = sock
        self._frames = Frames[M](kind)
        self._lock = threading.Lock()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._poll = select.poll()
        for readable in (sock, self._woken):
            self._poll.register(readable, select.POLLIN)

    def send(self, message: object) -> None:
        """Send one message; OSError when the other end is gone."""
        data = frame(message)
        with self._lock:
            self._socket.sendall(data)

    def wake(self) -> None:
        """End the wait of the receiving thread."""
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            self._waker.send(b"x")

    def receive(self, timeout_s: float | None) -> list[M]:
        """What has come, waiting at most `timeout_s` (None: for ever) for the first; EOFError at the end."""
        ready = [fd for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1e3)]
        if self._woken.fileno() in ready:
            self._woken.recv(_READ_BYTES)
        if self._socket.fileno() not in ready:
            return []
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise EOFError
        return list(self._frames.feed(data))
