"""Secrets are masked by what they are: by names that mean one, by the values this process was given, by their form.

Whoever takes a secret in (a header, a key, a query) tells its value to `hold`; whatever is recorded or printed passes
`mask`, `masked` or `masked_json`. So a server that echoes a key puts no key into a report.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus

MASK = "***"
SHORTEST = 6  # characters of a value that is looked for in other text: a shorter one would blacken words

# Words of a name that mean a secret wherever they stand, and those that mean one at its end (never "tokens").
_ANYWHERE = re.compile(
    r"secrets?|passw(?:or)?d|passphrase|pwd|auth(?:oriz\w+|entic\w+)?|cred(?:ential)?s?|cookies?|bearer|jwt|signature"
    r"|(?:api|access|secret|auth|subscription)(?:key|token)"
)
_AT_THE_END = re.compile(r"key|token|session(?:id|token|key)?|pass|sig|sid|pat|sas|hmac")
_IN_A_QUERY = frozenset({"code"})  # of functions in the cloud
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_FEW_DIGITS = re.compile(r"\d{1,5}")

# What documentation tells people to write where a server asks for no key.
_PLACEHOLDERS = re.compile(
    r"ollama|lm-studio|default|placeholder|not-needed|no-key|(?:sk-)?no-key-required", re.IGNORECASE
)

_SCHEME = re.compile(r"(?:bearer|basic|token|digest|apikey)\s+(.+)", re.IGNORECASE | re.DOTALL)
_USER_OF_URL = re.compile(r"(\b[a-zA-Z][\w+.-]{0,20}://)[^/?#\s@\"'<>]*@")
_PARAMETER = re.compile(r"([?&]([\w.~%+-]{1,80})=)([^&#\s\"'<>\\]+)")
# A field of JSON, whole or broken, in a text.
_FIELD = re.compile(r"""((["'])([\w.-]{1,80})\2\s*:\s*(["']))((?:(?!\4)[^\\]|\\.)+)""")
# Keys of well-known providers, JSON web tokens, and what follows "Bearer".
_FORMS = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{16,}|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)|(?<=\bBearer )(?=[^\s\"']*\d)[\w.~+/=-]{8,}"
)


# --- by name ---------------------------------------------------------------------------------------------------------


def is_secret(name: str, *, header: bool = False) -> bool:
    """Whether a name means a secret: `api_key`, `X-Amz-Credential`, `accessToken`; of a header also `Session-Id`."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    joined = "".join(words[-2:])  # apiKey and api-key are apikey
    ends = [*(words if header else words[-1:]), joined]
    return any(map(_ANYWHERE.fullmatch, [*words, joined])) or any(map(_AT_THE_END.fullmatch, ends))


def without_secret(assignment: str) -> str:
    """`K=V` as it may be recorded: `K=***` where the name means a secret, secrets inside a JSON value masked."""
    name, equals, value = assignment.partition("=")
    if not equals:
        return mask(assignment)
    if is_secret(name.strip()) and not _is_token_id(name.strip(), value.strip()):
        return f"{name}={MASK}"
    return f"{name}={_masked_text(value)}"


def without_secrets(body: str) -> str:
    """Fields of a request body, written as `K=V` or as JSON, as they may be recorded."""
    return _masked_text(body) if body.lstrip().startswith("{") else without_secret(body)


def without_value(header: str) -> str:
    """`Name: value` as it may be recorded."""
    name, colon, _ = header.partition(":")
    return f"{name}: {MASK}" if colon and is_secret(name, header=True) else mask(header)


def masked(value: Any) -> Any:
    """A value of JSON kinds, secrets masked at any depth: what has a secret's name, and what is one."""
    if isinstance(value, dict):
        return {key: MASK if _hides(key, each) else masked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each) for each in value]
    return mask(value) if isinstance(value, str) else value


def secrets_in(value: Any) -> Iterator[str]:
    """The texts in a value of JSON kinds that stand under a secret's name."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each) if _hides(key, each) else secrets_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from secrets_in(each)


def _hides(key: object, value: object) -> bool:
    """Whether a field is a secret: never a truth value, whatever its name."""
    if not isinstance(key, str) or value is None or isinstance(value, bool):
        return False
    return is_secret(key) and not _is_token_id(key, str(value))


def _is_token_id(name: str, value: str) -> bool:
    """`eos_token=2` is the number of a token."""
    return name.lower().endswith("token") and _FEW_DIGITS.fullmatch(value) is not None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif value is not None:
        yield str(value)


def _masked_text(text: str) -> str:
    """JSON with its secrets masked, other text as `mask` has it."""
    try:
        document = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        document = None
    if document is None:
        return mask(text)
    hidden = masked(document)
    return text if hidden == document else json.dumps(hidden, ensure_ascii=False)


# --- by value --------------------------------------------------------------------------------------------------------

_held: set[str] = set()
_pattern: list[re.Pattern[str]] = []


def hold(*values: str) -> None:
    """Remember values that must not leave this process but on the wire."""
    known = len(_held)
    for value in values:
        _held.update(form for form in _forms_of(value) if len(form) >= SHORTEST and not _PLACEHOLDERS.fullmatch(form))
    if len(_held) > known:
        longest_first = sorted(_held, key=len, reverse=True)
        _pattern[:] = [re.compile("|".join(map(re.escape, longest_first)))]


def hold_headers(headers: Iterable[tuple[str, str]]) -> None:
    """Those whose name means a secret: the value, what follows its scheme, and each cookie."""
    for name, value in headers:
        if is_secret(name, header=True):
            hold(value)
            if "cookie" in name.lower():
                hold(*(cookie.partition("=")[2].strip() for cookie in value.split(";")))


def hold_query(path: str) -> None:
    """The values of a path's or URL's parameters whose names mean a secret."""
    hold(*(found[3] for found in _PARAMETER.finditer(path) if _is_parameter(found[2])))


def hold_command(words: Iterable[str]) -> None:
    """What stands behind `--api-key` in a server's command line, or in the same word."""
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if flag and is_secret(flag) and not word.startswith("-"):
            hold(word)
        if equals and is_secret(name):
            hold(value)
        flag = word if word.startswith("-") else ""


def forget() -> None:
    """Hold nothing any more: between two commands of one process."""
    _held.clear()
    _pattern.clear()


def _forms_of(value: str) -> Iterator[str]:
    """The ways in which a server may write a value back."""
    value = value.strip()
    scheme = _SCHEME.fullmatch(value)
    bare = scheme[1].strip() if scheme else value
    for text in {value, bare, unquote(bare), unquote_plus(bare), *_decoded(bare, scheme)}:
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]


def _decoded(text: str, scheme: re.Match[str] | None) -> Iterator[str]:
    """User and password of basic authentication."""
    if scheme is None or not scheme[0].lower().startswith("basic"):
        return
    try:
        pair = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield pair
    yield pair.partition(":")[2]


# --- where text leaves -----------------------------------------------------------------------------------------------


def mask(text: str) -> str:
    """Text as it may be recorded or printed: held values, and what has a secret's form, replaced by `***`."""
    text = _legible(text)
    for pattern in _pattern:
        text = pattern.sub(MASK, text)
    if "://" in text:
        text = _USER_OF_URL.sub(rf"\1{MASK}@", text)
    if "=" in text:
        text = _PARAMETER.sub(lambda m: f"{m[1]}{MASK}" if _is_parameter(m[2]) else m[0], text)
    if ":" in text:
        text = _FIELD.sub(lambda m: f"{m[1]}{MASK}" if is_secret(m[3]) else m[0], text)
    return _FORMS.sub(MASK, text)


def masked_json(document: object) -> bytes:
    """A document of ours as JSON, its texts masked; numbers stay, whatever value is held."""
    import msgspec  # `goodput --help` does without

    return msgspec.json.encode(_all_masked(msgspec.to_builtins(document)))


def masked_file(path: Path) -> None:
    """Replace held values in a log that another program wrote; its other words stay as they are."""
    if not _pattern or not path.exists():
        return
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    if any(pattern.search(text) for pattern in _pattern):
        for pattern in _pattern:
            text = pattern.sub(MASK, text)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))


def _is_parameter(name: str) -> bool:
    name = unquote(name)
    return is_secret(name, header=True) or name.lower() in _IN_A_QUERY


def _legible(text: str) -> str:
    """Text that a UTF-8 file can hold: an argument or file name may have bytes in it that are none in this locale."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def _all_masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {_legible(key) if isinstance(key, str) else key: _all_masked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_all_masked(each) for each in value]
    return mask(value) if isinstance(value, str) else value
