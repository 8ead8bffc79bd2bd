"""APIs that are not OpenAI's: what is asked of them, and what their answers say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.cli.run import APIS as OFFERED
from loadtest.errors import UsageError
from loadtest.replay.answer import Answer
from loadtest.replay.bodies import RequestBuilder
from loadtest.replay.dialects import APIS, DIALECTS, Api
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.stamps import NO_STAMP
from metrics.records import Flag, Outcome
from tests.replay.player import LAST_CHUNK, Play, Player, chunk, response_head
from tests.replay.replaying import findings, replay, schedule
from tests.replay.streams import cuts_of
from workloads.prompts import Prompts

NDJSON = response_head(200, {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"})
SSE = response_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})


def line(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "created_at": "t", **fields}, ensure_ascii=False).encode() + b"\n"


def ollama_answer(texts: list[str]) -> bytes:
    """A whole /api/generate answer, a chunk per line."""
    lines = [line(response=text, done=False) for text in texts]
    lines.append(line(response="", done=True, done_reason="length", prompt_eval_count=4, eval_count=len(texts)))
    return NDJSON + b"".join(map(chunk, lines)) + LAST_CHUNK


def native_answer(texts: list[str]) -> bytes:
    """A whole answer of llama.cpp's /completion."""
    events: list[dict[str, Any]] = [
        {"index": 0, "content": text, "tokens": [7], "stop": False, "tokens_predicted": i + 1, "tokens_evaluated": 4}
        for i, text in enumerate(texts)
    ]
    end = {"content": "", "stop": True, "stop_type": "eos", "tokens_predicted": len(texts), "tokens_evaluated": 4}
    events.append({**end, "timings": {"cache_n": 3}})
    body = (b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events)
    return SSE + b"".join(map(chunk, body)) + LAST_CHUNK


MAKERS = {"ollama": ollama_answer, "llamacpp": native_answer}


def answer_of(api: Api, reads: list[bytes], **options: Any) -> Answer:
    answer = Answer(DIALECTS[api], **options)
    answer.feed([(number + 1, NO_STAMP, read) for number, read in enumerate(reads)])
    return answer


def test_the_command_offers_every_api() -> None:
    """The names that --api takes are those that exist."""
    assert APIS == OFFERED


@given(
    st.data(),
    st.sampled_from(["ollama", "llamacpp"]),
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), min_size=1, max_size=12),
)
def test_any_cut_of_a_native_stream_gives_the_same_answer(data: st.DataObject, api: Any, texts: list[str]) -> None:
    """Lines and events are found however the network cuts them."""
    answer = answer_of(api, data.draw(cuts_of(MAKERS[api](texts))), keep_text=True)
    assert "".join(texts) == answer.text
    assert len(texts) == len(answer.event_reads) == answer.usage_tokens
    assert (4, Outcome.OK, True) == (answer.prompt_tokens, answer.outcome(), answer.complete)
    assert {"ollama": "length", "llamacpp": "stop"}[api] == answer.finish_reason
    assert Flag.MISSING_DONE not in answer.flags(1)


@given(st.data(), st.sampled_from(APIS), st.binary(max_size=200))
def test_no_dialect_falls_over_noise(data: st.DataObject, api: Any, noise: bytes) -> None:
    """Whatever stands in a line or an event: never an exception, never a token out of nothing."""
    framed = noise.replace(b"\n", b"") + b"\n" if DIALECTS[api].json_lines else b"data: " + noise + b"\n\n"
    answer = answer_of(api, data.draw(cuts_of(SSE + chunk(framed) + LAST_CHUNK)))
    assert answer.complete
    assert answer.outcome() in Outcome
    piece = DIALECTS[api].read(noise)
    assert not piece.malformed or not piece.token


@pytest.mark.parametrize("document", [b"[]", b"null", b'"x"', b"1", b"{", b"", b'{"choices":7}', b'{"message":3}'])
@pytest.mark.parametrize("api", APIS)
def test_documents_of_another_shape_carry_no_token(api: Api, document: bytes) -> None:
    """JSON that is not what the API answers is no generated output."""
    assert not DIALECTS[api].read(document).token


def test_ollama_chat_thinks_calls_and_fails() -> None:
    """Thinking and tool calls are generated output; an error line ends the answer as an error."""
    good = [
        NDJSON,
        chunk(line(message={"role": "assistant", "content": "", "thinking": "hm"}, done=False)),
        chunk(line(message={"role": "assistant", "content": "a"}, done=False)),
        chunk(line(message={"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, done=False)),
        chunk(line(message={"content": ""}, done=True, done_reason="stop", eval_count=9)) + LAST_CHUNK,
    ]
    answer = answer_of("ollama-chat", good, keep_text=True)
    assert ([1, 2, 3], 2, "hm", "a") == (
        answer.event_reads.tolist(),
        answer.first_answer_read,
        answer.reasoning_text,
        answer.text,
    )
    assert (Outcome.OK, 9) == (answer.outcome(), answer.output_tokens)
    failed = answer_of("ollama-chat", [*good[:3], chunk(b'{"error":"model runner has stopped"}\n') + LAST_CHUNK])
    assert (Outcome.IN_BAND_ERROR, "model runner has stopped") == (failed.outcome(), failed.error_message())


ASKED: list[tuple[Api, str, dict[str, Any]]] = [
    ("completions", "/v1/completions", {"max_tokens": 20, "min_tokens": 20, "stream": True, "ignore_eos": True}),
    ("chat", "/v1/chat/completions", {"max_tokens": 20, "stream_options": {"include_usage": True}}),
    ("llamacpp", "/completion", {"n_predict": 20, "ignore_eos": True}),
    ("ollama", "/api/generate", {"options": {"num_predict": 20, "temperature": 0.0}, "raw": True}),
    ("ollama-chat", "/api/chat", {"options": {"num_predict": 20, "temperature": 0.0}, "model": "m"}),
]


@pytest.mark.parametrize(("api", "path", "fields"), ASKED)
def test_what_each_api_is_asked(api: Api, path: str, fields: dict[str, Any]) -> None:
    """The right path, the output length under its own name, the prompt where it belongs."""
    endpoint = Endpoint.parse("h:1", model="m", api=api, prompt_form="ids")
    head, _, body = RequestBuilder(endpoint, Prompts(1, "s")).build(7, 100, 20).partition(b"\r\n\r\n")
    assert head.startswith(f"POST {path} HTTP/1.1".encode())
    document = json.loads(body)
    assert fields == {name: document[name] for name in fields}
    prompt = document["prompt"] if "prompt" in document else document["messages"][0]["content"]
    assert 100 == len(prompt if api in ("completions", "llamacpp") else prompt.split(" "))


@pytest.mark.parametrize(
    ("text", "api", "url"),
    [
        ("h:1/completion", None, "http://h:1/completion"),
        ("h:1/llama/completion", None, "http://h:1/llama/completion"),
        ("h:1/v1", "llamacpp", "http://h:1/completion"),
        ("h:1/api/chat", None, "http://h:1/api/chat"),
        ("h:1", "ollama", "http://h:1/api/generate"),
        ("h:1/v1/models", "ollama-chat", "http://h:1/api/chat"),
    ],
)
def test_native_targets_in_the_ways_people_write_them(text: str, api: Api | None, url: str) -> None:
    """The full path names its API; an OpenAI-style base is no part of a native one."""
    assert url == Endpoint.parse(text, api=api).url


def test_own_path_and_own_fields() -> None:
    """--path replaces the API's path; --extra-body takes K=V and JSON, wins over ours, and merges objects."""
    endpoint = Endpoint.parse(
        "h:1",
        api="ollama",
        path="/v2/generate?x=1",
        extra_body=('options={"seed":3}', "raw=false", "note=50% {x}", '{"keep_alive":"5m","stream":false}'),
    )
    head, _, body = RequestBuilder(endpoint, Prompts(1, "s")).build(1, 3, 9).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/generate?x=1 HTTP/1.1")
    document = json.loads(body)
    assert {"num_predict": 9, "temperature": 0.0, "seed": 3} == document["options"]
    wanted = {"raw": False, "note": "50% {x}", "keep_alive": "5m", "stream": False}
    assert wanted == {name: document[name] for name in wanted}


@pytest.mark.parametrize("bad", [{"extra_body": ("x",)}, {"extra_body": ('{"a":',)}, {"path": "x"}, {"path": "/a b"}])
def test_what_cannot_be_a_field_or_a_path_is_refused(bad: dict[str, Any]) -> None:
    """One sentence instead of a request nobody understands."""
    with pytest.raises(UsageError):
        Endpoint.parse("h:1", **bad)


WHOLE: dict[Api, dict[str, Any]] = {
    "completions": {"choices": [{"text": "a b", "finish_reason": "length"}], "usage": {"completion_tokens": 2}},
    "chat": {"choices": [{"message": {"content": "a b"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}},
    "llamacpp": {"content": "a b", "stop": True, "stop_type": "limit", "tokens_predicted": 2},
    "ollama": {"response": "a b", "done": True, "done_reason": "length", "eval_count": 2},
    "ollama-chat": {"message": {"content": "a b"}, "done": True, "eval_count": 2},
}


@pytest.mark.parametrize("api", APIS)
def test_an_answer_in_one_piece_has_no_first_token_time(api: Api) -> None:
    """--no-stream: asked for without a stream, counted in full, TTFT not measurable, and the verdict says so."""
    body = json.dumps(WHOLE[api]).encode()
    play = Play([(0, response_head(200, {"Content-Length": str(len(body))}) + body)])
    with Player(lambda *_: play) as player:
        done = replay(player.url(), schedule([0.0], max_tokens=2), api=api, stream=False)
        asked = json.loads(player.received[0].body)
    assert (False, False) == (asked["stream"], "stream_options" in asked)
    assert ("ok", 2, 0) == (done.outcome(0), done.rows["output_tokens"][0], done.rows["token_events"][0])
    assert np.isnan(done.rows["first_token_s"][0])
    assert "invalid" == findings(done)["ttft_not_measurable"].level


@pytest.mark.parametrize("api", ["ollama", "llamacpp"])
def test_native_streams_over_a_socket(api: Api) -> None:
    """Answers of both families through the real sender."""
    raw = MAKERS[api](["a", " b", " c"])
    parts = [raw[:-5], raw[-5:]]
    with Player(lambda *_: Play([(0, parts[0]), (20, parts[1])])) as player:
        done = replay(player.url(), schedule([0.0, 0.2], max_tokens=3), api=api)
    assert ["ok"] * 2 == [done.outcome(0), done.outcome(1)]
    assert [3, 3] == done.rows["output_tokens"].tolist()
    assert not {"missing_done", "tokens_estimated", "short_output"} & done.flags(0)
