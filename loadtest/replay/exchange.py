"""One planned request on its way: where it is, on which connection, what came back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.replay.answer import Answer
    from loadtest.replay.bodies import Request
    from loadtest.replay.connection import Connection
    from loadtest.replay.endpoint import Endpoint


class Exchange:
    """A request from its instant in the schedule to its record; times are monotonic ns, 0 = not yet."""

    __slots__ = (
        "answer",
        "attempts",
        "connect_ns",
        "connection",
        "hop",
        "index",
        "queue_ns",
        "reconnects",
        "redirects",
        "request",
        "sent_ns",
    )

    def __init__(self, index: int, request: Request, answer: Answer, queue_ns: int = 0) -> None:
        self.index = index  # row of the worker's shard
        self.request = request
        self.answer = answer
        self.hop: Endpoint | None = None  # where a redirect led
        self.connection: Connection | None = None
        self.sent_ns = 0
        self.connect_ns = -1  # connection set-up, when this request was the connection's first
        self.queue_ns = queue_ns  # waited for a slot under --max-in-flight
        self.attempts = self.reconnects = self.redirects = 0

    @property
    def nothing_came_back(self) -> bool:
        return not self.answer.user_ns
