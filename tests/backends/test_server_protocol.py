"""What may be asked, and the recorded sentences of a real vLLM for what may not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.backends.server.frames import Api
from loadtest.backends.server.protocol import ApiError, Ask, answer_id, count_words, read_ask

CONTEXT = 8192


def ask(api: Api = "completions", **body: Any) -> Ask:
    return read_ask(api, json.dumps(body).encode(), model="tiny", max_model_len=CONTEXT)


def refusal(api: Api = "completions", **body: Any) -> ApiError:
    with pytest.raises(ApiError) as raised:
        ask(api, **body)
    return raised.value


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ([1, 2, 3], 3),
        ([[1, 2, 3, 4]], 4),
        ("one two  three", 3),
        (["one two"], 2),
        ("   ", 1),
        ([7], 1),
    ],
)
def test_prompt_tokens_of_every_form(prompt: object, tokens: int) -> None:
    """Ids are counted one by one, text by its words."""
    assert tokens == ask(prompt=prompt).prompt_tokens


@given(st.integers(1, 500))
def test_n_words_are_n_tokens(count: int) -> None:
    """A prompt of exactly n space-separated words is n tokens."""
    assert count == count_words(" ".join(["word"] * count))


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([{"role": "user", "content": "hello big world"}], 3),
        ([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}], 3),
        ([{"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {}}]}], 2),
        ([{"role": "user", "content": None}], 1),
    ],
)
def test_chat_tokens_are_the_words_of_all_messages(messages: object, tokens: int) -> None:
    """No template is added, so a planned count is met exactly."""
    assert tokens == ask("chat", messages=messages).prompt_tokens


def test_fields_of_vllm_are_accepted() -> None:
    """What load generators send for fixed lengths has no effect and is no error, nor is an unknown field."""
    asked = ask(
        model="tiny", prompt=[1], max_tokens=5, min_tokens=5, ignore_eos=True, temperature=0, top_p=1, no_such_field=1
    )
    assert 5 == asked.max_tokens
    assert not asked.stream


def test_usage_is_given_when_asked() -> None:
    """stream_options decides; continuous usage needs include_usage, as in vLLM."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    both = ask(prompt=[1], stream=True, stream_options=options)
    assert (True, True) == (both.include_usage, both.continuous_usage)
    only = ask(prompt=[1], stream=True, stream_options={"continuous_usage_stats": True})
    assert (False, False) == (only.include_usage, only.continuous_usage)


def test_lengths_not_given() -> None:
    """Completions default to 16 tokens, chat to the rest of the context; max_completion_tokens wins."""
    assert 16 == ask(prompt=[1]).max_tokens
    messages = [{"role": "user", "content": "a b"}]
    assert CONTEXT - 2 == ask("chat", messages=messages).max_tokens
    assert 7 == ask("chat", messages=messages, max_tokens=9, max_completion_tokens=7).max_tokens


def test_output_is_cut_to_the_context() -> None:
    """8,000 + 4,096 tokens were accepted by vLLM and answered with 192."""
    assert 192 == ask(prompt=[1] * 8000, max_tokens=4096).max_tokens


def test_over_long_prompt_is_vllms_400() -> None:
    """The recorded sentence, word for word."""
    error = refusal(prompt=[1] * 9000)
    recorded = (
        "This model's maximum context length is 8192 tokens. However, your prompt contains 9000 input tokens, which "
        "exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=9000)"
    )
    expected = {"message": recorded, "type": "BadRequestError", "param": "input_tokens", "code": 400}
    assert {"error": expected} == json.loads(error.body())


def test_unknown_model_is_vllms_404() -> None:
    """The recorded sentence, word for word."""
    error = refusal(model="no-such-model", prompt=[1])
    recorded = "The model `no-such-model` does not exist. Valid aliases: tiny."
    expected = {"message": recorded, "type": "NotFoundError", "param": "model", "code": 404}
    assert {"error": expected} == json.loads(error.body())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"prompt": [1], "max_tokens": 0}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        ({"prompt": [1], "max_tokens": -1}, "max_tokens must be at least 1, got -1. (parameter=max_tokens, value=-1)"),
        ({"prompt": []}, "You must pass at least one prompt"),
        ({"prompt": [[]]}, "You must pass at least one prompt"),
        ({"prompt": ""}, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"),
        ({}, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"),
        (
            {"prompt": [1], "temperature": -1},
            "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)",
        ),
        (
            {"prompt": [1], "stream_options": {"include_usage": True}},
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
        ),
        ({"prompt": [[1], [2]]}, "This server answers one prompt per request, got 2."),
        ({"prompt": ["a", 2]}, "This server answers one prompt per request, got 2."),
        ({"prompt": [1], "n": 2}, "This server gives one choice per request, got n=2."),
        ({"prompt": [1], "echo": True}, "This server cannot echo the prompt."),
    ],
)
def test_bad_requests_say_what_is_wrong(body: dict[str, Any], sentence: str) -> None:
    """Status 400 and a sentence that names the parameter."""
    error = refusal(**body)
    assert (400, sentence) == (error.status, error.message)


@pytest.mark.parametrize(
    "body",
    [b"", b'{"prompt": ', b"[1]", b"\xff", b'{"prompt": 1}', b'{"prompt": [1], "max_tokens": "x"}', b"[" * 99999],
)
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_bodies_that_are_no_request_are_400(api: Api, body: bytes) -> None:
    """Broken JSON, wrong types, wrong encoding: never a 500."""
    with pytest.raises(ApiError) as raised:
        read_ask(api, body, model="tiny", max_model_len=CONTEXT)
    assert 400 == raised.value.status


def test_chat_needs_messages() -> None:
    """An empty conversation is refused."""
    assert 400 == refusal("chat", messages=[]).status


def test_answer_ids() -> None:
    """The client's X-Request-Id is kept, capped; without one ids are random."""
    assert "cmpl-trace-0001" == answer_id("completions", "trace-0001")
    assert len("chatcmpl-") + 128 == len(answer_id("chat", "x" * 1000))
    assert answer_id("chat", None) != answer_id("chat", None)
    assert answer_id("chat", "a\x7fb").startswith("chatcmpl-")
    assert "\x7f" not in answer_id("chat", "a\x7fb")


INTEGERS = ("max_tokens", "n", "top_k", "seed", "min_tokens")


@pytest.mark.parametrize("value", ["9223372036854775808", "-9223372036854775809", "18446744073709551616", "9" * 400])
def test_numbers_beyond_a_machine_word_are_400(value: str) -> None:
    """Every integer of both bodies: what a worker's message cannot carry is refused at the door."""
    bodies: list[tuple[Api, str]] = [("completions", f'{{"prompt":[1],"{name}":{value}}}') for name in INTEGERS]
    bodies += [("chat", f'{{"messages":[{{"role":"user","content":"a"}}],"{name}":{value}}}') for name in INTEGERS]
    bodies += [
        ("completions", f'{{"prompt":[1,{value}]}}'),
        ("completions", f'{{"prompt":[[{value}]]}}'),
        ("completions", f'{{"prompt":[1],"stop_token_ids":[{value}]}}'),
        ("completions", f'{{"prompt":[1],"best_of":{value}}}'),
        ("chat", f'{{"messages":[{{"role":"user","content":"a"}}],"max_completion_tokens":{value}}}'),
    ]
    for api, body in bodies:
        with pytest.raises(ApiError) as raised:
            read_ask(api, body.encode(), model="tiny", max_model_len=CONTEXT)
        assert 400 == raised.value.status, body


def test_the_largest_machine_word_is_a_seed() -> None:
    """As in vLLM, whose seeds are 64 bits wide."""
    for seed in (2**63 - 1, -(2**63)):
        assert seed == ask(prompt=[1], seed=seed).wish.seed


def test_a_prompt_without_a_token_is_answered_with_400() -> None:
    """An empty message where tokens are computed; where they are only counted it counts as one word."""
    body = b'{"messages":[{"role":"user","content":""}]}'
    assert 1 == read_ask("chat", body, model="tiny", max_model_len=CONTEXT).prompt_tokens
    with pytest.raises(ApiError, match="empty") as raised:
        read_ask("chat", body, model="tiny", max_model_len=CONTEXT, encode=lambda _: [], encode_chat=lambda _: [])
    assert 400 == raised.value.status


@pytest.mark.parametrize("stop", ["", ["x", ""]])
def test_an_empty_stop_string_is_refused(stop: object) -> None:
    """It is in every text, so no answer would begin."""
    assert 400 == refusal(prompt=[1], stop=stop).status
