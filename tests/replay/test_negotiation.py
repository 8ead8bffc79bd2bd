"""The form of a request that a server takes is found with few probes, and nothing is given up for a passing fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loadtest.replay import negotiation
from loadtest.replay.answer import Answer
from loadtest.replay.bodies import RequestBuilder
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.negotiation import MAX_PROBES, Negotiated, Negotiation
from loadtest.replay.stamps import NO_STAMP
from tests.replay.player import response_head
from tests.replay.streams import answer_bytes
from workloads.prompts import Prompts

Body = dict[str, Any]
Reply = tuple[int, Any] | None  # a status and what it says; None for an answer
Server = Callable[[Body], Reply]

EVERYTHING = {"model", "messages", "prompt", "stream", "stream_options", "temperature"} | {
    *("max_tokens", "min_tokens", "ignore_eos"),
}
PLAIN = {"model", "messages", "prompt", "stream"}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negotiation, "LONGEST_WAIT_S", 0.0)


def talk(server: Server, **options: Any) -> tuple[Negotiated, list[Body]]:
    """Negotiate with a server in this process; the bodies it got."""
    got: list[Body] = []

    def send(endpoint: Endpoint, output_tokens: int) -> Answer:
        request = RequestBuilder(endpoint, Prompts(0, "s")).build(0, 8, output_tokens)
        got.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        reply, answer = server(got[-1]), Answer(endpoint.dialect)
        if reply is None:
            answer.feed([(1, NO_STAMP, answer_bytes([" a", " b"]))])
        elif reply[0]:
            data = reply[1] if isinstance(reply[1], bytes) else json.dumps(reply[1]).encode()
            head = response_head(reply[0], {"Content-Length": str(len(data)), "Retry-After": "0"})
            answer.feed([(1, NO_STAMP, head + data)])
        else:
            answer.error = "connection reset by peer"
        return answer

    return Negotiation(Endpoint.parse("h:1", model="m", **options), send).run(), got


def error(message: str, **more: Any) -> Body:
    return {"error": {"message": message, **more}}


def takes_only(fields: set[str], says: Callable[[str], Reply], *, ids: bool = True) -> Server:
    """A server that refuses the first field beyond these, and token ids unless it takes them."""

    def server(body: Body) -> Reply:
        unknown = sorted(set(body) - fields)
        if unknown:
            return says(unknown[0])
        return None if ids or not isinstance(body.get("prompt"), list) else says("prompt")

    return server


def o_series(body: Body) -> Reply:
    """OpenAI's newer models, on Azure too."""
    if "max_tokens" in body:
        said = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return 400, error(said, param="max_tokens", code="unsupported_parameter")
    unknown = sorted(set(body) - PLAIN - {"stream_options", "max_completion_tokens", "temperature"})
    if unknown:
        return 400, error(f"Unrecognized request argument supplied: {unknown[0]}", param=None)
    if body.get("temperature", 1) != 1:
        said = "Unsupported value: 'temperature' does not support 0.0. Only the default (1) value is supported."
        return 400, error(said, param="temperature")
    return None


def litellm(body: Body) -> Reply:
    """A gateway: 500 with a traceback that names the field, for token ids without any."""
    for name in ("ignore_eos", "min_tokens"):
        if name in body:
            return 500, error(f"got an unexpected keyword argument '{name}'\nTraceback: max_tokens=2, temperature=0")
    return (500, error("'list' object has no attribute 'strip'")) if isinstance(body.get("prompt"), list) else None


def fastapi(name: str) -> Reply:
    return 422, {"detail": [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs", "input": {}}]}


def silent(_name: str) -> Reply:
    return 400, error("Bad Request")


def rows() -> Iterator[tuple[str, Server, dict[str, Any], str, set[str], bool, int]]:
    """Name, server, options; then the length's name, the fields left out, token ids, the number of probes."""
    strict = takes_only(PLAIN | {"max_tokens"}, fastapi)
    yield "takes all", lambda _: None, {}, "max_tokens", set(), True, 1
    chat = {"api": "chat"}
    yield "o-series", o_series, chat, "max_completion_tokens", {"min_tokens", "ignore_eos", "temperature"}, False, 9
    yield "LiteLLM", litellm, {}, "max_tokens", {"min_tokens", "ignore_eos"}, False, 9
    yield "FastAPI", strict, {}, "max_tokens", {"min_tokens", "ignore_eos", "stream_options", "temperature"}, True, 9
    ids = takes_only(EVERYTHING, silent, ids=False)
    yield "no ids, unnamed", ids, {}, "max_tokens", set(), False, 7
    eos = takes_only(EVERYTHING - {"ignore_eos"}, silent)
    yield "one field, unnamed", eos, {}, "max_tokens", {"ignore_eos"}, True, 7
    renamed = takes_only(EVERYTHING - {"max_tokens"} | {"max_completion_tokens"}, silent)
    yield "another length, unnamed", renamed, {}, "max_completion_tokens", set(), True, 9
    new = takes_only(
        EVERYTHING - {"max_tokens"} | {"max_new_tokens"}, lambda name: (400, error(f"{name}? max_new_tokens!"))
    )
    yield "a length of its own", new, {}, "max_new_tokens", set(), True, 3
    endless = takes_only(EVERYTHING - {"max_tokens"}, fastapi)
    yield "no length at all", endless, {}, "", set(), True, 5
    in_band = takes_only(EVERYTHING - {"ignore_eos"}, lambda name: (200, error(f"unknown {name}")))
    yield "an error within a 200", in_band, {}, "max_tokens", {"ignore_eos"}, True, 3
    page = takes_only(EVERYTHING - {"ignore_eos"}, lambda _: (502, b"<h1>Bad Gateway</h1>"))
    yield "a page", page, {}, "max_tokens", {"ignore_eos"}, True, 7
    differs = takes_only(EVERYTHING - {"ignore_eos", "min_tokens"}, lambda n: (500, b"") if n[0] == "i" else (422, b""))
    yield "other words each time", differs, {}, "max_tokens", {"ignore_eos", "min_tokens"}, True, 7
    misled = takes_only(
        EVERYTHING - {"ignore_eos"}, lambda name: (400, error(f"temperature, min_tokens and {name}: one!"))
    )
    yield "misleading", misled, {}, "max_tokens", {"ignore_eos"}, True, 7
    native = takes_only({"prompt", "n_predict", "stream"}, silent)
    yield "llama.cpp", native, {"api": "llamacpp"}, "n_predict", {"ignore_eos", "temperature"}, True, 5


@pytest.mark.parametrize(
    ("server", "options", "length", "left_out", "ids", "probes"), [r[1:] for r in rows()], ids=[r[0] for r in rows()]
)
def test_the_fullest_form_that_is_taken(
    server: Server, options: dict[str, Any], length: str, left_out: set[str], ids: bool, probes: int
) -> None:
    """Exactly what the server refuses is given up, within a counted number of probes."""
    found, got = talk(server, **options)
    assert found.accepted
    assert not found.final
    used = found.endpoint
    assert (length, ids) == (used.length_field, used.prompts_as_ids)
    assert left_out == set(used.leave_out) - {*used.dialect.lengths}
    assert probes == len(got) == len(found.tried)
    assert server(json.loads(RequestBuilder(used, Prompts(0, "s")).build(0, 8, 77).partition(b"\r\n\r\n")[2])) is None


def test_each_rows_length_goes_by_the_new_name() -> None:
    """Not the probe's."""
    found, _ = talk(o_series, api="chat")
    body = json.loads(RequestBuilder(found.endpoint, Prompts(0, "s")).build(0, 8, 77).partition(b"\r\n\r\n")[2])
    assert 77 == body["max_completion_tokens"]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("fault", [(500, error("hiccup, ignore_eos=True")), (400, error("max_tokens?")), (502, b"<p>")])
def test_a_passing_fault_costs_nothing(times: int, fault: Reply) -> None:
    """The first answers are errors, whatever they name; the full form is kept all the same."""
    faults = [fault] * times

    def server(_body: Body) -> Reply:
        return faults.pop() if faults else None

    found, got = talk(server)
    assert (True, "max_tokens", []) == (found.accepted, found.endpoint.length_field, found.endpoint.leave_out)
    assert found.endpoint.prompts_as_ids
    assert "max_tokens" in got[-1] or "max_tokens" in got[-2]


@pytest.mark.parametrize("body", [error("no"), error("no: ignore_eos, max_tokens"), b"no", b""])
@pytest.mark.parametrize("status", [400, 404, 405, 422])
def test_what_refuses_everything_gets_no_load(status: int, body: Any) -> None:
    """After at most two forms per field, the last of them refused twice."""
    found, got = talk(lambda _: (status, body))
    assert found.final
    assert not found.accepted
    assert len(got) <= 10
    assert got[-1] == got[-2]


def test_an_api_that_fails_at_everything_gets_no_load_and_a_broken_server_does() -> None:
    """500 in the API's own words twice for the plainest form; a proxy's page is evidence for the run to record."""
    assert talk(lambda _: (500, error("boom")))[0].final
    found, _ = talk(lambda _: (502, b"<h1>Bad Gateway</h1>"))
    assert (False, []) == (found.final, found.endpoint.leave_out)


@pytest.mark.parametrize(("status", "asked"), [(429, 3), (503, 3), (0, 1), (302, 1)])
def test_what_says_nothing_of_the_request_changes_nothing(status: int, asked: int) -> None:
    """A busy server is asked again a few times; then the run is the one to record it."""
    found, got = talk(lambda _: (status, b""))
    assert (asked, False, []) == (len(got), found.final, found.endpoint.leave_out)


def test_a_busy_moment_is_waited_for() -> None:
    """503 once in the middle."""
    replies: list[Reply] = [(422, error("ignore_eos")), (503, b""), None, (422, error("ignore_eos"))]
    waiting = iter(replies)
    found, got = talk(lambda _: next(waiting))
    assert (["ignore_eos"], 4) == (found.endpoint.leave_out, len(got))


@pytest.mark.parametrize("status", [401, 403])
def test_the_key_ends_it_at_once(status: int) -> None:
    """No form of a request opens a door."""
    found, got = talk(lambda _: (status, error("no")))
    assert (1, True) == (len(got), found.final)


def test_an_unknown_model_and_another_api_end_it_at_once() -> None:
    """Unless the words name a field: then that is tried first."""
    assert 1 == len(talk(lambda _: (404, error("The model `m` does not exist")))[1])
    assert 1 == len(talk(lambda _: (400, error("This is a chat model")))[1])
    found, got = talk(lambda body: (400, error("ignore_eos: not found in model m")) if "ignore_eos" in body else None)
    assert (["ignore_eos"], 3) == (found.endpoint.leave_out, len(got))


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({"extra_body": ("top_k=3",)}, "top_k"),
        ({"extra_body": ("temperature=0.5",)}, "temperature"),
        ({"extra_body": ('stream_options={"x":1}',)}, "stream_options"),
        ({"rename_field": ("max_tokens=max_output",)}, "max_output"),
        ({"extra_body": ("n=2",)}, "n"),
    ],
)
@pytest.mark.parametrize("expected", ["", ", expected one of `model`, `max_tokens`, `stream`"])
def test_the_users_own_fields_are_never_given_up(options: dict[str, Any], own: str, expected: str) -> None:
    """The run ends, and says which of them is refused."""
    known = EVERYTHING - {own}
    found, got = talk(takes_only(known, lambda name: (422, error(f"unknown field `{name}`{expected}"))), **options)
    assert (True, own) == (found.final, found.own_field)
    assert all(own in body for body in got)
    assert len(got) <= 6


def test_what_the_user_leaves_out_stays_out() -> None:
    """--drop-field and --rename-field are no guesses: nothing of theirs is tried again."""
    options = {"rename_field": ("max_tokens=max_completion_tokens",), "drop_field": ("min_tokens", "temperature")}
    found, got = talk(o_series, api="chat", **options)
    assert not any({"min_tokens", "temperature", "max_tokens"} & set(body) for body in got)
    assert (["min_tokens", "temperature", "ignore_eos"], 3) == (found.endpoint.leave_out, len(got))
    assert "max_completion_tokens" == found.endpoint.length_field


def test_one_length_for_all_takes_the_floor_away() -> None:
    """`min_tokens` of a row above the user's own `max_tokens` would be refused in the load, not in the probe."""
    found, got = talk(lambda _: None, extra_body=("max_tokens=32",))
    assert (32, 1) == (got[0]["max_tokens"], len(got))
    assert "min_tokens" not in got[0]
    kept, got = talk(lambda _: None, extra_body=("max_tokens=32", "min_tokens=32"))
    assert (32, []) == (got[0]["min_tokens"], kept.endpoint.leave_out)
    assert found.asked.leave_out == found.endpoint.leave_out == ["min_tokens"]


def test_a_length_too_short_for_the_server_is_no_refused_field() -> None:
    """The probe asks for more."""

    def server(body: Body) -> Reply:
        said = "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16, but got 2 instead."
        return (400, error(said, param="max_tokens")) if body["max_tokens"] < 16 else None

    found, got = talk(server)
    assert (16, "max_tokens", [2, 16]) == (
        found.output_tokens,
        found.endpoint.length_field,
        [body["max_tokens"] for body in got],
    )


def test_each_probe_says_what_it_tries() -> None:
    """For run.json and for the error."""
    found, _ = talk(o_series, api="chat")
    assert "in full: 400" == found.tried[0]
    assert "max_completion_tokens for max_tokens: 400" == found.tried[1]
    assert found.tried[4].endswith(": 200")


def test_the_number_of_probes_is_bounded() -> None:
    """A server that names another field each time, at random and with busy moments."""
    numbers = iter(range(10_000))
    names = ["min_tokens", "", "temperature", "max_tokens", "ignore_eos", "max_completion_tokens"]

    def server(_body: Body) -> Reply:
        number = next(numbers)
        return (503, b"") if number % 2 else (400 + number % 3, error(names[number % len(names)]))

    assert len(talk(server)[1]) <= MAX_PROBES
