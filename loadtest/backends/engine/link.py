"""How KV gets from prefill to decode memory: straight into shared memory, or over TCP; and an emulated slower wire.

The decode worker reserves blocks first, the prefill worker writes into them layer by layer, one-sided. Over TCP every
layer carries request and generation, and the receiver drops what it no longer expects: a late layer of an aborted
request must never land in blocks that belong to another.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from loadtest.backends.engine.kvcache import Blocks, KvCache

_HEADER = struct.Struct("<QIIQ")  # request, generation, layer, bytes
_CONNECT_S = 5.0


@dataclass
class Transfer:
    """One attempt to move one prompt's KV; `cancelled` is set by the worker and seen by the pusher."""

    request_id: int
    generation: int
    source: Blocks
    target: Blocks
    cancelled: bool = False
    first_layer_s: float = float("nan")
    sent_bytes: int = 0
    writing_s: float = 0.0


class Link(Protocol):
    """The way to one decode worker."""

    def write(self, transfer: Transfer, layer: int) -> int:
        """Write one layer, blocking, and return its bytes; OSError when the way is broken."""

    def reset(self, address: str) -> None:
        """Give up what is being written, from another thread; later writes go to `address`."""


class VirtualWire:
    """A first-come-first-served wire of a given rate: data are *visible* when it would have carried them.

    Never sleeps, and cannot make a transfer faster than it was.
    """

    def __init__(self, gbps: float, latency_us: float) -> None:
        """`gbps` 0 is a wire without limit."""
        self._seconds_per_byte = 8e-9 / gbps if gbps else 0.0
        self._latency_s = latency_us * 1e-6
        self._free_at = 0.0

    def carry(self, ready_s: float, size: int) -> float:
        """Send so many bytes that are ready at `ready_s`; returns when they can be seen at the other end."""
        self._free_at = max(self._free_at, ready_s) + size * self._seconds_per_byte
        return self._free_at + self._latency_s


class SharedLink:
    """The decode worker's KV memory is mapped here: a write is one copy."""

    def __init__(self, cache: KvCache, target: KvCache) -> None:
        self._cache = cache
        self._target = target

    def write(self, transfer: Transfer, layer: int) -> int:
        source, target = self._cache.tensor[layer], self._target.tensor[layer]
        into = transfer.target.ids[: len(transfer.source.ids)]
        if (first := _run(into)) is not None and transfer.source.start is not None:
            begin = transfer.source.ids[0]
            target[first : first + len(into)].copy_(source[begin : begin + len(into)])
        else:
            target.index_copy_(0, torch.tensor(into), source[transfer.source.ids])
        return len(into) * source[0].nbytes

    def reset(self, address: str) -> None:
        """Memory is written or not: there is nothing to give up."""


class TcpLink:
    """The sending end; connects when there is something to write."""

    def __init__(self, cache: KvCache) -> None:
        """Goes nowhere until `reset` says where."""
        self._cache = cache
        self._address = ""
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def write(self, transfer: Transfer, layer: int) -> int:
        payload = self._cache.tensor[layer, transfer.source.ids].contiguous().cpu().view(torch.uint8).reshape(-1)
        data = memoryview(payload.numpy().data)
        sock = self._connected()
        try:
            sock.sendall(_HEADER.pack(transfer.request_id, transfer.generation, layer, len(data)))
            sock.sendall(data)
        except OSError:
            self._close(sock)
            raise
        return len(data)

    def reset(self, address: str) -> None:
        with self._lock:
            self._address = address
            sock, self._socket = self._socket, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes a write that is stuck
            sock.close()

    def _connected(self) -> socket.socket:
        with self._lock:
            if self._socket is None:
                host, _, port = self._address.rpartition(":")
                if not port:
                    raise ConnectionError("there is nowhere to write to")
                self._socket = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
                self._socket.settimeout(None)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._socket

    def _close(self, sock: socket.socket) -> None:
        with self._lock:
            if self._socket is sock:
                self._socket = None
        sock.close()


class Inbox:
    """The receiving end of TCP links: puts expected layers into their blocks, in a thread of its own."""

    def __init__(self, cache: KvCache, on_arrived: Callable[[], None]) -> None:
        """`on_arrived` is called, in that thread, when a request's last layer is in place."""
        self._cache = cache
        self._on_arrived = on_arrived
        self._lock = threading.Lock()
        self._expected: dict[int, tuple[int, list[int], set[int]]] = {}  # generation, blocks, layers to come
        self.received = 0  # layers, wanted or not
        self.dropped = 0  # of them, those that nobody expected any more
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Where senders connect."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def expect(self, request_id: int, generation: int, blocks: Blocks) -> None:
        """Let the layers of this generation in, and no other's."""
        with self._lock:
            self._expected[request_id] = (generation, blocks.ids, set(range(len(self._cache.tensor))))

    def forget(self, request_id: int) -> None:
        """Its blocks are about to be somebody else's."""
        with self._lock:
            self._expected.pop(request_id, None)

    def arrived(self, request_id: int) -> bool:
        """Are all layers in place?"""
        with self._lock:
            return request_id in self._expected and not self._expected[request_id][2]

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        header = bytearray(_HEADER.size)
        with sock, contextlib.suppress(OSError, EOFError):
            while True:
                _fill(sock, memoryview(header))
                request_id, generation, layer, size = _HEADER.unpack(header)
                payload = bytearray(size)
                _fill(sock, memoryview(payload))
                self._store(request_id, generation, layer, payload)

    def _store(self, request_id: int, generation: int, layer: int, payload: bytearray) -> None:
        """Under the lock from the look-up to the copy, so that `forget` comes before or after, never between."""
        with self._lock:
            self.received += 1
            wanted, blocks, missing = self._expected.get(request_id, (None, [], set()))
            if wanted != generation:
                self.dropped += 1
                return
            rows = torch.frombuffer(payload, dtype=self._cache.tensor.dtype)
            rows = rows.view(-1, *self._cache.tensor.shape[2:]).to(self._cache.tensor.device)
            into = blocks[: len(rows)]
            if (first := _run(into)) is not None:
                self._cache.tensor[layer, first : first + len(into)].copy_(rows)
            else:
                self._cache.tensor[layer].index_copy_(0, torch.tensor(into), rows)
            missing.discard(layer)
            complete = not missing
        if complete:
            self._on_arrived()


def shared_tensor(fd: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The KV memory behind a file descriptor that server and workers share."""
    count = torch.Size(shape).numel()
    return torch.frombuffer(mmap.mmap(fd, count * dtype.itemsize), dtype=dtype, count=count).view(shape)


def _fill(sock: socket.socket, view: memoryview) -> None:
    while view:
        got = sock.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]


def _run(ids: list[int]) -> int | None:
    """The first of neighbouring blocks, None when they are not neighbours."""
    return ids[0] if ids == list(range(ids[0], ids[0] + len(ids))) else None
