"""A server that plays prepared bytes at prepared times and remembers when it really wrote them."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from loadtest import clock


@dataclass
class Received:
    """One request as the server saw it."""

    head: bytes
    body: bytes
    read_ns: int  # when the last byte of it had been read
    connection: int  # number of the connection, from 0
    writes: list[tuple[float, int, int]] = field(default_factory=list)  # (at_ms, just before, just after)


@dataclass
class Play:
    """What to answer: writes of (milliseconds after the request was read, bytes), then how to end."""

    writes: list[tuple[float, bytes]]
    end: str = "keep"  # keep, close, reset, stall


Script = Callable[[Received, int], Play]


class Player:
    """Listens on loopback; `script(received, number)` says what to answer to the request of that number."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None, family: int = socket.AF_INET) -> None:
        self._script, self._tls = script, tls
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        self._listener.listen(1024)
        self.port: int = self._listener.getsockname()[1]
        self.received: list[Received] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which a close alone does not
        self._listener.close()

    def url(self, path: str = "") -> str:
        scheme = "https" if self._tls else "http"
        host = "127.0.0.1" if self._listener.family == socket.AF_INET else "[::1]"
        return f"{scheme}://{host}:{self.port}{path}"

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        with contextlib.suppress(OSError), sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = self._tls.wrap_socket(sock, server_side=True) if self._tls else sock
            with channel:
                while request := _read_request(channel, connection):
                    with self._lock:
                        number = len(self.received)
                        self.received.append(request)
                    if not self._play(channel, request, self._script(request, number)):
                        return

    def _play(self, sock: socket.socket, request: Received, play: Play) -> bool:
        """Write and end; True when the connection stays open for another request."""
        for at_ms, data in play.writes:
            wait_s = (request.read_ns + at_ms * 1e6 - clock.monotonic_ns()) / 1e9
            if wait_s > 0 and self._stop.wait(wait_s):
                return False
            before = clock.monotonic_ns()
            sock.sendall(data)
            request.writes.append((at_ms, before, clock.monotonic_ns()))
        if play.end == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        elif play.end == "stall":
            self._stop.wait(60)
        return play.end == "keep"


def _read_request(sock: socket.socket, connection: int) -> Received | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += sock.recv(65536)
    return Received(head, body, clock.monotonic_ns(), connection)


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def response_head(status: int, headers: dict[str, str], *, version: str = "HTTP/1.1") -> bytes:
    lines = [f"{version} {status} {'OK' if status == 200 else 'Status'}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
