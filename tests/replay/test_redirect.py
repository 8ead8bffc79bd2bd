"""Redirects of a POST: followed with method and body, never with a secret to another origin."""

from __future__ import annotations

import json

import msgspec
import pytest

from loadtest.replay.endpoint import Endpoint
from loadtest.replay.preflight import preflight
from loadtest.replay.redirect import MAX_REDIRECTS, next_hop
from tests.replay.player import Play, Player, Received, response_head
from tests.replay.replaying import replay, schedule
from tests.replay.streams import answer_bytes

ANSWER = answer_bytes([" a", " b"])
HERE = Endpoint.parse("http://127.0.0.1:8000", headers=("X-Mine: 1",), api_key_env="KEY")


def redirect_to(location: str, status: int = 307) -> Play:
    return Play([(0, response_head(status, {"Location": location, "Content-Length": "0"}))])


@pytest.mark.parametrize(
    ("status", "location", "url"),
    [
        (307, "/v2/completions", "http://127.0.0.1:8000/v2/completions"),
        (308, "completions/?x=1", "http://127.0.0.1:8000/v1/completions/?x=1"),
        (308, "http://127.0.0.1:9/other", "http://127.0.0.1:9/other"),
        (307, "//127.0.0.2/p", "http://127.0.0.2:80/p"),
        (301, "/v2", None),
        (302, "/v2", None),
        (200, "/v2", None),
        (307, "", None),
        (307, "ftp://127.0.0.1/x", None),
        (307, "http://[::1/", None),
        (307, "http://127.0.0.1:99999/", None),
    ],
)
def test_where_a_redirect_leads(status: int, location: str, url: str | None) -> None:
    """307 and 308 to a place HTTP reaches; everything else is an answer like any other."""
    hop = next_hop(HERE, status, location, 0)
    assert url == (hop.url if hop else None)
    assert next_hop(HERE, status, location, MAX_REDIRECTS) is None


def test_secrets_stay_at_home() -> None:
    """The key and the user's own headers go along within the origin only; https and another port are other origins."""
    same = next_hop(HERE, 307, "/x", 0)
    assert same is not None
    assert ("KEY", HERE.headers) == (same.api_key_env, same.headers)
    for location in ("http://127.0.0.1:8001/x", "https://127.0.0.1:8000/x", "http://127.0.0.2:8000/x"):
        other = next_hop(HERE, 307, location, 0)
        assert other is not None
        assert ("", "", []) == (other.api_key_env, other.api_key_file, other.headers)
        assert other.addresses


@pytest.mark.parametrize("status", [307, 308])
def test_within_the_origin(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is sent again, whole and with the key, on a kept connection; the row says so."""
    monkeypatch.setenv("KEY", "sesame")

    def script(received: Received, _number: int) -> Play:
        return Play([(0, ANSWER)]) if b"/moved " in received.head else redirect_to("/moved", status)

    with Player(script) as player:
        done = replay(player.url(), schedule([0.0, 0.1]), api_key_env="KEY")
    assert ["ok", "ok"] == [done.outcome(0), done.outcome(1)]
    assert "redirected" in done.flags(0)
    assert [2, 2] == done.rows["attempts"].tolist()
    assert all(b"Authorization: Bearer sesame" in received.head for received in player.received)
    assert player.received[0].body == player.received[1].body
    assert (done.rows["first_token_s"] > done.rows["sent_s"]).all()


def test_to_another_origin_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another port gets the body, and neither key nor own headers."""
    monkeypatch.setenv("KEY", "sesame")
    with Player(lambda *_: Play([(0, ANSWER)])) as second, Player(lambda *_: redirect_to(second.url("/p"))) as first:
        headers = [("X-Api-Key", "abra")]
        done = replay(first.url(), schedule([0.0, 0.1]), api_key_env="KEY", headers=headers)
    assert ["ok", "ok"] == [done.outcome(0), done.outcome(1)]
    assert "redirected" in done.flags(1)
    assert all(b"sesame" in received.head and b"abra" in received.head for received in first.received)
    assert 2 == len(second.received)
    assert not any(b"sesame" in r.head or b"abra" in r.head or b"Authorization" in r.head for r in second.received)
    assert first.received[0].body == second.received[0].body
    assert b"POST /p HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % second.port in second.received[0].head


def test_a_circle_ends() -> None:
    """After five hops the redirect is the answer."""
    with Player(lambda *_: redirect_to("/again")) as player:
        done = replay(player.url(), schedule([0.0]))
    assert "http_307" == done.outcome(0)
    assert 1 + MAX_REDIRECTS == len(player.received)
    assert "/again" in done.error(0)


def test_other_redirects_are_answers() -> None:
    """A 302 would make a GET of it: not followed, and the error names where it leads."""
    with Player(lambda *_: redirect_to("http://127.0.0.1:1/x", 302)) as player:
        done = replay(player.url(), schedule([0.0]))
    assert ("http_302", 1) == (done.outcome(0), len(player.received))
    assert "http://127.0.0.1:1/x" in done.error(0)


def test_a_redirect_to_nowhere_is_a_lost_connection() -> None:
    """Nobody listens where the redirect leads, or its host does not exist."""
    with Player(lambda *_: redirect_to("http://127.0.0.1:1/x")) as player:
        assert "connection_lost" == replay(player.url(), schedule([0.0])).outcome(0)
    with Player(lambda *_: redirect_to("http://no-such-host.invalid/x")) as player:
        assert "http_307" == replay(player.url(), schedule([0.0])).outcome(0)


def test_preflight_says_that_every_request_takes_a_detour() -> None:
    """The probe follows, and the user is told to name the right target."""

    def script(received: Received, _number: int) -> Play:
        if received.head.startswith(b"GET"):
            body = json.dumps({"data": [{"id": "m"}]}).encode()
            return Play([(0, response_head(200, {"Content-Length": str(len(body))}) + body)])
        return Play([(0, ANSWER)]) if b"/moved " in received.head else redirect_to("/moved")

    with Player(script) as player:
        found = preflight(Endpoint.parse(player.url()))
    assert f"{player.url()}/moved" == found.facts["redirected_to"]
    assert 1 == sum("detour" in warning for warning in found.warnings)
    assert "moved" not in msgspec.json.encode(found.endpoint).decode()
