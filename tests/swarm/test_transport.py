"""A master's real port: who holds the token is heard, nobody else, and no crowd takes the master's files."""

from __future__ import annotations

import importlib
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from loadtest import clock
from loadtest.swarm import transport
from loadtest.swarm.doorman import guard
from loadtest.swarm.token import Token
from loadtest.swarm.transport import TIMES_CUT_OFF, knock, use_token

zmqrpc: Any = importlib.import_module("locust.rpc.zmqrpc")  # after ours, which keeps Locust from patching sockets
Message: Any = importlib.import_module("locust.rpc").Message
TOKEN = Token("the-secret-of-this-test")
HEARD_WITHIN_S = 20.0
SILENT_FOR_S = 0.4


class Master:
    """A socket as Locust's master makes it, guarded, and what it has heard."""

    def __init__(self) -> None:
        self.server = zmqrpc.Server("127.0.0.1", 0)
        self.heard: list[Any] = []
        self.clients: dict[str, object] = {}
        self.handle_message = self.reset_connection = lambda *_: None
        guard(self)  # type: ignore[arg-type]
        self._listener = gevent.spawn(self._listen)

    def _listen(self) -> None:
        while True:
            try:
                self.heard.append(self.server.recv_from_client()[1].data)
            except importlib.import_module("locust.exception").RPCReceiveError:
                continue

    def hears(self, data: object) -> bool:
        give_up = clock.monotonic_ns() + int(HEARD_WITHIN_S * 1e9)
        while data not in self.heard and clock.monotonic_ns() < give_up:
            gevent.sleep(0.01)
        return data in self.heard

    def close(self) -> None:
        self._listener.kill()
        end(self.server)


@pytest.fixture(autouse=True)
def _no_token_left() -> Iterator[None]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    use_token(None)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.fixture
def master() -> Iterator[Master]:
    use_token(TOKEN)
    made = Master()
    yield made
    made.close()


def say(port: int, token: Token | None, data: str) -> Any:
    """A worker's message, from a process with `token`."""
    use_token(token)
    client = zmqrpc.Client("127.0.0.1", port, data[:20])
    client.send(Message("client_ready", data, "w"))
    return client


def end(*sockets: Any) -> None:
    """Close them with the contexts that Locust makes for each, and does not close."""
    for one in sockets:
        one.socket.context.destroy(linger=0)


def test_who_holds_the_token_is_heard_and_nobody_else(master: Master) -> None:
    """Neither another token nor none at all gets a word through, however it is repeated."""
    port, other = master.server.port, Token("another-secret-of-16")
    strangers = [say(port, token, f"stranger {number}") for number, token in enumerate((None, other, None))]
    worker = say(port, TOKEN, "worker")
    assert master.hears("worker")
    gevent.sleep(SILENT_FOR_S / 10)
    assert ["worker"] == master.heard
    end(*strangers, worker)


def test_a_false_master_is_not_obeyed() -> None:
    """A worker with a token takes no word from a master that does not know it."""
    for token in (None, Token("another-secret-of-16")):
        use_token(token)
        false = Master()
        worker = say(false.server.port, TOKEN, "worker")
        assert not worker.socket.poll(int(SILENT_FOR_S * 1000 / 10))
        assert [] == false.heard
        end(worker)
        false.close()


def test_a_knock_tells_a_master_from_others() -> None:
    """With our token, or without any on both sides, it opens; a master of another token and any other server do not."""
    for theirs, ours, expected in (
        (TOKEN, TOKEN, True),
        (None, None, True),
        (TOKEN, None, False),
        (None, TOKEN, False),
    ):
        use_token(theirs)
        master = Master()
        use_token(ours)
        assert expected == knock("127.0.0.1", master.server.port)
        master.close()
    with socket.create_server(("127.0.0.1", 0)) as web:
        hanging_up = threading.Thread(target=lambda: [web.accept()[0].close() for _ in range(TIMES_CUT_OFF)])
        hanging_up.start()
        assert not knock("127.0.0.1", web.getsockname()[1])
        hanging_up.join()


def test_nothing_can_be_read_on_the_way(master: Master) -> None:
    """A relay between both sees neither the message nor the token."""
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as relay:
        client = say(relay.getsockname()[1], TOKEN, "a header with a secret")
        near, _ = relay.accept()
        with near, socket.create_connection(("127.0.0.1", master.server.port)) as far:
            near.setblocking(False)
            far.setblocking(False)
            while not master.heard:
                for source, sink in ((near, far), (far, near)):
                    try:
                        data = source.recv(65536)
                    except BlockingIOError:
                        continue
                    seen += data
                    sink.sendall(data)
                gevent.sleep(0.001)
        end(client)
    assert ["a header with a secret"] == master.heard
    assert b"CURVE" in seen
    for secret in (b"header", TOKEN.value.encode(), TOKEN.master.public, TOKEN.master.secret):
        assert secret not in seen


def test_a_message_beyond_the_limit_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ cuts the connection off before it makes room; the master hears the others."""
    monkeypatch.setattr(transport, "MOST_BYTES_TO_MASTER", 100_000)
    master = Master()
    large = say(master.server.port, None, "x" * 1_000_000)
    small = say(master.server.port, None, "small")
    assert master.hears("small")
    assert ["small"] == master.heard
    end(large, small)
    master.close()


def test_a_crowd_is_kept_out_until_it_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes beyond the limit is cut off at once; when the others had said nothing for a while, a worker gets in."""
    monkeypatch.setattr(transport, "HANDSHAKE_MS", 300)
    monkeypatch.setattr(transport, "MOST_CONNECTIONS", 20)
    master = Master()
    began = clock.monotonic_ns()
    crowd = [socket.create_connection(("127.0.0.1", master.server.port)) for _ in range(60)]
    give_up = clock.monotonic_ns() + int(HEARD_WITHIN_S * 1e9)
    at_once = 0
    while (gone := sum(was_cut_off(client) for client in crowd)) < len(crowd):
        assert clock.monotonic_ns() < give_up, f"{gone} were cut off"
        at_once = max(at_once, gone if clock.monotonic_ns() - began < 200_000_000 else 0)
        gevent.sleep(0.01)
    assert at_once <= 40  # the others had their time to say something
    worker = say(master.server.port, None, "worker")
    assert master.hears("worker")
    for client in crowd:
        client.close()
    end(worker)
    master.close()


def was_cut_off(client: socket.socket) -> bool:
    """The greeting of ZeroMQ may be there, and then nothing more."""
    client.setblocking(False)
    try:
        while client.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
