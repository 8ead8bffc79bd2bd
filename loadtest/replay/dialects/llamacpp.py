"""llama.cpp's own `/completion`: server-sent events with `content`, a running token count, and `stop` at the end.

`tokens_predicted` counts tokens that show no text too; there is no [DONE]. Recorded: tests/replay/transcripts.
"""

from __future__ import annotations

import msgspec

from loadtest.replay.dialects.dialect import Ask, Dialect, Piece
from loadtest.replay.dialects.openai import Timings, read_error, with_timings
from loadtest.replay.dialects.strange import below_top
from loadtest.replay.dialects.usage import Usage

_FINISH = {"limit": "length", "eos": "stop", "word": "stop"}


class _Event(msgspec.Struct):
    content: str | None = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    tokens: list[msgspec.Raw] | None = None
    timings: Timings | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Event).decode


def read(data: bytes) -> Piece:
    """Read one event's JSON; never raises."""
    try:
        event = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_error(data)
    if event.error is not None:
        return read_error(data)
    piece = Piece(text=event.content or "", tokens=len(event.tokens or ()))
    piece.token = piece.answer = bool(piece.text)
    piece.blank = not piece.text
    if event.stop:
        piece.done = True
        piece.finish_reason = _FINISH.get(event.stop_type or "", "stop")
    # `tokens_cached` is no hit count: it is how many tokens, prompt and answer, the cache holds at the end.
    piece.usage = Usage.of(event.tokens_predicted, event.tokens_evaluated)
    if event.timings is not None:
        piece.usage = with_timings(piece.usage, event.timings)
    return piece


def _fields(ask: Ask) -> dict[str, object]:
    return {
        "prompt": ask.prompt,
        "n_predict": ask.max_tokens,
        "stream": ask.stream,
        "ignore_eos": True,
        "temperature": 0.0,
    }


COMPLETION = Dialect(
    "/completion",
    _fields,
    read,
    models_path="/v1/models",
    takes_ids=True,
    strange=below_top,
    lengths=("n_predict",),
    optional=("ignore_eos", "temperature"),
)
