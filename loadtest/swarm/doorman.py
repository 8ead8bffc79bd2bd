"""At the master's port: what cannot be read is turned away, and the others are heard on.

Locust's listener ends with the first message that it cannot read, and the master is deaf from then on. Without a token
(`loadtest.swarm.token`) only this machine reaches the port, but a neighbour's Locust of another version may still call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from locust.exception import RPCError, RPCReceiveError
from locust.runners import MasterRunner

from loadtest.swarm.transport import Door

_OF_WORKERS = ("stats", "logs", "exception", "heartbeat")
_log = logging.getLogger("goodput")


def guard(runner: MasterRunner) -> None:
    """Make a master's runner outlive any message; call before it has turned to its port for the first time."""
    handle: Callable[[str, Any], None] = runner.handle_message
    reset: Callable[[], None] = runner.reset_connection

    def handle_message(client_id: str, message: Any) -> None:
        if message.type in _OF_WORKERS and message.node_id not in runner.clients:
            return  # Locust's own handlers would print a traceback
        try:
            handle(client_id, message)
        except Exception as error:
            _log.debug("a message of %.60s was not understood: %r", client_id, error)

    def reset_connection() -> None:
        reset()  # makes another socket
        _guard_socket(runner)

    runner.handle_message = handle_message  # type: ignore[method-assign, assignment]
    runner.reset_connection = reset_connection  # type: ignore[method-assign]
    _guard_socket(runner)


def _guard_socket(runner: MasterRunner) -> None:
    receive: Callable[[], Any] = runner.server.recv_from_client

    def recv_from_client() -> Any:
        try:
            return receive()
        except (RPCError, RPCReceiveError):
            raise
        except Exception as error:  # whatever a decoder makes of bytes that nobody meant for it
            raise RPCReceiveError(f"unreadable: {error!r}") from error

    runner.server.recv_from_client = recv_from_client  # type: ignore[method-assign]
    Door(runner)


def polite(listener: Callable[[Any], None]) -> Callable[..., None]:
    """A listener that is not called with what it cannot read: of another version of ours, or of nobody of ours."""

    warned = False

    def listen(msg: Any, **_: object) -> None:
        nonlocal warned
        try:
            if isinstance(msg.data, bytes):
                listener(msg)
        except msgspec.DecodeError as error:
            if not warned:  # once: nobody else's messages shall fill our log
                _log.warning("a message cannot be read; is a worker of another version of goodput? %.200s", error)
            warned = True

    return listen
