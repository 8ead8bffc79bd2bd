"""What OpenAI's APIs are asked, in their fullest form: every field that a server may refuse is named beside it."""

from __future__ import annotations

from loadtest.replay.dialects.dialect import Ask

LENGTHS = ("max_tokens", "max_completion_tokens")  # the second is the only one that newer models of OpenAI's take
OPTIONAL = ("min_tokens", "ignore_eos", "stream_options", "temperature")


def completion(ask: Ask) -> dict[str, object]:
    """The body of a text completion."""
    return {"prompt": ask.prompt, **_common(ask)}


def chat(ask: Ask) -> dict[str, object]:
    """The body of a chat completion: one message of the user's."""
    return {"messages": [{"role": "user", "content": ask.prompt}], **_common(ask)}


def _common(ask: Ask) -> dict[str, object]:
    """`min_tokens` beside `max_tokens`, where it is taken: the trace says how long an answer is."""
    fields: dict[str, object] = {"max_tokens": ask.max_tokens, "min_tokens": ask.max_tokens}
    fields |= {"model": ask.model} if ask.model else {}
    fields |= {"stream": ask.stream, "ignore_eos": True, "temperature": 0.0}
    return fields | ({"stream_options": {"include_usage": True}} if ask.stream else {})
