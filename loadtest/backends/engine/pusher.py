"""The prefill worker's side of transfers: a thread that writes layers in the order they became ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from loadtest.backends.engine.link import Link, Transfer, VirtualWire
from loadtest.backends.engine.messages import Moving, Sent
from loadtest.clock import Clock

_TELL_EVERY_S = 0.25


class _Layer(NamedTuple):
    transfer: Transfer
    number: int
    ready_s: float


class Pusher:
    """Everything goes through one queue, so a `barrier` comes after all that was pushed before it."""

    def __init__(
        self, link: Link, wire: VirtualWire, layers: int, clock: Clock, send: Callable[[object], None]
    ) -> None:
        """`send` is called, in the pusher's thread, with a Sent for each complete transfer, and Moving between."""
        self._link = link
        self._wire = wire
        self._layers = layers
        self._clock = clock
        self._send = send
        self._told_s = 0.0
        self._queue: SimpleQueue[_Layer | Callable[[], None]] = SimpleQueue()

    def start(self) -> None:
        """Work in a thread of its own from now on."""
        threading.Thread(target=self._run, daemon=True).start()

    def drain(self) -> None:
        """Work through what is queued, in this thread."""
        while not self._queue.empty():
            self._do(self._queue.get())

    def layer(self, transfer: Transfer, number: int) -> None:
        """A layer is in the source blocks: write it."""
        self._queue.put(_Layer(transfer, number, self._clock.now()))

    def whole(self, transfer: Transfer) -> None:
        """All layers are there: write them one after the other."""
        for number in range(self._layers):
            self.layer(transfer, number)

    def barrier(self, then: Callable[[], None]) -> None:
        """Call `then`, in the pusher's thread, when nothing queued before it is being written any more."""
        self._queue.put(then)

    def reset(self, address: str) -> None:
        """Wake a write that is stuck, and go to `address` from now on."""
        self._link.reset(address)

    def _run(self) -> None:
        while True:
            self._do(self._queue.get())

    def _do(self, job: _Layer | Callable[[], None]) -> None:
        if callable(job):
            job()
        elif not job.transfer.cancelled:
            self._write(*job)

    def _write(self, transfer: Transfer, number: int, ready_s: float) -> None:
        began = self._clock.now()
        if number == 0:
            transfer.first_layer_s = began
        try:
            size = self._link.write(transfer, number)
        except OSError:  # the lease brings it up again
            transfer.cancelled = True
            return
        now = self._clock.now()
        transfer.sent_bytes += size
        transfer.writing_s += now - began
        visible_s = max(now, self._wire.carry(ready_s, size))
        if number < self._layers - 1:
            if now - self._told_s > _TELL_EVERY_S:
                self._told_s = now
                self._send(Moving())
        else:
            self._told_s = now
            self._send(
                Sent(
                    transfer.request_id,
                    transfer.generation,
                    transfer.first_layer_s,
                    now,
                    visible_s,
                    transfer.sent_bytes,
                    transfer.writing_s,
                )
            )
