"""llama.cpp's own `/completion`: server-sent events with `content`, a running token count, and `stop` at the end.

`tokens_predicted` counts tokens that show no text too; there is no [DONE]. Recorded: tests/replay/transcripts.
"""

from __future__ import annotations

import msgspec

from loadtest.replay.dialects.dialect import Ask, Dialect, Piece
from loadtest.replay.dialects.openai import read_error

_FINISH = {"limit": "length", "eos": "stop", "word": "stop"}


class _Timings(msgspec.Struct):
    cache_n: int | None = None


class _Event(msgspec.Struct):
    content: str | None = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
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
    piece = Piece(text=event.content or "")
    piece.token = piece.answer = bool(piece.text)
    if event.stop:
        piece.done = True
        piece.finish_reason = _FINISH.get(event.stop_type or "", "stop")
    if event.tokens_predicted is not None:
        piece.completion_tokens = event.tokens_predicted
    if event.tokens_evaluated is not None:
        piece.prompt_tokens = event.tokens_evaluated
    if event.timings is not None:
        piece.cached_tokens = event.timings.cache_n or 0
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
    lengths=("n_predict",),
    optional=("ignore_eos", "temperature"),
)
