"""What refusals of real servers mean, in their own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.replay import refusal
from loadtest.replay.answer import Answer
from loadtest.replay.dialects import Api
from loadtest.replay.stamps import NO_STAMP
from tests.replay.player import LAST_CHUNK, chunk, response_head

FIELDS = ("max_tokens", "min_tokens", "ignore_eos", "stream_options", "temperature", "prompt")


def answer(status: int, body: Any) -> Answer:
    """A whole answer; a dict becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = Answer()
    found.feed([(1, NO_STAMP, response_head(status, {"Content-Length": str(len(data))}) + data)])
    return found


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


O_SERIES = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
LITELLM = (
    "litellm.APIConnectionError: AsyncCompletions.create() got an unexpected keyword argument 'ignore_eos'\n"
    'Traceback (most recent call last):\n  File "main.py", line 617, in acompletion\n'
    "optional_params={'temperature': 0.0, 'max_tokens': 2, 'stream_options': {'include_usage': True}}"
)
NAMED: list[tuple[str, int, Any, str]] = [
    ("OpenAI, o-series", 400, error(O_SERIES, param="max_tokens", code="unsupported_parameter"), "max_tokens"),
    ("OpenAI, unknown", 400, error("Unrecognized request argument supplied: ignore_eos", param=None), "ignore_eos"),
    (
        "OpenAI, several",
        400,
        error("Unrecognized request arguments supplied: ignore_eos, min_tokens", param=None),
        "ignore_eos",
    ),
    (
        "OpenAI, value",
        400,
        error(
            "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is "
            "supported.",
            param="temperature",
            code="unsupported_value",
        ),
        "temperature",
    ),
    (
        "Azure",
        400,
        error("Unknown parameter: 'min_tokens'.", param="min_tokens", code="unknown_parameter"),
        "min_tokens",
    ),
    ("OpenAI by LiteLLM", 400, error(f"OpenAIException - {{'error': {{'message': \"{O_SERIES}\"}}}}"), "max_tokens"),
    ("OpenAI, JSON in a string", 400, error('[400]: {\\n  \\"param\\": \\"max_tokens\\"\\n}'), "max_tokens"),
    ("LiteLLM", 500, error(LITELLM, type=None, code="500"), "ignore_eos"),
    (
        "FastAPI",
        422,
        {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "ignore_eos"],
                    "msg": "Extra inputs are not permitted",
                    "input": True,
                }
            ]
        },
        "ignore_eos",
    ),
    (
        "FastAPI, whole body echoed",
        422,
        {"detail": [{"loc": ["body"], "msg": "Extra inputs are not permitted", "input": {"max_tokens": 2}}]},
        "",
    ),
    (
        "vLLM",
        400,
        {
            "object": "error",
            "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'min_tokens'), 'msg': 'Extra inputs'}]",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        "min_tokens",
    ),
    (
        "Mistral",
        422,
        {
            "object": "error",
            "message": {
                "detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs"}]
            },
        },
        "stream_options",
    ),
    ("Anthropic", 400, error("ignore_eos: Extra inputs are not permitted"), "ignore_eos"),
    ("Groq", 400, error("property 'min_tokens' is unsupported"), "min_tokens"),
    (
        "TGI",
        422,
        b"Failed to deserialize the JSON body into the target type: unknown field `ignore_eos`, expected one of "
        b"`messages`, `max_tokens`, `stream`, `temperature` at line 1 column 80",
        "ignore_eos",
    ),
    ("TGI, value", 422, {"error": "Input validation error: `temperature` must be strictly positive"}, "temperature"),
    ("Go", 400, error('json: unknown field "min_tokens"'), "min_tokens"),
    (
        "Gemini",
        400,
        error('Invalid JSON payload received. Unknown name "ignore_eos": Cannot find field.'),
        "ignore_eos",
    ),
    ("Bedrock", 400, {"error": {"message": "#: extraneous key [stream_options] is not permitted"}}, "stream_options"),
    ("JSON schema", 400, error("Additional properties are not allowed ('ignore_eos' was unexpected)"), "ignore_eos"),
    ("llama.cpp", 400, error('"prompt" must be a string, an array of strings or an array of tokens'), "prompt"),
    ("within another name", 400, error("max_completion_tokens and prompt_logprobs exclude each other"), ""),
    ("nothing named", 400, error("Bad request"), ""),
    ("no text", 400, b"", ""),
]


@pytest.mark.parametrize(("status", "body", "field"), [row[1:] for row in NAMED], ids=[row[0] for row in NAMED])
def test_the_field_that_a_server_names(status: int, body: Any, field: str) -> None:
    """By `param` or `loc`, else the first that its words mention."""
    found = answer(status, body)
    assert refusal.refused(found)
    assert field == refusal.named(found, FIELDS)
    assert not refusal.unknown_model(found)
    assert refusal.other_api(found, "completions") is None


def test_the_name_a_server_suggests_and_the_least_it_takes() -> None:
    """ "Use X instead", and a shortest answer."""
    assert "max_completion_tokens" == refusal.suggested_length(answer(400, error(O_SERIES)), but=["max_tokens"])
    assert "" == refusal.suggested_length(answer(400, error("no")), but=["max_tokens"])
    least = "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16, but got 2 instead."
    assert 16 == refusal.least_length(answer(400, error(least)))
    assert 0 == refusal.least_length(answer(400, error(O_SERIES)))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, error("The model `x` does not exist or you do not have access to it.", code="model_not_found")),
        (404, {"object": "error", "message": "The model `x` does not exist.", "code": 404}),
        (404, {"error": 'model "x" not found, try pulling it first'}),
        (400, {"object": "error", "message": "Invalid model: x", "code": "1500"}),
        (400, error("/chat/completions: Invalid model name passed in model=x")),
        (400, error("no", code="invalid_model")),
    ],
)
def test_an_unknown_model(status: int, body: Any) -> None:
    """Whatever the status."""
    assert refusal.unknown_model(answer(status, body))


@pytest.mark.parametrize(
    ("api", "message", "other"),
    [
        ("completions", "This is a chat model and not supported in the v1/completions endpoint.", "chat"),
        ("completions", "Did you mean to use v1/chat/completions?", "chat"),
        ("completions", "The completion operation does not work with the specified model, gpt-4.", "chat"),
        ("completions", "The model does not support Completions API", "chat"),
        ("chat", "This is not a chat model and thus not supported in the v1/chat/completions endpoint.", "completions"),
        ("chat", "The chatCompletion operation does not work with the specified model", "completions"),
        ("chat", "The model `x` does not support chat completions", "completions"),
        ("chat", "default chat template is no longer allowed, so you must provide a chat template", "completions"),
        ("chat", "This is a chat model", None),
        ("completions", "This is not a chat model", None),
        ("completions", "POST https://upstream/v1/chat/completions: bad request", None),
    ],
)
def test_a_model_of_the_other_api(api: Api, message: str, other: Api | None) -> None:
    """The words of OpenAI, Azure, Groq and vLLM."""
    assert other == refusal.other_api(answer(404, error(message)), api)


@pytest.mark.parametrize(
    ("status", "body", "busy", "refused"),
    [
        (429, {}, True, False),
        (503, error("Loading model"), True, False),
        (529, error("Overloaded"), True, False),
        (500, error("the engine is overloaded"), True, False),
        (500, error("oops"), False, True),
        (502, b"<html>Bad Gateway</html>", False, True),
        (401, error("no key"), False, False),
        (403, error("no"), False, False),
        (405, b"", False, True),
        (200, error("ignore_eos?"), False, True),
        (200, error("Rate limit reached", code=429), True, False),
        (200, {"choices": [{"text": "a", "finish_reason": "length"}]}, False, False),
        (302, b"", False, False),
    ],
)
def test_busy_is_not_refused(status: int, body: Any, busy: bool, refused: bool) -> None:
    """A server without room says nothing of the request; an error within a 200 is one."""
    found = answer(status, body)
    assert (busy, refused) == (refusal.busy(found), refusal.refused(found))


def test_an_error_event_refuses_and_a_broken_connection_does_not() -> None:
    """Both are a 200 with an error text."""
    head = response_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    said = Answer()
    said.feed([(1, NO_STAMP, head + chunk(b'data: {"error":{"message":"no ignore_eos"}}\n\n') + LAST_CHUNK)])
    assert refusal.refused(said)
    assert "ignore_eos" == refusal.named(said, FIELDS)
    broken = Answer()
    broken.feed([(1, NO_STAMP, head)])
    broken.error = "connection reset by peer"
    assert not refusal.refused(broken)
    assert not refusal.accepted(broken)


@pytest.mark.parametrize(
    ("status", "body", "explained"), [(500, error("x"), True), (500, b"<p>", False), (400, b"", True)]
)
def test_a_breakdown_explains_nothing(status: int, body: Any, explained: bool) -> None:
    """A page or a bare 5xx is evidence about the server, not about the request."""
    assert explained == refusal.explained(answer(status, body))
