"""Ollama's own `/api/generate` and `/api/chat`: one JSON document a line, the last one with `done` and the counts.

Ollama cannot be told to ignore an end-of-sequence token, so answers may be shorter than asked, and takes no token ids.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from loadtest.replay.dialects.dialect import Ask, Dialect, Piece
from loadtest.replay.dialects.openai import read_error
from loadtest.replay.dialects.strange import below_top
from loadtest.replay.dialects.usage import Usage


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
    response: str | None = None
    thinking: str | None = None
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    eval_count: int | None = None
    prompt_eval_count: int | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Line).decode


def read(data: bytes) -> Piece:
    """Read one line's JSON; never raises."""
    try:
        line = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return read_error(data)
    if line.error is not None:
        return read_error(data)
    message = line.message or _Message(line.response, line.thinking)
    piece = Piece(text=message.content or "", reasoning=message.thinking or "")
    piece.answer = bool(piece.text or message.tool_calls)
    piece.token = piece.answer or bool(piece.reasoning)
    piece.blank = not piece.token
    if message.tool_calls:
        piece.call = "".join(bytes(call).decode("utf-8", "replace") for call in message.tool_calls)
    if line.done:
        piece.done = True
        piece.finish_reason = line.done_reason or "stop"
    piece.usage = Usage.of(line.eval_count, line.prompt_eval_count)
    return piece


def _common(ask: Ask) -> dict[str, object]:
    return {
        "model": ask.model,
        "stream": ask.stream,
        "options": {"num_predict": ask.max_tokens, "temperature": 0.0},
    }


def _generate(ask: Ask) -> dict[str, object]:
    return {"prompt": ask.prompt, "raw": True, **_common(ask)}  # raw: no template around the planned prompt


def _chat(ask: Ask) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": ask.prompt}], **_common(ask)}


def _dialect(path: str, fields: Callable[[Ask], dict[str, object]]) -> Dialect:
    return Dialect(
        path,
        fields,
        read,
        models_path="/api/tags",
        json_lines=True,
        strange=below_top,
        lengths=("options.num_predict",),
        optional=("options.temperature",),
    )


GENERATE = _dialect("/api/generate", _generate)
CHAT = _dialect("/api/chat", _chat)
