"""What the face needs from a backend; the emulated server and the reference engine both provide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from loadtest.backends.server.meters import StepMeters


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


class Wish(msgspec.Struct, frozen=True):
    """What a client asked for beyond lengths; only an engine that computes tokens can grant it."""

    temperature: float = 0.0  # greedy
    top_p: float = 1.0
    top_k: int = 0  # all
    seed: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()


class Listener(Protocol):
    """Receives a request's tokens, in order, on the event loop."""

    def token(self, time_s: float, finished: bool) -> None:
        """One token, produced at `time_s` on the engine's clock."""

    def spans(self, spans: Spans) -> None:
        """Called once, just before the last token."""


class TextListener(Listener, Protocol):
    """Receives tokens that have a text, and may learn that no more will come."""

    def text(self, time_s: float, text: str, reason: str, token: int) -> None:
        """One token and its id; `reason` is the finish reason with the last one, else empty."""

    def fail(self, message: str) -> None:
        """The engine cannot finish this request."""


Page = Callable[[Mapping[str, str]], tuple[int, object]]  # query -> status, JSON document


class Served(Protocol):
    """A model being served."""

    @property
    def model(self) -> str: ...

    @property
    def max_model_len(self) -> int: ...

    def now(self) -> float:
        """Seconds on the clock of the token times."""

    def abort(self, request_id: int) -> None:
        """Forget a request whose client went away and free its memory; harmless after the last token."""

    def load(self) -> Load: ...


class Engine(Served, Protocol):
    """One that needs to know no more than lengths."""

    def submit(self, prompt_tokens: int, output_tokens: int, listener: Listener) -> int:
        """Queue a request and return its id; raises Refused."""


@runtime_checkable
class TextEngine(Served, Protocol):
    """One that reads prompts and writes text."""

    @property
    def pages(self) -> Mapping[str, Page]:
        """What it answers GET requests with, by path; replaces the face's own page."""

    @property
    def steps(self) -> StepMeters:
        """Its iterations, for the metrics page."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text prompt."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation (role and content of each message); raises Refused."""

    def generate(self, prompt: list[int], output_tokens: int, wish: Wish, listener: TextListener) -> int:
        """Queue a request and return its id; raises Refused."""
