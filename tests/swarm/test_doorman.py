"""A master that outlives what anybody sends to its port."""

from __future__ import annotations

import importlib
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.swarm import doorman, protocol
from loadtest.swarm.doorman import guard, polite
from loadtest.swarm.protocol import Ping

locusts: Any = importlib.import_module("locust.exception")  # after ours, which keeps it from patching sockets


@pytest.fixture(autouse=True)
def _no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no socket here whose connections could be counted."""
    monkeypatch.setattr(doorman, "Door", lambda _: None)


def guarded(receive: Any, handle: Any, reset: Any = None) -> Any:
    """A runner of which only those matter."""
    runner: Any = SimpleNamespace(
        server=SimpleNamespace(recv_from_client=receive),
        handle_message=handle,
        reset_connection=reset,
        clients={"worker"},
    )
    guard(runner)
    return runner


def message(kind: str, data: object, client: str) -> Any:
    """As Locust hands it on."""
    return SimpleNamespace(type=kind, data=data, node_id=client)


def raising(error: Exception) -> Any:
    def call(*_: object) -> None:
        raise error

    return call


@pytest.mark.parametrize("error", [ValueError("no msgpack"), TypeError("two parts"), IndexError("one part")])
def test_what_no_decoder_takes_is_one_bad_message(error: Exception) -> None:
    """Locust goes on after an RPCReceiveError, and after no other."""
    with pytest.raises(locusts.RPCReceiveError, match=str(error)) as caught:
        guarded(raising(error), None).server.recv_from_client()
    assert caught.value.addr is None


def test_the_socket_after_a_broken_one_is_guarded_too() -> None:
    """Locust makes another when its network fails."""

    def reset() -> None:
        runner.server = SimpleNamespace(recv_from_client=raising(TypeError("two parts")))

    runner = guarded(None, None, reset)
    runner.reset_connection()
    with pytest.raises(locusts.RPCReceiveError, match="two parts"):
        runner.server.recv_from_client()


@pytest.mark.parametrize("error", [locusts.RPCError("broken"), locusts.RPCReceiveError("torn", addr="a worker")])
def test_locusts_own_errors_stay_what_they_are(error: Exception) -> None:
    """It resets the connection of the one it knows, or the server."""
    with pytest.raises(type(error)) as caught:
        guarded(raising(error), None).server.recv_from_client()
    assert error is caught.value


def test_a_message_that_cannot_be_handled_is_dropped() -> None:
    """And the next one is handled; statistics of somebody unknown are not even looked at."""
    seen: list[str] = []

    def handle(client: str, _: object) -> None:
        if client == "stranger":
            raise KeyError("state")
        seen.append(client)

    runner = guarded(None, handle)
    for client, kind in (("stranger", "own"), ("worker", "own"), ("other", "stats"), ("worker", "stats")):
        runner.handle_message(client, message(kind, None, client))
    assert ["worker", "worker"] == seen


def test_only_what_can_be_read_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Text, nothing, and the structs of another version are no message; the last is worth a word."""
    heard: list[Ping] = []
    listen = polite(lambda msg: heard.append(protocol.unpack(msg.data, Ping)))
    with caplog.at_level(logging.WARNING):
        for data in (None, "text", {"a": 1}, protocol.pack(Ping(7))):
            listen(environment=None, msg=message("goodput.ping", data, "w"))
        assert [Ping(7)] == heard
        assert not caplog.records
        listen(environment=None, msg=message("goodput.ping", b"\x80", "w"))
    assert "another version" in caplog.text
    assert [Ping(7)] == heard
