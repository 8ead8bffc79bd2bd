"""Kernel stamps on the monotonic clock, and when they are not to be trusted."""

from __future__ import annotations

import socket
import struct
import sys
from array import array

import pytest

from loadtest import clock
from loadtest.replay import stamps
from loadtest.replay.stamps import NO_STAMP, StampClock


def kernel(*realtime_ns: int) -> bytearray:
    return bytearray(b"".join(struct.pack("@qq", *divmod(ns, 1_000_000_000)) if ns else NO_STAMP for ns in realtime_ns))


@pytest.fixture
def stamp_clock(monkeypatch: pytest.MonkeyPatch) -> StampClock:
    """A stamp clock whose wall clock is exactly 1,000 s ahead of the monotonic one."""
    monkeypatch.setattr(clock, "realtime_minus_monotonic_ns", lambda: 1_000_000_000_000)
    made = StampClock()
    made.close()
    return made


def test_a_read_takes_the_kernels_stamp(stamp_clock: StampClock) -> None:
    """The stamp is mapped by the offset; the lag is how much later user space read it."""
    times = stamp_clock.resolve(array("q", [5_000_000]), kernel(1_000_000_000_000 + 3_000_000), 1)
    assert ([3_000_000], [2_000_000], False) == (times.ns.tolist(), times.lag_ns.tolist(), times.stepped)


def test_without_a_kernel_stamp_the_user_stamp_serves(stamp_clock: StampClock) -> None:
    """A read that came unstamped keeps the user stamp and says so by a lag of -1."""
    times = stamp_clock.resolve(array("q", [5_000_000]), kernel(0), 1)
    assert ([5_000_000], [-1]) == (times.ns.tolist(), times.lag_ns.tolist())


def test_a_stamp_is_never_later_than_its_read(stamp_clock: StampClock) -> None:
    """A few microseconds ahead is the offset's own error; far ahead is a clock that cannot be trusted."""
    slightly, far = 1_000_000_000_000 + 5_010_000, 1_000_000_000_000 + 900_000_000
    times = stamp_clock.resolve(array("q", [5_000_000, 6_000_000]), kernel(slightly, far), 1)
    assert ([5_000_000, 6_000_000], [0, -1]) == (times.ns.tolist(), times.lag_ns.tolist())


def test_a_step_of_the_wall_clock_switches_to_user_stamps(
    stamp_clock: StampClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests under way when the wall clock stepped use user stamps and are flagged; later ones do not."""
    monkeypatch.setattr(clock, "realtime_minus_monotonic_ns", lambda: 1_000_000_200_000)
    stamp_clock.sample()
    assert 1 == stamp_clock.steps
    during = stamp_clock.resolve(array("q", [5_000_000]), kernel(1_000_000_000_000 + 3_000_000), 1)
    assert ([5_000_000], [-1], True) == (during.ns.tolist(), during.lag_ns.tolist(), during.stepped)
    now = clock.monotonic_ns()
    after = stamp_clock.resolve(array("q", [now + 9_000]), kernel(1_000_000_200_000 + now + 4_000), now + 1)
    assert ([now + 4_000], [5_000], False) == (after.ns.tolist(), after.lag_ns.tolist(), after.stepped)


@pytest.mark.skipif(sys.platform != "linux", reason="SO_TIMESTAMPNS is Linux's")
def test_the_kernel_stamps_tcp_reads() -> None:
    """On this machine a TCP read carries a stamp between the send and the read."""
    real = StampClock()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server:
        assert stamps.enable(client)
        for _ in range(200):  # the first reads after the first use may come unstamped
            sent = clock.monotonic_ns()
            server.send(b"x")
            _, ancillary, _, _ = client.recvmsg(16, stamps.ANCILLARY_BYTES)
            read = clock.monotonic_ns()
            times = real.resolve(array("q", [read]), bytearray(ancillary[0][2] if ancillary else NO_STAMP), 1)
            if times.lag_ns[0] >= 0:
                break
            clock.sleep(0.005)
    real.close()
    assert times.lag_ns[0] >= 0
    assert sent - stamps.STEP_NS <= times.ns[0] <= read
