"""Preflight: what a server accepts, and the one sentence when no load should be sent."""

from __future__ import annotations

import dataclasses
import json
import socket

import numpy as np
import pytest

from loadtest.errors import TargetError
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.preflight import Preflight, preflight
from tests.replay.player import Play, Player, Received, response_head
from tests.replay.replaying import schedule
from tests.replay.streams import answer_bytes

MODELS = {"data": [{"id": "tiny", "max_model_len": 4096}, {"id": "other"}]}


def reply(status: int, document: object) -> Play:
    body = json.dumps(document).encode()
    return Play([(0, response_head(status, {"Content-Length": str(len(body))}) + body)])


def look(script: object, **options: object) -> tuple[Preflight, list[Received]]:
    """Run preflight against a server whose POSTs are answered by `script(json body)`."""

    def answer(received: Received, _number: int) -> Play:
        if received.head.startswith(b"GET"):
            return reply(200, MODELS)
        return script(json.loads(received.body))  # type: ignore[operator,no-any-return]

    with Player(answer) as player:
        return preflight(Endpoint.parse(player.url(), **options)), player.received  # type: ignore[arg-type]


def accept(_body: dict[str, object]) -> Play:
    return Play([(0, answer_bytes([" a", " b"]))])


def test_a_willing_server_gets_the_full_request() -> None:
    """Token ids, exact lengths and usage are kept where the server takes them; its first model is loaded."""
    found, received = look(accept)
    assert ("tiny", "ids", []) == (found.endpoint.model, found.endpoint.prompt_form, found.endpoint.leave_out)
    assert (4096, True, True) == (found.max_model_len, found.facts["reports_usage"], found.facts["obeys_length"])
    body = json.loads(received[-1].body)
    assert (8, 2, 2, True) == (len(body["prompt"]), body["max_tokens"], body["min_tokens"], body["ignore_eos"])
    assert 2 == len(received)


def test_a_server_that_refuses_ids_gets_words() -> None:
    """400 on token ids: exactly as many words instead."""
    found, received = look(
        lambda body: accept(body) if isinstance(body["prompt"], str) else reply(400, {"error": "ids"})
    )
    assert "text" == found.endpoint.prompt_form
    assert 8 == len(json.loads(received[-1].body)["prompt"].split(" "))


def test_refused_fields_are_left_out_and_said() -> None:
    """422 on unknown fields: they are left out one after the other, and the user is told what it means."""
    found, _ = look(
        lambda body: reply(422, {"detail": "extra"}) if {"min_tokens", "ignore_eos"} & set(body) else accept(body)
    )
    assert ["min_tokens", "ignore_eos"] == found.endpoint.leave_out
    assert any("shorter" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("status", "document", "code", "words"),
    [
        (404, {"error": {"message": "The model `x` does not exist."}}, "model_not_found", "does not exist"),
        (404, {"detail": "Not Found"}, "not_found", "404"),
        (401, {"error": "no key"}, "unauthorized", "no key"),
        (403, {}, "unauthorized", "403"),
        (400, {"error": {"message": "nothing works"}}, "refused", "nothing works"),
    ],
)
def test_refusals_end_the_run_with_one_sentence(status: int, document: object, code: str, words: str) -> None:
    """Unknown model, wrong path, missing key, a request no form of which is taken."""
    with pytest.raises(TargetError) as raised:
        look(lambda _body: reply(status, document), model="x")
    assert code == raised.value.code
    assert words in raised.value.message
    assert raised.value.hint


def test_a_server_error_is_its_own_evidence() -> None:
    """A 5xx or a reset connection is a warning: the run goes on and shows it."""
    found, _ = look(lambda _body: reply(503, {"error": "loading"}))
    assert any("loading" in warning for warning in found.warnings)
    found, _ = look(lambda _body: Play([], "reset"))
    assert any("the run goes on" in warning for warning in found.warnings)


def test_a_closed_port_is_named() -> None:
    """Nobody listens: one sentence with the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(TargetError, match=rf"cannot connect to http://127\.0\.0\.1:{port}: connection refused"):
        preflight(Endpoint.parse(f"127.0.0.1:{port}"))


def test_an_unknown_host_is_named() -> None:
    """A host that does not resolve is named before anything is tried."""
    with pytest.raises(TargetError, match=r"host 'no-such-host\.invalid' cannot be found"):
        preflight(Endpoint.parse("http://no-such-host.invalid:1"))


def test_a_trace_that_cannot_fit_is_refused() -> None:
    """When no row fits the context there is nothing to measure; some rows are a warning."""

    def check(prompts: list[int]) -> Preflight:
        shard = dataclasses.replace(schedule([0.0] * len(prompts)), prompt_tokens=np.array(prompts, dtype=np.int32))
        with Player(lambda r, _: reply(200, MODELS) if r.head.startswith(b"GET") else accept({})) as player:
            return preflight(Endpoint.parse(player.url()), shard)

    with pytest.raises(TargetError, match="no row of the trace fits"):
        check([5000, 4090])
    assert any("1 of 2 requests exceed" in warning for warning in check([5000, 4000]).warnings)


def test_something_that_is_not_http_is_named() -> None:
    """A port where another protocol answers is no HTTP server."""
    with Player(lambda *_: Play([(0, b"+PONG\r\n\r\n")])) as player, pytest.raises(TargetError, match="HTTP"):
        preflight(Endpoint.parse(player.url()))


@pytest.mark.parametrize("length", [True, -1, 0, "4096", 1e3, 10**30])
def test_a_length_that_is_none(length: object) -> None:
    """Whatever a server writes there: only a count of tokens leaves rows out."""

    def answer(received: Received, _number: int) -> Play:
        if received.head.startswith(b"GET"):
            return reply(200, {"data": [{"id": "tiny", "max_model_len": length}]})
        return accept({})

    with Player(answer) as player:
        found = preflight(Endpoint.parse(player.url()))
    assert found.max_model_len is None
    assert "tiny" == found.endpoint.model


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time, and for ever: the preflight says so, and the run goes on."""
    monkeypatch.setattr("loadtest.replay.preflight.EXCHANGE_LIMIT_S", 0.2)
    pings = [
        (0, response_head(200, {"Content-Type": "text/event-stream"})),
        *((20 * i, b": ping\n\n") for i in range(500)),
    ]
    found, _ = look(lambda _: Play(pings))
    assert any("no end of an answer within 0.2 s" in warning for warning in found.warnings)
