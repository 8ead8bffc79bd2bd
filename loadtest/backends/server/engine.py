"""What the face needs from a backend; the emulated server and the reference engine both provide it."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Refused(Exception):  # not a GoodputError: the face answers with it, no user of ours sees it
    """The engine does not take a request: status 400 when it never could, 429 when it may later."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


class Spans(NamedTuple):
    """Where a finished request spent its time, in seconds; NaN for what it never did."""

    queue_s: float
    prefill_s: float
    transfer_s: float
    decode_s: float


class Load(NamedTuple):
    """What the engine holds at this instant; counters since its start."""

    running: int
    waiting: int
    kv_usage: float  # share of KV blocks in use, 0 to 1
    preemptions: int
    transferred_bytes: int


class Listener(Protocol):
    """Receives a request's tokens, in order, on the event loop."""

    def token(self, time_s: float, finished: bool) -> None:
        """One token, produced at `time_s` on the engine's clock."""

    def spans(self, spans: Spans) -> None:
        """Called once, just before the last token."""


class Engine(Protocol):
    """A model being served."""

    @property
    def model(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    def now(self) -> float:
        """Seconds on the clock of the token times."""

    def submit(self, prompt_tokens: int, output_tokens: int, listener: Listener) -> int:
        """Queue a request and return its id; raises Refused."""

    def abort(self, request_id: int) -> None:
        """Forget a request whose client went away and free its memory; harmless after the last token."""

    def load(self) -> Load: ...
