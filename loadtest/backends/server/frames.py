"""The bytes of an answer, in vLLM's shapes, prepared once per stream.

A token costs one concatenation of three prepared pieces. All words have one width, so that the length of a
chunk is known before the first token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

import msgspec

from loadtest.backends.server.engine import Spans

Api = Literal["completions", "chat"]

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
WORDS = [f" {a}{b}{c}{d}" for a in _CONSONANTS for b in _VOWELS for c in "lmnrst" for d in _VOWELS][:1024]
_WORD_BYTES = [word.encode() for word in WORDS]
_WORD_MASK = 0x3FF
_SPLIT = "@@@@@"  # as wide as a word
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """Identity of one answer."""

    api: Api
    id: str
    model: str
    created: int  # unix seconds
    prompt_tokens: int
    prompt: list[int] | None = None  # when the client asked for token ids

    def usage(self, completion_tokens: int) -> dict[str, int]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }


class StreamFrames:
    """Wire bytes of a streamed answer; with `chunked` each event is one HTTP/1.1 chunk."""

    def __init__(self, answer: Answer, *, include_usage: bool, continuous_usage: bool, chunked: bool) -> None:
        self._answer = answer
        self._include_usage = include_usage
        self._continuous_usage = continuous_usage
        self._frame = _chunk if chunked else bytes
        self._head, self._tail = self._pieces(None)
        self._opening = b""
        if answer.api == "chat":
            self._opening = self._frame(_event(_role_chunk(answer)))

    def token(self, index: int) -> bytes:
        """The event of token number `index` (from 0) when more will follow."""
        if self._continuous_usage:
            return self._with_usage(index, None)
        frame = self._head + _WORD_BYTES[index & _WORD_MASK] + self._tail
        return frame if index else self._opening + frame

    def last(self, index: int, spans: Spans | None = None) -> bytes:
        """The event of the last token, the usage event (with the spans) when asked for, and [DONE]."""
        if self._continuous_usage:
            frame = self._with_usage(index, "length")
        else:
            head, tail = self._pieces("length")
            frame = (b"" if index else self._opening) + head + _WORD_BYTES[index & _WORD_MASK] + tail
        if self._include_usage:
            frame += self._frame(_event({**_usage_chunk(self._answer, index + 1), **_timings(spans)}))
        return frame + self._frame(DONE)

    def text(
        self, index: int, text: str, finish_reason: str | None, spans: Spans | None = None, token: int = 0
    ) -> bytes:
        """The event of a token with a text of its own; with a finish reason all that ends the stream follows."""
        chunk = _token_chunk(self._answer, text, finish_reason, token, first=not index)
        if self._continuous_usage:
            chunk["usage"] = self._answer.usage(index + 1)
        frame = (b"" if index else self._opening) + self._frame(_event(chunk))
        if finish_reason is None:
            return frame
        if self._include_usage:
            frame += self._frame(_event({**_usage_chunk(self._answer, index + 1), **_timings(spans)}))
        return frame + self._frame(DONE)

    def error(self, body: bytes) -> bytes:
        """An error object in the middle of a stream, and its end."""
        return self._frame(b"data: " + body + b"\n\n") + self._frame(DONE)

    def _pieces(self, finish_reason: str | None) -> tuple[bytes, bytes]:
        frame = self._frame(_event(_token_chunk(self._answer, _SPLIT, finish_reason)))
        # The id, which is the client's, may hold such a run too; the text's is the last.
        head, _, tail = frame.rpartition(_SPLIT.encode())
        return head, tail

    def _with_usage(self, index: int, finish_reason: str | None) -> bytes:
        chunk = _token_chunk(self._answer, WORDS[index & _WORD_MASK], finish_reason)
        chunk["usage"] = self._answer.usage(index + 1)
        return (b"" if index else self._opening) + self._frame(_event(chunk))


def whole_answer(
    answer: Answer, tokens: int, text: str | None = None, finish_reason: str = "length", ids: list[int] | None = None
) -> bytes:
    """The JSON body of an answer that was not streamed; without `text` it says as many words."""
    if text is None:
        text = "".join(WORDS[index & _WORD_MASK] for index in range(tokens))
    choice: dict[str, object] = {"index": 0}
    if answer.api == "chat":
        choice["message"] = {"role": "assistant", "content": text, "refusal": None, "reasoning": None}
    else:
        choice["text"] = text
    told = None if answer.prompt is None else ids
    choice |= {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None, "token_ids": told}
    if told is not None:
        choice["prompt_token_ids"] = answer.prompt
    body = _envelope(answer, "chat.completion" if answer.api == "chat" else "text_completion")
    return msgspec.json.encode({**body, "choices": [choice], "usage": answer.usage(tokens)})


def _envelope(answer: Answer, kind: str) -> dict[str, object]:
    return {"id": answer.id, "object": kind, "created": answer.created, "model": answer.model}


def _token_chunk(
    answer: Answer, text: str, finish_reason: str | None, token: int = 0, *, first: bool = False
) -> dict[str, object]:
    choice: dict[str, object]
    ids = None if answer.prompt is None else [token]
    prompt = answer.prompt if first else None
    if answer.api == "chat":
        choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish_reason}
        if finish_reason:
            choice["stop_reason"] = None
        return {**_envelope(answer, "chat.completion.chunk"), "choices": [{**choice, "token_ids": ids}]}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
    return {
        **_envelope(answer, "text_completion"),
        "choices": [{**choice, "prompt_token_ids": prompt, "token_ids": ids}],
    }


def _role_chunk(answer: Answer) -> dict[str, object]:
    delta = {"role": "assistant", "content": ""}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    return {**_envelope(answer, "chat.completion.chunk"), "choices": [choice], "prompt_token_ids": answer.prompt}


def _usage_chunk(answer: Answer, tokens: int) -> dict[str, object]:
    kind = "chat.completion.chunk" if answer.api == "chat" else "text_completion"
    return {**_envelope(answer, kind), "choices": [], "usage": answer.usage(tokens)}


def _timings(spans: Spans | None) -> dict[str, object]:
    """Where the request spent its time, in milliseconds, as llama.cpp's `timings` does."""
    if spans is None:
        return {}
    told = {"queue_ms": spans.queue_s, "prompt_ms": spans.prefill_s, "transfer_ms": spans.transfer_s}
    known = {**told, "predicted_ms": spans.decode_s}
    return {"timings": {name: round(value * 1e3, 3) for name, value in known.items() if isfinite(value)}}


def _event(chunk: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)
