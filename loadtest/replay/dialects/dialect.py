"""What every dialect gives: how to ask, where, and how to read one event of the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from loadtest.replay.dialects.strange import below_choices
from loadtest.replay.dialects.usage import Usage


class Spans(NamedTuple):
    """Where a server says a request spent its time, in seconds; NaN for what it does not say."""

    queue_s: float
    prefill_s: float
    transfer_s: float
    decode_s: float


@dataclass(slots=True)
class Piece:
    """What one event says. `text` and `reasoning` are joined over the event's choices."""

    token: bool = False  # it carries generated output of any channel
    answer: bool = False  # it carries output other than reasoning
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    finished: tuple[int, ...] = ()  # the choices whose finish reason it holds, where the dialect has choices
    done: bool = False  # the dialect's own end mark
    usage: Usage | None = None
    tokens: int = 0  # that it is known to carry, by token ids or logprobs; 0 where nothing tells
    call: str = ""  # names and arguments of its tool calls
    blank: bool = False  # a place for generated output with nothing in it: a special token, say
    spans: Spans | None = None
    error: str | None = None
    malformed: bool = False


class Ask(NamedTuple):
    """What a request says, with marks where its prompt and its length will stand."""

    model: str
    prompt: str
    max_tokens: str
    stream: bool


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: paths below the target's base path, the body of a request, the meaning of an event."""

    path: str
    fields: Callable[[Ask], dict[str, object]]
    read: Callable[[bytes], Piece]  # never raises: what cannot be read comes back as `malformed`
    base_path: str = ""  # where the target names none
    models_path: str = "/models"
    takes_ids: bool = False  # a prompt may be a list of token ids
    json_lines: bool = False  # one JSON document a line instead of server-sent events
    strange: Callable[[bytes], dict[str, str]] = below_choices  # text in places unknown to `read`, by its path
    lengths: tuple[str, ...] = ()  # names of the field with the output length; the first is the one in `fields`
    optional: tuple[str, ...] = ()  # fields a strict server may refuse, the ones most worth having first

    def piece(self, data: bytes) -> Piece:
        """`read` of bytes that may be anything: what it trips over is malformed, and costs nobody else an answer."""
        try:
            return self.read(data)
        except Exception:
            return Piece(malformed=True)

    def strings(self, data: bytes) -> dict[str, str]:
        """`strange`, likewise."""
        try:
            return self.strange(data)
        except Exception:
            return {}
