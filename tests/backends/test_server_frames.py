"""Bytes of answers, against the recorded shapes of a real vLLM (0.32, CPU)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.backends.server.frames import WORDS, Answer, Api, StreamFrames, whole_answer

MAX_TOKENS_CHECKED = 1030  # once round the table of words


def answer(api: Api = "completions", *, id: str = "cmpl-1") -> Answer:
    return Answer(api, id, "tiny", 1795968342, 40)


def frames(
    api: Api = "completions", *, usage: bool = True, continuous: bool = False, id: str = "cmpl-1"
) -> StreamFrames:
    return StreamFrames(answer(api, id=id), include_usage=usage, continuous_usage=continuous, chunked=False)


def events(data: bytes) -> list[Any]:
    """The JSON of each SSE event; [DONE] as the string."""
    texts = data.decode().split("\n\n")
    assert texts.pop() == ""
    assert all(text.startswith("data: ") for text in texts)
    return [text[6:] if text[6:] == "[DONE]" else json.loads(text[6:]) for text in texts]


def test_completion_token_event_is_vllms() -> None:
    """Key for key, in order, what vLLM sent."""
    recorded = (
        'data: {"id":"cmpl-1","object":"text_completion","created":1795968342,"model":"tiny","choices":[{"index":0,'
        '"text":" bale","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
        '"token_ids":null}]}\n\n'
    )
    assert recorded == frames().token(1).decode()


def test_completion_end_is_vllms() -> None:
    """The last token carries the finish reason; usage and [DONE] follow."""
    recorded = (
        'data: {"id":"cmpl-1","object":"text_completion","created":1795968342,"model":"tiny","choices":[{"index":0,'
        '"text":" bala","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,'
        '"token_ids":null}]}\n\n'
        'data: {"id":"cmpl-1","object":"text_completion","created":1795968342,"model":"tiny","choices":[],'
        '"usage":{"prompt_tokens":40,"total_tokens":41,"completion_tokens":1}}\n\n'
        "data: [DONE]\n\n"
    )
    assert recorded == frames().last(0).decode()


def test_chat_opens_with_a_role_event_in_the_first_tokens_write() -> None:
    """The role event is no token and comes once."""
    role, first = events(frames("chat").token(0))
    assert {"role": "assistant", "content": ""} == role["choices"][0]["delta"]
    assert {"content": " bala"} == first["choices"][0]["delta"]
    assert "chat.completion.chunk" == role["object"] == first["object"]
    (second,) = events(frames("chat").token(1))
    assert {"content": " bale"} == second["choices"][0]["delta"]


def test_chat_of_one_token_has_role_token_usage_and_done() -> None:
    """The shortest chat answer is complete."""
    role, token, usage, done = events(frames("chat").last(0))
    assert "assistant" == role["choices"][0]["delta"]["role"]
    assert "length" == token["choices"][0]["finish_reason"]
    assert {"prompt_tokens": 40, "total_tokens": 41, "completion_tokens": 1} == usage["usage"]
    assert [] == usage["choices"]
    assert "[DONE]" == done


def test_no_usage_unless_asked() -> None:
    """Without stream_options the stream ends with the last token and [DONE]."""
    token, done = events(frames(usage=False).last(2))
    assert "usage" not in token
    assert "[DONE]" == done


def test_continuous_usage_counts_up() -> None:
    """With continuous_usage_stats every token event says how many there are."""
    stream = frames(continuous=True)
    counts = [events(stream.token(index))[-1]["usage"]["completion_tokens"] for index in range(3)]
    assert [1, 2, 3] == counts
    assert 4 == events(stream.last(3))[0]["usage"]["completion_tokens"]


def test_chunked_frames_carry_their_length() -> None:
    """Each event is one HTTP/1.1 chunk whose hexadecimal length is right, for every word."""
    stream = StreamFrames(answer(), include_usage=True, continuous_usage=False, chunked=True)
    data = b"".join(stream.token(index) for index in range(MAX_TOKENS_CHECKED)) + stream.last(MAX_TOKENS_CHECKED)
    chunks = []
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        chunks.append(data[:length])
        assert b"\r\n" == data[length : length + 2]
        data = data[length + 2 :]
    assert MAX_TOKENS_CHECKED + 3 == len(chunks)
    plain = frames()
    assert [plain.token(index) for index in range(MAX_TOKENS_CHECKED)] == chunks[:MAX_TOKENS_CHECKED]


@pytest.mark.parametrize("id", ["@@@@@", 'cmpl-"\\', "cmpl-é"])
def test_hostile_ids_stay_json(id: str) -> None:
    """An id chosen by the client cannot break the template."""
    (event,) = events(frames(id=id).token(1))
    assert id == event["id"]
    assert " bale" == event["choices"][0]["text"]


def test_words_are_distinct_and_of_one_width() -> None:
    """The length of a chunk is known before its word."""
    assert 1024 == len(set(WORDS))
    assert {5} == {len(word) for word in WORDS}
    assert all(word.startswith(" ") for word in WORDS)


def test_whole_answers_hold_every_word_and_usage() -> None:
    """Not streamed: one choice, all words, usage."""
    completion = json.loads(whole_answer(answer(), 3))
    chat = json.loads(whole_answer(answer("chat"), 3))
    assert " bala bale bali" == completion["choices"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert ("text_completion", "chat.completion") == (completion["object"], chat["object"])
    assert {"prompt_tokens": 40, "total_tokens": 43, "completion_tokens": 3} == completion["usage"] == chat["usage"]
    assert "length" == completion["choices"][0]["finish_reason"] == chat["choices"][0]["finish_reason"]
