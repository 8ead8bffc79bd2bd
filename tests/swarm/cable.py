"""A cable for tests, run as a program: `python -m tests.swarm.cable LEFT RIGHT '{"delay_ms": 40, "loss": 0.02}'`.

It makes two TUN devices of these names and carries every packet from one to the other, late or never: what netem does
in a kernel that has it. The devices stay ours when they are moved into other namespaces, and go with us.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
from collections import deque

import numpy as np

from loadtest import clock
from loadtest.supervise import announce_ready, die_with_parent

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_BYTES = 65536


def tun(name: str) -> int:
    """A new TUN device; OSError where that is not allowed."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
    return file


def carry(ends: tuple[int, int], delay_ns: int, loss: float) -> None:
    """For ever."""
    rng = np.random.default_rng(0)
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    under_way: deque[tuple[int, int, bytes]] = deque()  # due, to, packet: all are late by the same, so in order
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    while True:
        wait_ms = max(0.0, (under_way[0][0] - clock.monotonic_ns()) / 1e6) if under_way else None
        for end, _ in poll.poll(wait_ms):
            if rng.random() >= loss:
                under_way.append((clock.monotonic_ns() + delay_ns, other[end], packet(end)))
            else:
                packet(end)
        while under_way and under_way[0][0] <= clock.monotonic_ns():
            _, to, data = under_way.popleft()
            try:
                os.write(to, data)
            except OSError:  # that end is down: nobody hears of the packet
                continue


def packet(end: int) -> bytes:
    """The next one; empty while the device is down."""
    try:
        return os.read(end, PACKET_BYTES)
    except OSError:
        return b""


def main(left: str, right: str, way: dict[str, float]) -> None:
    ends = (tun(left), tun(right))
    announce_ready()
    carry(ends, int(way["delay_ms"] * 1e6), way["loss"])


if __name__ == "__main__":
    die_with_parent()
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
