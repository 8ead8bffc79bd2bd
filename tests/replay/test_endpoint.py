"""Targets in all the ways people write them, and secrets kept out of records."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from loadtest.errors import UsageError
from loadtest.replay.bodies import Bodies, RequestBuilder, request_head
from loadtest.replay.endpoint import Endpoint
from tests.replay.replaying import schedule
from workloads.prompts import Prompts


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1/completions"),
        ("http://h:8000//v1//", "http://h:8000/v1/completions"),
        ("https://api.example.com", "https://api.example.com:443/v1/completions"),
        ("http://h:1/openai/v1/models", "http://h:1/openai/v1/completions"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("http://[::1]:8000", "http://[::1]:8000/v1/completions"),
    ],
)
def test_every_way_to_write_a_target(text: str, url: str) -> None:
    """With or without scheme, /v1, slashes, or the full path of an API."""
    assert url == Endpoint.parse(text).url


@pytest.mark.parametrize("text", ["ftp://h", "http://", "http://h:99999", "http://user:secret@h:1", "h:1/v1?k=secret"])
def test_what_is_no_target_is_refused(text: str) -> None:
    """Other schemes, missing hosts, bad ports, passwords and queries in the URL: one sentence each."""
    with pytest.raises(UsageError) as raised:
        Endpoint.parse(text)
    assert "secret" not in raised.value.message + raised.value.hint


def test_the_key_goes_into_the_request_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The API key is read from its variable or file when the request is built; the endpoint does not hold it."""
    monkeypatch.setenv("MY_KEY", "sesame")
    endpoint = Endpoint.parse("h:1", api_key_env="MY_KEY")
    assert b"Authorization: Bearer sesame\r\n" in request_head(endpoint, "POST", "/")
    assert b"sesame" not in msgspec.json.encode(endpoint)
    (tmp_path / "key").write_text("abra\n")
    assert b"Bearer abra\r\n" in request_head(Endpoint.parse("h:1", api_key_file=str(tmp_path / "key")), "POST", "/")
    with pytest.raises(UsageError, match="OTHER_KEY"):
        Endpoint.parse("h:1", api_key_env="OTHER_KEY").api_key()
    monkeypatch.setenv("MY_KEY", "sesame\r\nX-Admin: yes")
    with pytest.raises(UsageError, match="control character") as raised:
        request_head(endpoint, "POST", "/")
    assert "sesame" not in raised.value.message


def test_own_headers_replace_ours_and_cannot_smuggle() -> None:
    """A header of the user's wins; line breaks are refused."""
    head = request_head(Endpoint.parse("h:1", headers=("Host: other", "X-A: 1")), "POST", "/")
    assert head.count(b"Host:") == 1
    assert b"Host: other\r\nX-A: 1\r\n" in head
    for bad in ("no colon", "A: b\r\nC: d", ": x"):
        with pytest.raises(UsageError):
            Endpoint.parse("h:1", headers=(bad,))


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://localhost", "localhost"),
        ("localhost:80", "localhost"),
        ("https://api.example.com", "api.example.com"),
        ("https://api.example.com:443/v1", "api.example.com"),
        ("http://h:443", "h:443"),
        ("https://h:80", "h:80"),
        ("http://h:8000", "h:8000"),
        ("http://[::1]", "[::1]"),
        ("https://[2001:db8::1]:443", "[2001:db8::1]"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://[fe80::1%eth0]:8000", "[fe80::1]:8000"),
        ("http://127.0.0.1", "127.0.0.1"),
        ("http://B\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example", "xn--bcher-kva.example"),
    ],
)
def test_host_is_what_every_client_sends(target: str, host: str) -> None:
    """Without the scheme's own port: ingresses match the name exactly. The user's own still wins."""
    head = request_head(Endpoint.parse(target), "GET", "/")
    assert [f"Host: {host}".encode()] == [line for line in head.split(b"\r\n") if line.startswith(b"Host")]
    own = request_head(Endpoint.parse(target, headers=("host: mine:80",)), "GET", "/")
    assert b"host: mine:80\r\n" in own
    assert b"Host:" not in own


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_requests_are_valid_json_of_the_exact_length(api: str) -> None:
    """The body says what was planned: prompt length, output length, streaming with usage."""
    endpoint = Endpoint.parse("h:1", model='m"x', api=api, prompt_form="ids", extra_body=("top_k=3",))  # type: ignore[arg-type]
    request = RequestBuilder(endpoint, Prompts(1, "s")).build(7, 100, 20)
    head, _, body = request.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    document = json.loads(body)
    prompt = document["prompt"] if api == "completions" else document["messages"][0]["content"].split(" ")
    assert 100 == len(prompt)
    assert ('m"x', 20, 20, True, 3) == tuple(
        document[k] for k in ("model", "max_tokens", "min_tokens", "stream", "top_k")
    )
    assert {"include_usage": True} == document["stream_options"]


def test_bodies_wait_within_their_budget() -> None:
    """Preparing stops at the budget; taking a row that was not prepared builds it, and none is built twice."""
    shard = schedule([0.0] * 50, prompt_tokens=100)
    endpoint = Endpoint.parse("h:1", prompt_form="ids")
    bodies = Bodies(endpoint, shard, Prompts.of(shard), budget=2000)
    while not bodies.full:
        bodies.prepare()
    prepared = bodies.next_row
    assert 2 <= prepared < 10
    taken = [bodies.take(row) for row in range(50)]
    assert 50 == bodies.next_row
    fresh = Bodies(endpoint, shard, Prompts.of(shard))
    assert [fresh.take(row) for row in range(50)] == taken
    assert 50 == len(set(taken))
