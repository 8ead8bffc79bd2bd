"""Fields of a request body by name: added, renamed, left out. A dot leads into an object: `options.temperature`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from loadtest.errors import UsageError

Body = dict[str, Any]
_ABSENT = object()


def merged(fields: Body, own: Body) -> Body:
    """The user's fields win; objects are merged field by field."""
    result = dict(fields)
    for name, value in own.items():
        ours = result.get(name)
        result[name] = merged(ours, value) if isinstance(ours, dict) and isinstance(value, dict) else value
    return result


def shaped(body: Body, rename: Mapping[str, str], leave_out: Iterable[str]) -> Body:
    """A copy in which fields have other names, or are missing; a field that the new name has already stays."""
    result = deepcopy(body)
    for old, new in rename.items():
        value = _taken(result, old)
        if value is not _ABSENT:
            _put(result, new, value)
    for name in leave_out:
        _taken(result, rename.get(name, name))
    return result


def holds(body: Body, name: str) -> bool:
    """Whether there is such a field."""
    return _taken(deepcopy(body), name) is not _ABSENT


def _taken(body: Body, name: str) -> object:
    """The field's value, taken out; an object that it leaves empty goes with it."""
    if name in body:
        return body.pop(name)
    head, dot, rest = name.partition(".")
    inner = body.get(head)
    if not dot or not isinstance(inner, dict):
        return _ABSENT
    value = _taken(inner, rest)
    if value is not _ABSENT and not inner:
        del body[head]
    return value


def _put(body: Body, name: str, value: object) -> None:
    head, dot, rest = name.partition(".")
    inner = body.setdefault(head, {} if dot else value)
    if dot and isinstance(inner, dict):
        _put(inner, rest, value)


def parse_own(texts: Iterable[str]) -> Body:
    """The user's own fields, from `K=V` texts (V is JSON where it can be, else text) or whole JSON objects."""
    fields: Body = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if text.lstrip().startswith("{"):
            fields |= _json_object(text)
        elif equals and name.strip():
            fields[name.strip()] = _json_or_text(value)
        else:
            raise UsageError(f"the body field {text[:60]!r} is neither K=V nor a JSON object")
    return fields


def _json_object(text: str) -> Body:
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"the body fields {text[:60]!r} are not valid JSON: {error}") from None
    assert isinstance(document, dict)  # it starts with a brace
    return document


def _json_or_text(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def parse_renames(texts: Iterable[str], body: Body) -> dict[str, str]:
    """`OLD=NEW` texts as a mapping; `body` is what would be sent without them."""
    renames = {}
    for text in texts:
        old, _, new = (part.strip() for part in text.partition("="))
        if not old or not new:
            hint = "write it as in --rename-field max_tokens=max_completion_tokens"
            raise UsageError(f"the renamed field {text[:60]!r} is not OLD=NEW", hint=hint)
        renames[_known(old, body)] = new
    return renames


def parse_drops(names: Iterable[str], body: Body, prompt_field: str) -> list[str]:
    """The names of fields to leave out, each one that `body` has."""
    dropped = [_known(name.strip(), body) for name in names]
    if prompt_field in dropped:
        raise UsageError(
            f"without {prompt_field!r} no prompt would be sent", hint="--rename-field gives it another name"
        )
    return dropped


def _known(name: str, body: Body) -> str:
    if not holds(body, name):
        raise UsageError(f"no request has the field {name[:60]!r}", hint=f"it has: {', '.join(sorted(body))}")
    return name
