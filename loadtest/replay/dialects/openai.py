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
from loadtest.replay.dialects.usage import Usage, integer, read_usage

DONE = b"[DONE]"
# How servers say that they gave an answer up: vLLM and SGLang, OpenRouter, DeepSeek.
_BROKEN_OFF = {"abort", "aborted", "error", "cancelled", "canceled", "insufficient_system_resource"}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Detail(msgspec.Struct):
    """Of OpenRouter's and MiniMax's reasoning: a piece of it, or of its summary."""

    text: str | None = None
    summary: str | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[_Detail] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None  # chat
    tokens: list[msgspec.Raw] | None = None  # text completions


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: msgspec.Raw | None = None
    index: int | None = None
    token_ids: list[msgspec.Raw] | None = None
    logprobs: _Logprobs | None = None


class Timings(msgspec.Struct):
    """llama.cpp's, and our own server's, which adds queue and transfer."""

    cache_n: int | None = None
    prompt_n: int | None = None
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
    usage: dict[str, Any] | None = None
    usage_metadata: dict[str, Any] | None = msgspec.field(default=None, name="usageMetadata")  # Google's
    x_groq: dict[str, Any] | None = None
    timings: Timings | None = None
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
    _add_usage(piece, chunk.usage or chunk.usage_metadata or (chunk.x_groq or {}).get("usage"))
    if chunk.timings is not None:
        told = chunk.timings
        piece.usage = with_timings(piece.usage, told)
        piece.spans = _spans(told.queue_ms, told.prompt_ms, told.transfer_ms, told.predicted_ms)
    elif chunk.metrics is not None:
        seen = chunk.metrics
        piece.spans = _spans(seen.queue_time_ms, seen.time_to_first_token_ms, None, seen.generation_time_ms)
    return piece


def _spans(*known: float | None) -> Spans:
    return Spans(*(nan if ms is None else ms / 1e3 for ms in known))


def with_timings(usage: Usage | None, told: Timings) -> Usage:
    """Prompt tokens that llama.cpp took from its cache; older ones tell only how many they computed."""
    usage = usage or Usage()
    if told.cache_n is not None:
        usage.cached = usage.cached or told.cache_n
    elif told.prompt_n and usage.prompt > told.prompt_n:
        usage.cached = usage.cached or usage.prompt - told.prompt_n
    return usage


def _add_choice(piece: Piece, choice: _Choice, place: int) -> None:
    if choice.finish_reason:
        piece.finish_reason = choice.finish_reason
        piece.finished = (*piece.finished, place if choice.index is None else choice.index)
        if choice.finish_reason in _BROKEN_OFF:
            piece.error = f"the server gave the answer up: finish_reason {choice.finish_reason}"
    if choice.error is not None:  # OpenRouter's place for it
        piece.error = error_text({"error": msgspec.json.decode(choice.error)}) or piece.error
    _add_usage(piece, choice.usage)
    if choice.token_ids is not None:
        piece.tokens += len(choice.token_ids)
    elif choice.logprobs is not None:
        piece.tokens += len(choice.logprobs.content or choice.logprobs.tokens or ())
    if choice.text:
        piece.text += choice.text
    delta = choice.delta or choice.message
    if delta is not None:
        for text in (delta.content, delta.refusal):
            piece.text += text or ""
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            piece.reasoning += thought
        elif delta.reasoning_details:
            piece.reasoning += "".join(part.text or part.summary or "" for part in delta.reasoning_details)
        if delta.tool_calls or delta.function_call is not None:
            functions = [*(call.function for call in delta.tool_calls or ()), delta.function_call]
            piece.call += "".join((f.name or "") + (f.arguments or "") for f in functions if f is not None)
    piece.answer = piece.answer or bool(piece.text or piece.call)
    piece.token = piece.answer or bool(piece.reasoning)
    piece.blank = not piece.token


def _add_usage(piece: Piece, counts: object) -> None:
    if isinstance(counts, dict) and counts:
        piece.usage = read_usage(counts)


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
    groq = document.get("x_groq")
    for usage in (document.get("usage"), document.get("usageMetadata"), isinstance(groq, dict) and groq.get("usage")):
        if piece.usage is None:
            _add_usage(piece, usage)
    return piece


def read_error(data: bytes) -> Piece:
    """What a dialect's own decoder refused: an error object in any shape, else malformed."""
    piece = _read_untyped(data)
    return piece if piece.error is not None else Piece(malformed=True)


def _coerce_choice(choice: dict[str, Any]) -> _Choice:
    raw = choice.get("delta") or choice.get("message")
    delta = None
    if isinstance(raw, dict):
        calls = raw.get("tool_calls")
        text, thought = _content(raw.get("content"))
        delta = _Delta(
            text,
            _string(raw.get("reasoning_content")) or _string(raw.get("reasoning")) or thought,
            None,
            _details(raw.get("reasoning_details")),
            _string(raw.get("refusal")),
            [_ToolCall(_function(c.get("function"))) for c in calls if isinstance(c, dict)]
            if isinstance(calls, list)
            else None,
            _function(raw.get("function_call")),
        )
    reason, usage, error = (choice.get(name) for name in ("finish_reason", "usage", "error"))
    reason = reason.get("type") if isinstance(reason, dict) else reason  # SGLang's own form
    ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
    told = logprobs.get("content") or logprobs.get("tokens") if isinstance(logprobs, dict) else None
    return _Choice(
        delta,
        None,
        _string(choice.get("text")),
        _string(reason),
        usage if isinstance(usage, dict) else None,
        msgspec.Raw(_json(error).encode()) if error else None,
        integer(choice.get("index")),
        _raws(ids) if isinstance(ids, list) else None,
        _Logprobs(_raws(told)) if isinstance(told, list) else None,
    )


def _raws(values: list[Any]) -> list[msgspec.Raw]:
    """As many, whatever they are: only their number counts."""
    return [msgspec.Raw()] * len(values)


def _function(value: object) -> _Function | None:
    """A tool call's function; arguments that came as an object count as their JSON text."""
    if not isinstance(value, dict):
        return None
    arguments = value.get("arguments")
    if isinstance(arguments, (dict, list)) and arguments:
        arguments = _json(arguments)
    return _Function(_string(value.get("name")), _string(arguments))


def _string(value: object) -> str | None:
    """Text, or the text parts of a content list, or a number without its quotes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _json(value)
    if isinstance(value, list):
        return _content(value)[0]
    return value if isinstance(value, str) else None


def _content(value: object) -> tuple[str | None, str | None]:
    """Text and reasoning of a content: a string, or parts (`{"type": "text", "text": ...}`, Mistral's `thinking`)."""
    if not isinstance(value, list):
        return _string(value), None
    text = thought = ""
    for part in value:
        if isinstance(part, dict):
            thought += _parts_text(part.get("thinking")) or _parts_text(part.get("reasoning"))
            reasons = any(word in str(part.get("type")) for word in ("thinking", "reasoning"))
            text, thought = (text, thought + _parts_text(part)) if reasons else (text + _parts_text(part), thought)
        elif isinstance(part, str):
            text += part
    return text, thought


def _parts_text(value: object) -> str:
    """A string, the `text` of a part, or those of a list of parts."""
    if isinstance(value, list):
        return "".join(_parts_text(part) for part in value if isinstance(part, (dict, str)))
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else ""


def _details(value: object) -> list[_Detail] | None:
    parts = [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
    return [_Detail(_string(part.get("text")), _string(part.get("summary"))) for part in parts]


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
