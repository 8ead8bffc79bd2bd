"""What is loaded: a parsed URL and how to talk to it. Plain data that travels to workers as JSON.

The API key is not in here: it is read from its environment variable or file where the request is built, so that
it reaches no record, no report and no process list.
"""

from __future__ import annotations

import _socket
import os
import socket
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult

import msgspec

from loadtest import secrets
from loadtest.errors import TargetError, UsageError
from loadtest.replay.connection import Address
from loadtest.replay.dialects import DIALECTS, Api, Ask, Dialect
from loadtest.replay.fields import holds, merged, parse_drops, parse_own, parse_renames
from loadtest.weburl import split_url

PromptForm = Literal["ids", "text", "auto"]
_PORTS = {"http": 80, "https": 443}
_EVERYTHING = Ask("model", "prompt", "length", stream=True)
_KEY_HEADERS = ("authorization", "api-key", "x-api-key")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to send requests; `base_path` ends without a slash, usually in `/v1`, or is empty."""

    scheme: str
    host: str
    port: int
    base_path: str
    api: Api = "completions"
    model: str = ""
    prompt_form: PromptForm = "auto"
    headers: list[tuple[str, str]] = []
    api_key_env: str = ""
    api_key_file: str = ""
    ca_file: str = ""
    verify: bool = True
    stream: bool = True
    extra_body: dict[str, Any] = {}
    path: str = ""  # overrides the API's own path
    rename: dict[str, str] = {}  # body fields that go by another name here
    leave_out: list[str] = []  # body fields that are not sent, by their first names
    addresses: list[tuple[int, list[str | int]]] = []
    parts: int = 0  # so many of the first addresses are parts of one deployment, the others are other ways to it
    setup_ns: int = 0  # what setting up a connection took, TLS included

    @staticmethod
    def parse(
        url: str,
        *,
        model: str | None = None,
        api: Api | None = None,
        api_key_env: str = "",
        api_key_file: str = "",
        headers: tuple[str, ...] = (),
        ca_file: str = "",
        verify: bool = True,
        prompt_form: PromptForm = "auto",
        stream: bool = True,
        extra_body: tuple[str, ...] = (),
        rename_field: tuple[str, ...] = (),
        drop_field: tuple[str, ...] = (),
        path: str = "",
    ) -> Endpoint:
        """Read a target in any of the ways people write it: with or without /v1, a slash, or the full path.

        `extra_body` holds `K=V` texts (V is JSON where it can be, else text) or whole JSON objects, `rename_field`
        `OLD=NEW` texts.
        """
        parts, host, port = _read_url(url)
        base, found = _base_path(parts.path, api)
        endpoint = Endpoint(
            scheme=parts.scheme,
            host=host,
            port=port,
            base_path=base,
            api=found,
            model=model or "",
            prompt_form=prompt_form,
            headers=[_header(text) for text in headers],
            api_key_env=api_key_env,
            api_key_file=api_key_file,
            ca_file=ca_file,
            verify=verify,
            stream=stream,
            path=_own_path(path),
            **_own_fields(found, extra_body, rename_field, drop_field),
        )
        endpoint.hold_secrets()
        return endpoint

    def hold_secrets(self) -> None:
        """Have this process mask what the headers, the path and the body say in secret, whoever writes it back."""
        secrets.hold_headers(self.headers)
        secrets.hold_query(self.path)
        secrets.hold(*secrets.secrets_in(self.extra_body))

    @property
    def origin(self) -> str:
        """scheme://host:port, the way it is printed."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"

    @property
    def authority(self) -> str:
        """What the Host header says: as every browser and library writes it, without the scheme's own port."""
        return f"{_bracketed(_ascii(self.host))}{'' if self.port == _PORTS[self.scheme] else f':{self.port}'}"

    @property
    def request_path(self) -> str:
        return self.path or self.base_path + self.dialect.path

    @property
    def models_path(self) -> str:
        return self.base_path + self.dialect.models_path

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.api]

    @property
    def length_field(self) -> str:
        """The body field that carries each row's own output length; "" when none does."""
        name = next(iter(self.dialect.lengths), "")
        sent_as = self.rename.get(name, name)
        hidden = any(text in self.leave_out or holds(self.extra_body, text) for text in (name, sent_as))
        return "" if hidden else sent_as

    @property
    def own_length(self) -> str:
        """The user's own field with one output length for all; "" when there is none."""
        own = (name for name in self.dialect.lengths if self.extra_body.get(name) is not None)
        return next(own, "")

    @property
    def credential(self) -> str:
        """In words, what the requests show: the name of the key's place, never the key."""
        if self.api_key_env or self.api_key_file:
            return f"with the key from {self.api_key_env or self.api_key_file}"
        shown = [name for name, _ in self.headers if name.lower() in _KEY_HEADERS]
        return f"with the header {shown[0]} of --header" if shown else "without a key"

    @property
    def choices(self) -> int:
        """How many answers each request asks for, by the field `n` of the user's own."""
        asked = self.extra_body.get("n")
        return asked if isinstance(asked, int) and asked > 1 else 1

    @property
    def url(self) -> str:
        return self.origin + self.request_path

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def prompts_as_ids(self) -> bool:
        return self.dialect.takes_ids and self.prompt_form == "ids"

    def resolve(self) -> Endpoint:
        """Look the host up once, before the load: a lookup inside it would be measured.

        By the plain C call: gevent's would switch greenlets, which a callback of the hub must not.
        """
        try:
            found = _socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise TargetError(
                f"the host {self.host!r} cannot be found: {error}", hint="check the URL", code="unreachable"
            ) from None
        return msgspec.structs.replace(self, addresses=[(family, list(address)) for family, _, _, _, address in found])

    def address_list(self) -> list[Address]:
        """The resolved addresses in the order to try them."""
        return [Address(family, tuple(address)) for family, address in self.addresses]

    def api_key(self) -> str:
        """The key from its environment variable or file; "" when none was asked for."""
        key = self._read_key()
        secrets.hold(key)
        return key

    def _read_key(self) -> str:
        if self.api_key_env:
            key = os.environ.get(self.api_key_env, "")
            if not key:
                raise UsageError(f"the environment variable {self.api_key_env} that should hold the API key is empty")
            return _one_line(key)
        if self.api_key_file:
            try:
                return _one_line(Path(self.api_key_file).read_text(encoding="utf-8-sig"))
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"the API key file cannot be read: {error}") from None
        return ""


def _own_fields(
    api: Api, extra_body: tuple[str, ...], rename_field: tuple[str, ...], drop_field: tuple[str, ...]
) -> dict[str, Any]:
    """What the user wants otherwise in the body; a name that no request has is a mistake."""
    fields, own = DIALECTS[api].fields(_EVERYTHING), parse_own(extra_body)
    body, prompt_field = merged(fields, own), next(iter(fields))
    renames, drops = parse_renames(rename_field, body), parse_drops(drop_field, body, prompt_field)
    return {"extra_body": own, "rename": renames, "leave_out": drops}


def host_and_port(host: str | int, port: str | int) -> str:
    """An address as it is printed."""
    return f"{_bracketed(str(host))}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _ascii(host: str) -> str:
    """A host's name as it goes over the wire; the zone of an address is this machine's own affair."""
    try:
        return host.partition("%")[0].encode("idna").decode("ascii")
    except UnicodeError:
        return host


def _read_url(url: str) -> tuple[SplitResult, str, int]:
    """A target's parts, its host and its port; UsageError with what is wrong with it."""
    text = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = split_url(text)
    except ValueError as error:
        raise UsageError(f"the target {url!r} {error}", hint="write http://HOST:PORT") from None
    if parts.username or parts.password:
        raise UsageError(
            "the target URL carries a password, which would end up in records",
            hint="give it with --api-key-env or --header instead",
        )
    if parts.query:
        raise UsageError(
            f"the target {url.partition('?')[0]!r} has a query after it, which would be left out",
            hint="give it with --path, as in --path /v1/chat/completions?api-version=1",
        )
    return parts, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _base_path(path: str, api: Api | None) -> tuple[str, Api]:
    """The path without the API's own part, and the API: the one asked for, else the one the full path names."""
    base = "/" + "/".join(part for part in path.split("/") if part)
    written: Api | None = None
    for name, dialect in sorted(DIALECTS.items(), key=lambda item: -len(item[1].path)):
        if base.endswith(dialect.path):
            base, written = base.removesuffix(dialect.path), name
            break
    else:
        base = base.removesuffix("/models")
    base = base.rstrip("/")
    chosen: Api = api or written or "completions"
    default = DIALECTS[chosen].base_path
    return (base or default if default else base.removesuffix("/v1")), chosen


def _one_line(key: str) -> str:
    """A key without the line end of its file; one with others inside would smuggle headers into the request."""
    key = key.strip()
    if not key.isprintable():
        raise UsageError(
            "the API key holds a line end or another control character", hint="give it on a line of its own"
        )
    return key


def _own_path(path: str) -> str:
    if path and (not path.startswith("/") or any(c.isspace() for c in path)):
        raise UsageError(f"the path {path[:60]!r} does not start with a slash", hint="write --path /v2/generate")
    return path


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n\0"):
        raise UsageError(f"the header {name[:40]!r} is not of the form 'Name: value'")
    return name.strip(), value.strip()
