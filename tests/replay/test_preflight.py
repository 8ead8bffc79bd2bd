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
from tests.replay.player import Play, Player, Received, chunk, response_head
from tests.replay.replaying import schedule
from tests.replay.streams import answer_bytes

MODELS = {"data": [{"id": "tiny", "max_model_len": 4096}, {"id": "other"}]}


def reply(status: int, document: object) -> Play:
    body = json.dumps(document).encode()
    return Play([(0, response_head(status, {"Content-Length": str(len(body))}) + body)])


def look(script: object, models: Play | None = None, **options: object) -> tuple[Preflight, list[Received]]:
    """Run preflight against a server whose POSTs are answered by `script(json body)`."""

    def answer(received: Received, _number: int) -> Play:
        if received.head.startswith(b"GET"):
            return models or reply(200, MODELS)
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
        (404, {"error": {"message": "This is a chat model."}}, "wrong_api", "chat model"),
        (401, {"error": "no key"}, "unauthorized", "without a key with 401: no key"),
        (403, {}, "unauthorized", "403"),
        (400, {"error": {"message": "nothing works"}}, "refused", "nothing works"),
        (500, {"error": {"message": "nothing works"}}, "refused", "a plain request with 500: nothing works"),
        (405, {}, "refused", "405"),
        (302, {}, "redirected", "302"),
    ],
)
def test_refusals_end_the_run_with_one_sentence(status: int, document: object, code: str, words: str) -> None:
    """Unknown model, another API's, wrong path, missing key, a request no form of which is taken."""
    with pytest.raises(TargetError) as raised:
        look(lambda _body: reply(status, document), model="x")
    assert code == raised.value.code
    assert words in raised.value.message
    assert raised.value.hint


def test_a_server_error_is_its_own_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy or broken server or a reset connection is a warning: the run goes on and shows it."""
    monkeypatch.setattr("loadtest.replay.negotiation.LONGEST_WAIT_S", 0.0)
    found, _ = look(lambda _body: reply(503, {"error": "loading"}))
    assert any("loading" in warning for warning in found.warnings)
    found, _ = look(lambda _body: Play([], "reset"))
    assert any("the run goes on" in warning for warning in found.warnings)
    found, _ = look(lambda _body: Play([(0, response_head(502, {"Content-Length": "3"}) + b"<p>")]))
    assert any("<p>" in warning for warning in found.warnings)


WAYS_TO_SHOW_A_KEY: list[tuple[dict[str, object], str]] = [
    ({}, "without a key"),
    ({"api_key_env": "MY_KEY"}, "with the key from MY_KEY"),
    ({"headers": ("api-key: sesame",)}, "with the header api-key of --header"),
]


@pytest.mark.parametrize(("options", "shown"), WAYS_TO_SHOW_A_KEY)
@pytest.mark.parametrize("model", ["", "m"])
def test_a_refused_key_is_named_and_not_shown(
    options: dict[str, object], shown: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was tried is said; with a model's name the list does not matter, only the request itself."""
    monkeypatch.setenv("MY_KEY", "sesame")
    denied = reply(401, {"error": "no"})
    with pytest.raises(TargetError) as raised:
        look(lambda _: denied, denied, model=model, **options)
    error = raised.value
    assert "unauthorized" == error.code
    assert f"{shown} with 401: no" in error.message
    assert ("/v1/models" in error.message, "--model NAME" in error.hint) == (not model, not model)
    assert ("--api-key-env" in error.hint) == (not options)
    assert "sesame" not in error.message + error.hint


@pytest.mark.parametrize("status", [401, 403, 404, 405, 500, 502])
def test_a_refused_list_is_no_refused_model(status: int) -> None:
    """A key may use a model and not list it: a warning, and the load goes."""
    found, received = look(accept, reply(status, {"detail": "no list"}), model="m")
    assert ("m", 2) == (found.endpoint.model, len(received))
    assert any(f"/v1/models answers {status}: no list" in warning for warning in found.warnings)


def test_a_server_without_a_list_wants_a_name() -> None:
    """The hint says so when its request needs one."""
    with pytest.raises(TargetError) as raised:
        look(lambda _: reply(400, {"error": "which model?"}), reply(404, {}))
    assert "--model NAME" in raised.value.hint


def test_a_length_that_no_name_gives_is_said() -> None:
    """The load goes, the probe waits for no end, and the user is told what the schedule then is worth."""
    endless = [
        (0, response_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})),
        *((20.0 * i, chunk(b'data: {"choices":[{"index":0,"text":" a"}]}\n\n')) for i in range(500)),
    ]
    lengths = {"max_tokens", "max_completion_tokens"}
    found, received = look(
        lambda body: reply(400, {"error": f"no {min(lengths & set(body))}"}) if lengths & set(body) else Play(endless)
    )
    assert ("", "max_tokens") == (found.endpoint.length_field, found.facts["fields_refused"])
    assert any("answers may be of any length" in warning for warning in found.warnings)
    assert "reports_usage" not in found.facts
    assert 6 == len(received)


def test_what_the_server_wants_otherwise_is_recorded() -> None:
    """The fields left out, the new name and every probe stand in run.json."""
    wants = {"model", "prompt", "stream", "stream_options", "max_completion_tokens", "temperature", "min_tokens"}
    found, _ = look(
        lambda body: reply(400, {"error": f"unknown {odd[0]}"}) if (odd := sorted(set(body) - wants)) else accept(body)
    )
    facts = found.facts
    assert ("ignore_eos", "max_tokens=max_completion_tokens") == (facts["fields_refused"], facts["fields_renamed"])
    assert str(facts["probes"]).startswith("in full: 400; without ignore_eos: 400; ")


def test_own_fields_of_the_user_end_the_run() -> None:
    """They are never left out, and the error names the one."""
    with pytest.raises(TargetError) as raised:
        look(
            lambda body: reply(400, {"error": "no top_k"}) if "top_k" in body else accept(body), extra_body=("top_k=3",)
        )
    assert "refuses 'top_k', a field of your own, with 400: no top_k" in raised.value.message


@pytest.mark.parametrize(
    ("path", "listed", "hint"),
    [
        ("", True, "try --api chat"),
        ("", False, "/completions? Give"),
        ("/v1/v1", False, "/v1/completions? Give"),
        ("/openai", False, "/openai/v1/completions? Give"),
    ],
)
def test_a_wrong_path_comes_with_a_likely_one(path: str, listed: bool, hint: str) -> None:
    """The API's other place: /v1 twice, left out, or where there is none; another API where the server is right."""

    def answer(received: Received, _number: int) -> Play:
        return (
            reply(200, MODELS) if listed and received.head.startswith(b"GET") else reply(404, {"detail": "Not Found"})
        )

    with Player(answer) as player, pytest.raises(TargetError) as raised:
        preflight(Endpoint.parse(player.url(path), model="m"))
    assert f"{player.url(path or '/v1')}/completions answers 404: Not Found" == raised.value.message
    assert hint in raised.value.hint
    assert "/v1/v1" not in raised.value.hint


def test_a_web_page_is_no_answer() -> None:
    """200 with the front page of something else: every request would get it."""
    page = response_head(200, {"Content-Type": "text/html; charset=utf-8", "Content-Length": "6"}) + b"<html>"
    with pytest.raises(TargetError, match="answers with a web page"):
        look(lambda _: Play([(0, page)]))


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
