"""A stage without Locust's network: an environment whose runner keeps what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from locust.event import Events

from loadtest.swarm import protocol
from loadtest.swarm.protocol import Message


class Letter(msgspec.Struct, frozen=True):
    """A Locust message as listeners see it."""

    data: bytes
    node_id: str


class Runner:
    """Keeps listeners and what was sent."""

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[..., None]] = {}
        self.sent: list[tuple[str, bytes, str | None]] = []

    def register_message(self, kind: str, listener: Callable[..., None]) -> None:
        self.listeners[kind] = listener

    def send_message(self, kind: str, data: bytes, client: str | None = None) -> None:
        self.sent.append((kind, data, client))


class Stage:
    """An environment with that runner."""

    def __init__(self) -> None:
        self.runner = Runner()
        self.events = Events()

    def say(self, kind: str, message: msgspec.Struct, client: str = "a") -> None:
        """Deliver a message from `client`."""
        self.runner.listeners[kind](environment=self, msg=Letter(protocol.pack(message), client))

    def heard(self, kind: str, of: type[Message], client: str | None = None) -> list[Message]:
        """The messages of a kind that were sent (to `client`)."""
        return [
            protocol.unpack(data, of)
            for sent_kind, data, to in self.runner.sent
            if sent_kind == kind and client in (None, to)
        ]


def stage() -> Any:
    """A stage, passed where an Environment is wanted."""
    return Stage()
