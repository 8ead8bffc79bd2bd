"""Text of an event in places that no dialect knows: what may be generated output under a new name.

Looked for only where an event holds no output that is known. What its name says to be metadata is left out; whether
the rest is output shows over several events (`loadtest.replay.strangers`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

MAX_DEPTH = 8
MAX_PLACES = 64
MAX_PATH_CHARS = 120

# Where events without `choices` put what is generated: Gemini, Anthropic, OpenAI's responses, TGI and others.
_CONTAINERS = ("message", "candidates", "delta", "output", "outputs", "content_block", "token", "response")
# Names, without case, `_` and `-`, of what stands beside generated output; with everything below them.
_METADATA = re.compile(
    r"id|index|object|model|name|type|kind|role|author|recipient|channel|phase|lang|language|format|version|provider"
    r"|created|status|state|stop|stopsequence|stoppingword|matchedstop|progress|event|error|fingerprint|servicetier"
    r"|usage|timings|metrics|metadata|logprobs|tokens|prompt|generationsettings|nonce|p|padding|obfuscation|uuid"
    r"|signature|data|encrypted|encryptedcontent|safetyratings|category|severity"
    r"|(prompt|content)filter(result|results|offsets)|annotations|citations|context|searchresults|sources|title"
).fullmatch
# Last words of such names: `native_finish_reason`, `toolCallId`, `created_at`, `thought_signature`.
_METADATA_ENDS = re.compile(
    r"id|ids|reason|type|name|status|at|date|time|timestamp|url|uri|hash|signature|fingerprint|logprobs|probabilities"
).fullmatch
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")


def below_choices(data: bytes) -> dict[str, str]:
    """The strings of one event of OpenAI's form that may be generated, joined by the path of keys they stand under."""
    document = _document(data)
    choices = document.get("choices")
    if isinstance(choices, list):
        return _text(("", _without_repeat(choice)) for choice in choices if isinstance(choice, dict))
    places = ((name, document.get(name)) for name in _CONTAINERS)
    return _text((name, value) for name, value in places if name == "delta" or not isinstance(value, str))


def below_top(data: bytes) -> dict[str, str]:
    """The same of an event that is one answer's from the top."""
    return _text([("", _document(data))])


def _document(data: bytes) -> dict[str, object]:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _tolerant(data)
    return document if isinstance(document, dict) else {}


def _tolerant(data: bytes) -> object:
    """As Python's own reader takes it."""
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _text(places: Iterable[tuple[str, object]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, value in places:
        for path, text in _strings(value, place, 0):
            if path in found or len(found) < MAX_PLACES:
                found[path] = found.get(path, "") + text
    return found


def _without_repeat(choice: dict[str, object]) -> dict[str, object]:
    """Without the `message` that some servers send beside each `delta`: all that came so far, once more."""
    return {name: value for name, value in choice.items() if name != "message" or "delta" not in choice}


def _strings(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value:
            yield path[:MAX_PATH_CHARS], value
    elif depth < MAX_DEPTH and isinstance(value, dict):
        for name, below in value.items():
            if below and not _is_metadata(name):
                yield from _strings(below, f"{path}.{name}" if path else name, depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, list):
        for below in value:
            yield from _strings(below, f"{path}[]", depth + 1)


@lru_cache(maxsize=4096)
def _is_metadata(name: str) -> bool:
    words = _WORD.findall(name)
    return bool(words) and bool(_METADATA("".join(words).lower()) or _METADATA_ENDS(words[-1].lower()))
