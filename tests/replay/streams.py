"""Makes the bytes of streamed answers, and cuts them in all the ways a network can."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from hypothesis import strategies as st

from tests.replay.player import LAST_CHUNK, chunk, response_head

HEAD = response_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
DONE = b"data: [DONE]\n\n"


def completion_event(text: str, finish: str | None = None, **more: object) -> bytes:
    """One event of /v1/completions, the way vLLM writes it."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    document = {"id": "cmpl-1", "object": "text_completion", "created": 1, "choices": [choice], **more}
    return b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def chat_event(delta: dict[str, object], finish: str | None = None, index: int = 0, **more: object) -> bytes:
    """One event of /v1/chat/completions."""
    document = {"id": "1", "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def usage_event(completion: int, prompt: int = 4) -> bytes:
    document = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def answer_bytes(texts: Sequence[str]) -> bytes:
    """A whole response: one chunk per event, usage and [DONE] at the end."""
    events = [completion_event(text) for text in texts]
    events += [completion_event("", "length"), usage_event(len(texts)), DONE]
    return HEAD + b"".join(map(chunk, events)) + LAST_CHUNK


def cuts_of(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Any way to cut `data` into reads."""
    positions = st.lists(st.integers(1, max(len(data) - 1, 1)), max_size=12)

    def cut(at: list[int]) -> list[bytes]:
        edges = [0, *sorted(set(at)), len(data)]
        return [data[a:b] for a, b in itertools.pairwise(edges) if b > a]

    return st.one_of(positions.map(cut), st.just([data[i : i + 1] for i in range(len(data))]), st.just([data]))
