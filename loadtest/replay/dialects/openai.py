"""OpenAI chat and text completions, with the dialects of vLLM, SGLang, llama.cpp, TGI and gateways.

A token event has non-empty content, text, reasoning or tool-call name/arguments; white space is not empty
(docs/definitions.md). The typed decoder is the quick way; anything it refuses is read again without types and
as Python's own reader takes it (NaN, half a surrogate pair, a byte that is no UTF-8), because what is wrong with
one field must not cost the tokens beside it.
"""

from __future__ import annotations

import json
from math import nan
from typing import Any

import msgspec

from loadtest.replay.dialects import asking
from loadtest.replay.dialects.dialect import Dialect, Piece, Spans

DONE = b"[DONE]"
# How servers say that they gave an answer up: vLLM and SGLang, OpenRouter, DeepSeek.
_BROKEN_OFF = {"abort", "aborted", "error", "cancelled", "canceled", "insufficient_system_resource"}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Details(msgspec.Struct):
    reasoning_tokens: int | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens_details: _Details | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: msgspec.Raw | None = None
    index: int | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's, and our own server's, which adds queue and transfer."""

    queue_ms: float | None = None
    prompt_ms: float | None = None
    transfer_ms: float | None = None
    predicted_ms: float | None = None


class _Metrics(msgspec.Struct):
    """vLLM's, with --enable-per-request-metrics: TTFT from the end of the queue, generation from there on."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    metrics: _Metrics | None = None
    error: msgspec.Raw | None = None
    object: str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


def read(data: bytes) -> Piece:
    """Read one event's JSON; never raises: what cannot be read comes back as `malformed`."""
    try:
        chunk = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_untyped(data)
    silent = chunk.choices is None and chunk.usage is None and chunk.timings is None
    if silent or chunk.error is not None or chunk.object == "error":
        return _read_untyped(data)
    piece = Piece()
    for place, choice in enumerate(chunk.choices or ()):
        _add_choice(piece, choice, place)
    if chunk.usage is not None:
        _add_usage(piece, chunk.usage)
    if chunk.timings is not None:
        told = chunk.timings
        piece.spans = _spans(told.queue_ms, told.prompt_ms, told.transfer_ms, told.predicted_ms)
    elif chunk.metrics is not None:
        seen = chunk.metrics
        piece.spans = _spans(seen.queue_time_ms, seen.time_to_first_token_ms, None, seen.generation_time_ms)
    return piece


def _spans(*known: float | None) -> Spans:
    return Spans(*(nan if ms is None else ms / 1e3 for ms in known))


def _add_choice(piece: Piece, choice: _Choice, place: int) -> None:
    if choice.finish_reason:
        piece.finish_reason = choice.finish_reason
        piece.finished = (*piece.finished, place if choice.index is None else choice.index)
        if choice.finish_reason in _BROKEN_OFF:
            piece.error = f"the server gave the answer up: finish_reason {choice.finish_reason}"
    if choice.error is not None:  # OpenRouter's place for it
        piece.error = error_text({"error": msgspec.json.decode(choice.error)}) or piece.error
    if choice.usage is not None:
        _add_usage(piece, choice.usage)
    if choice.text:
        piece.text += choice.text
    delta = choice.delta or choice.message
    if delta is not None:
        for text in (delta.content, delta.refusal):
            piece.text += text or ""
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            piece.reasoning += thought
        calls = [call.function for call in delta.tool_calls or ()]
        if any(f is not None and (f.name or f.arguments) for f in [*calls, delta.function_call]):
            piece.answer = True
    piece.answer = piece.answer or bool(piece.text)
    piece.token = piece.answer or bool(piece.reasoning)


def _add_usage(piece: Piece, usage: _Usage) -> None:
    if usage.completion_tokens is not None:
        piece.completion_tokens = usage.completion_tokens
    if usage.prompt_tokens is not None:
        piece.prompt_tokens = usage.prompt_tokens
    if usage.completion_tokens_details is not None:
        piece.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens or 0
    if usage.prompt_tokens_details is not None:
        piece.cached_tokens = usage.prompt_tokens_details.cached_tokens or 0


def _read_untyped(data: bytes) -> Piece:
    """The tolerant reading: keep every field that has the type it should have."""
    try:
        document = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return Piece(malformed=True)
    if not isinstance(document, dict):
        return Piece(malformed=document is not None)  # llama.cpp was recorded sending `data: null`
    error = error_text(document)
    if error is not None:
        return Piece(error=error)
    piece = Piece()
    choices = document.get("choices")
    for place, choice in enumerate(choices if isinstance(choices, list) else ()):
        if isinstance(choice, dict):
            _add_choice(piece, _coerce_choice(choice), place)
    usage = document.get("usage")
    if isinstance(usage, dict):
        _add_usage(piece, _coerce_usage(usage))
    return piece


def read_error(data: bytes) -> Piece:
    """What a dialect's own decoder refused: an error object in any shape, else malformed."""
    piece = _read_untyped(data)
    return piece if piece.error is not None else Piece(malformed=True)


def _coerce_usage(usage: dict[str, Any]) -> _Usage:
    def detail(group: str, name: str) -> int | None:
        details = usage.get(group)
        return _integer(details.get(name)) if isinstance(details, dict) else None

    return _Usage(
        _integer(usage.get("completion_tokens")),
        _integer(usage.get("prompt_tokens")),
        _Details(detail("completion_tokens_details", "reasoning_tokens")),
        _PromptDetails(detail("prompt_tokens_details", "cached_tokens")),
    )


def _coerce_choice(choice: dict[str, Any]) -> _Choice:
    raw = choice.get("delta") or choice.get("message")
    delta = None
    if isinstance(raw, dict):
        calls = raw.get("tool_calls")
        delta = _Delta(
            _string(raw.get("content")),
            _string(raw.get("reasoning_content")),
            _string(raw.get("reasoning")),
            _string(raw.get("refusal")),
            [_ToolCall(_function(c.get("function"))) for c in calls if isinstance(c, dict)]
            if isinstance(calls, list)
            else None,
            _function(raw.get("function_call")),
        )
    reason, usage, error = (choice.get(name) for name in ("finish_reason", "usage", "error"))
    reason = reason.get("type") if isinstance(reason, dict) else reason  # SGLang's own form
    return _Choice(
        delta,
        None,
        _string(choice.get("text")),
        _string(reason),
        _coerce_usage(usage) if isinstance(usage, dict) else None,
        msgspec.Raw(_json(error).encode()) if error else None,
        _integer(choice.get("index")),
    )


def _function(value: object) -> _Function | None:
    """A tool call's function; arguments that came as an object count as their JSON text."""
    if not isinstance(value, dict):
        return None
    arguments = value.get("arguments")
    if isinstance(arguments, (dict, list)) and arguments:
        arguments = _json(arguments)
    return _Function(_string(value.get("name")), _string(arguments))


def _string(value: object) -> str | None:
    """Text, or the text parts of a content list (`[{"type": "text", "text": ...}]`), or a number without its quotes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _json(value)
    if isinstance(value, list):
        return "".join(part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str))
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def error_text(document: dict[str, Any]) -> str | None:
    """The message of an error object in any of the shapes servers use; None when there is no error."""
    error = document.get("error")
    if error:
        if isinstance(error, dict):
            message = error.get("message") or error.get("error") or error.get("type") or error
            return message if isinstance(message, str) else _json(message)
        return error if isinstance(error, str) else _json(error)
    if document.get("object") == "error":
        return str(document.get("message") or "the server sent an error object")
    if "choices" in document:
        return None
    codes = [document.get(name) for name in ("code", "status", "status_code", "statusCode")]
    coded = any(isinstance(code, int) and code >= 400 for code in codes)  # a `status` alone may be a progress report
    found = document.get("detail") or document.get("errors") or (document.get("message") if coded else None)
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        found = found[0].get("message") or found
    return (found if isinstance(found, str) else _json(found)) if found else None


def named_error(data: bytes) -> str:
    """What an event named `error` says: the message of an object, else its text."""
    piece = _read_untyped(b'{"error":%s}' % data)
    return piece.error or data.decode("utf-8", "replace")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


COMPLETIONS = Dialect(
    "/completions", asking.completion, read, "/v1", takes_ids=True, lengths=asking.LENGTHS, optional=asking.OPTIONAL
)
CHAT = Dialect("/chat/completions", asking.chat, read, "/v1", lengths=asking.LENGTHS, optional=asking.OPTIONAL)
