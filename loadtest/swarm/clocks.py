"""How far the coordinator's monotonic clock is ahead of ours, from short messages there and back.

The answer that took the least time bounds the error best: half of its way there and back, in practice 0.1 to
0.4 ms in one network. Only the common start needs it; every latency is taken from stamps of one process.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent

from loadtest import clock
from loadtest.swarm.protocol import Ping, Pong

PINGS = 20
PING_EVERY_S = 0.01
ANSWER_LIMIT_S = 10.0


class ClockOffset:
    """`offset_ns` is the coordinator's clock minus ours; `rtt_ns` the shortest way there and back, 0 before any."""

    def __init__(self, send: Callable[[Ping], None]) -> None:
        self._send = send
        self.offset_ns = self.rtt_ns = 0

    def measure(self) -> None:
        """Ask several times; TimeoutError when nobody answers. Blocks this greenlet, not the hub."""
        self.offset_ns = self.rtt_ns = 0
        give_up_ns = clock.monotonic_ns() + int(ANSWER_LIMIT_S * 1e9)
        for _ in range(PINGS):
            self._send(Ping(clock.monotonic_ns()))
            gevent.sleep(PING_EVERY_S)
        while not self.rtt_ns:
            if clock.monotonic_ns() > give_up_ns:
                raise TimeoutError("the coordinator did not tell its clock")
            gevent.sleep(PING_EVERY_S)

    def heard(self, pong: Pong) -> None:
        """Take an answer into account."""
        rtt_ns = max(clock.monotonic_ns() - pong.sent_ns, 1)
        if not self.rtt_ns or rtt_ns < self.rtt_ns:
            self.rtt_ns = rtt_ns
            self.offset_ns = pong.coordinator_ns - pong.sent_ns - rtt_ns // 2
