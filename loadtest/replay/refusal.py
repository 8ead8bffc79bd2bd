"""What a server means by not answering: is it busy, does it refuse a field and which, the model, or the API?

Servers agree on no form, so everything is looked for in all strings of the answer; a wrong guess costs a probe and
nothing else, because what was given up is tried again (`negotiation`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from loadtest.replay.answer import Answer
from loadtest.replay.dialects import Api

_OF_THE_KEY = (401, 403)
_OVERLOADED = (429, 503, 529)
_SAYS_OVERLOADED = re.compile(r"overloaded|rate.?limit|too many requests|loading model|model is loading", re.I)
_NAMES_A_FIELD = ("param", "loc")  # OpenAI's and FastAPI's way to say which field is meant
_ECHOES = ("input", "ctx", "url")  # what pydantic repeats of the request, and where it explains itself
_LENGTHS = ("max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens", "n_predict", "num_predict")
_LEAST = re.compile(r"(?:>=|at least|minimum(?: value)?(?: of| is)?|greater than or equal to)\s*(\d{1,4})\b", re.I)
_NO_SUCH_MODEL = re.compile(
    r"\bmodel\b.{0,120}?\b(?:not exist|not found|is not available|is unknown|have access)"
    r"|(?:invalid|unknown|no such) model|model_not_found|invalid_model",
    re.I | re.S,
)
_NOT_CHAT = re.compile(
    r"not a chat model|not support chat.?completions?|chat.?completions? operation does not|chat template", re.I
)
_ONLY_CHAT = re.compile(
    r"\bis a chat model|\buse \S*chat/completions|not support (?:the )?(?:text )?completions?\b"
    r"|\bthe completions? operation does not",
    re.I,
)


def accepted(answer: Answer) -> bool:
    """The server took the request."""
    return answer.accepted and answer.error is None


def unauthorized(answer: Answer) -> bool:
    """The key, not the request, is refused."""
    return answer.status in _OF_THE_KEY


def _in_band(answer: Answer) -> bool:
    """An error inside a success; a connection that broke says nothing of the request."""
    return answer.accepted and answer.error is not None and (answer.complete or answer.closed)


def busy(answer: Answer) -> bool:
    """The server has no room now, whatever it is asked: by status, or in words where the status says nothing."""
    vague = answer.status >= 500 or _in_band(answer)
    return answer.status in _OVERLOADED or (vague and bool(_SAYS_OVERLOADED.search(_text(answer))))


def refused(answer: Answer) -> bool:
    """The server does not want this request: an error of whatever status, also one inside a 200."""
    return (answer.status >= 400 or _in_band(answer)) and not busy(answer) and not unauthorized(answer)


def explained(answer: Answer) -> bool:
    """The API itself refuses: not with a page of a proxy, nor with a bare status that is the server's breakdown."""
    return answer.status < 500 or isinstance(answer.document(), dict)


def named(answer: Answer, fields: Collection[str]) -> str:
    """That of `fields` which the server complains about: by its own pointer, else the first it mentions; else ""."""
    for words in (_pointers(answer.document()), [_text(answer)]):
        mentions = [(at, field) for word in words for field in fields if (at := _position(field, word)) >= 0]
        if mentions:
            return min(mentions)[1]
    return ""


def suggested_length(answer: Answer, but: Collection[str]) -> str:
    """Another name of the output length that the server mentions ("use 'max_completion_tokens' instead"), or ""."""
    return named(answer, [name for name in _LENGTHS if name not in but])


def least_length(answer: Answer) -> int:
    """The shortest answer that may be asked for, where the refusal says so; else 0."""
    found = _LEAST.search(_text(answer))
    return int(found[1]) if found else 0


def unknown_model(answer: Answer) -> bool:
    """The server does not have the model."""
    return bool(_NO_SUCH_MODEL.search(_text(answer)))


def other_api(answer: Answer, api: Api) -> Api | None:
    """The API that the model is for, where the server says that it is not this one."""
    text = _text(answer)
    if _NOT_CHAT.search(text):
        return "completions" if api == "chat" else None
    return "chat" if api == "completions" and _ONLY_CHAT.search(text) else None


def _position(field: str, text: str) -> int:
    """Where the field's own name stands as a word of its own; -1 for nowhere."""
    found = re.search(rf"(?<!\w){re.escape(field.rpartition('.')[2])}(?!\w)", text)
    return found.start() if found else -1


def _text(answer: Answer) -> str:
    document = answer.document()
    text = "\n".join(_strings(document)) if document is not None else answer.error_message()
    return text.replace("\\n", " ").replace("\\t", " ")  # JSON within a string


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _ECHOES:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _pointers(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [text for name in _NAMES_A_FIELD for text in _strings(value.get(name))]
        return own + [text for inner in value.values() for text in _pointers(inner)]
    return [text for inner in value for text in _pointers(inner)] if isinstance(value, list) else []
