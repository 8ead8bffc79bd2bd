"""Servers with one, two or four workers, each of which serves one connection until it ends: gunicorn's default."""

from __future__ import annotations

import contextlib
import socket
import threading

import numpy as np
import pytest

from loadtest import clock
from metrics.latency import ttft_s
from tests.replay.player import LAST_CHUNK, chunk
from tests.replay.replaying import replay, schedule
from tests.replay.streams import DONE, HEAD, completion_event, usage_event

SERVICE_S = 0.02
COUNT = 12
PATIENCE_S = 2.0  # with a connection that says nothing
ANSWER = HEAD + b"".join(
    chunk(part) for part in (completion_event(" a"), completion_event("", "length"), usage_event(1), DONE)
)


class FewWorkers:
    """`closes` says whether an answer ends its connection."""

    def __init__(self, workers: int, *, closes: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._closes = closes
        self.port: int = self._listener.getsockname()[1]
        for _ in range(workers):
            threading.Thread(target=self._work, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _work(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(PATIENCE_S)
                while self._answer(connection) and not self._closes:
                    pass

    def _answer(self, connection: socket.socket) -> bool:
        data = b""
        while b"}" not in data.partition(b"\r\n\r\n")[2]:
            piece = connection.recv(65536)
            if not piece:
                return False
            data += piece
        clock.sleep(SERVICE_S)
        head = ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1) if self._closes else ANSWER
        connection.sendall(head + LAST_CHUNK)
        return True


@pytest.fixture(params=[1, 2, 4])
def workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "keeps"])
def test_no_worker_waits_for_a_request_that_comes_later(workers: int, closes: bool) -> None:
    """12 requests 100 ms apart: each is answered in its own time, as a client would see that connects for each.

    A connection opened ahead would hold a worker for two seconds, and all others behind it.
    """
    server = FewWorkers(workers, closes=closes)
    try:
        done = replay(f"http://127.0.0.1:{server.port}", schedule([0.1 * n for n in range(COUNT)], max_tokens=1))
    finally:
        server.close()
    assert ["ok"] * COUNT == [done.outcome(row) for row in range(COUNT)]
    assert np.median(ttft_s(done.rows)) < SERVICE_S + 0.05
    assert ttft_s(done.rows).max() < PATIENCE_S / 2
    stats = done.journal.stats
    assert stats is not None
    assert (COUNT if closes else 1) <= stats.connections_opened
    assert stats.connections_idle_most <= (2 if closes else 3)
