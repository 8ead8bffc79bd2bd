"""Locust's sockets with our limits: sealed by the token where there is one, and never more than they can carry.

Locust makes them itself, at its start and again when a network was gone, so the options are set where each is made.
"""

from __future__ import annotations

import _socket
import contextlib
from collections.abc import Callable
from typing import Any

import gevent
import zmq.green as zmq
from locust.rpc import zmqrpc
from locust.runners import MasterRunner
from zmq.utils.monitor import recv_monitor_message

from loadtest import clock
from loadtest.replay.limits import raise_fd_limit
from loadtest.swarm.token import Token

# The largest message of ours: to a master 256 KiB of a journal, to a worker its part of the schedule.
MOST_BYTES_TO_MASTER = 8 * 2**20
MOST_BYTES_TO_WORKER = 512 * 2**20
HANDSHAKE_MS = 5_000  # who has not proved the token by then is cut off
MOST_CONNECTIONS = 1_000
FILES_SHARE = 4  # a master's connections take at most this part of the files it may open
_CAME, _WENT = zmq.EVENT_ACCEPTED, zmq.EVENT_DISCONNECTED
_OTHERS = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
TIMES_CUT_OFF = 3  # a busy master may lose one connection, one of another token cuts all of them
POLL_MS = 50

_token: Token | None = None
_make: Callable[..., None] = zmqrpc.BaseSocket.__init__


def use_token(token: Token | None) -> None:
    """Seal every socket that this process makes from now on, or none."""
    global _token
    _token = token


def _make_with_limits(self: zmqrpc.BaseSocket, kind: int, ipv4_only: bool) -> None:
    _make(self, kind, ipv4_only)
    socket, master = self.socket, kind == zmq.ROUTER
    socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES_TO_MASTER if master else MOST_BYTES_TO_WORKER)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    if _token is None:
        return
    own = _token.master if master else _token.worker
    socket.curve_publickey, socket.curve_secretkey = own
    if master:
        socket.curve_server = True
    else:
        socket.curve_serverkey = _token.master.public


zmqrpc.BaseSocket.__init__ = _make_with_limits  # type: ignore[method-assign]


def knock(host: str, port: int) -> bool:
    """Whether what listens there is a master that holds our token (or, as we, none)."""
    client: Any = zmqrpc.Client(host, port, f"knock {clock.monotonic_ns()}")
    monitor = client.socket.get_monitor_socket(zmq.EVENT_ALL)
    give_up_ns, cut_off = clock.monotonic_ns() + HANDSHAKE_MS * 1_000_000, 0
    try:
        while clock.monotonic_ns() < give_up_ns and cut_off < TIMES_CUT_OFF:
            if not monitor.poll(POLL_MS):
                continue
            event = recv_monitor_message(monitor)["event"]
            if event & (zmq.EVENT_HANDSHAKE_SUCCEEDED | _OTHERS):
                return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)
            cut_off += event == zmq.EVENT_DISCONNECTED
        return False
    finally:
        client.socket.context.destroy(linger=0)


class Door:
    """Counts the connections at a master's port and shuts those beyond a limit, so that some files stay free."""

    def __init__(self, runner: MasterRunner) -> None:
        server: Any = runner.server
        self._port: int = server.port
        self._most = min(MOST_CONNECTIONS, raise_fd_limit() // FILES_SHARE)
        self._open: set[int] = set()
        self._monitor: Any = server.socket.get_monitor_socket(_CAME | _WENT | zmq.EVENT_MONITOR_STOPPED)
        gevent.spawn(self._watch)

    def _watch(self) -> None:
        while True:
            try:
                event = recv_monitor_message(self._monitor)
            except zmq.ZMQError:
                return  # the socket was closed
            if event["event"] == _CAME:
                self._came(event["value"])
            elif event["event"] == _WENT:
                self._open.discard(event["value"])
            else:
                return

    def _came(self, number: int) -> None:
        """Libzmq tells the file's number, and closes it itself once it sees the end of the stream."""
        self._open.add(number)
        if len(self._open) <= self._most:
            return
        with contextlib.suppress(OSError):  # it has gone by itself
            connection = _socket.socket(fileno=number)
            try:
                if connection.getsockname()[1] == self._port:  # and the number is nobody else's by now
                    connection.shutdown(_socket.SHUT_RDWR)
            finally:
                connection.detach()
