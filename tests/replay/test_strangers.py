"""Generated text in places that no dialect knows: counted and named; labels are neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.replay.answer import Answer
from loadtest.replay.dialects import DIALECTS, Api
from loadtest.replay.stamps import NO_STAMP
from metrics.records import Flag
from tests.replay.player import LAST_CHUNK, Play, Player, chunk, response_head
from tests.replay.replaying import findings, replay, schedule
from tests.replay.streams import DONE, HEAD, chat_event, usage_event

ROLE = chat_event({"role": "assistant", "content": ""})
END = chat_event({}, "stop")


def event(**document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def read(events: list[bytes], *, api: Api = "chat", keep_text: bool = False, head: bytes = HEAD) -> Answer:
    """An event a read, the first in read 1."""
    answer = Answer(DIALECTS[api], keep_text=keep_text)
    answer.feed([(i + 1, NO_STAMP, read) for i, read in enumerate([head, *map(chunk, events)])])
    return answer


@pytest.mark.parametrize("keep_text", [True, False])
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda text: chat_event({"musings": text}), "delta.musings"),
        (lambda text: chat_event({"content": "", "thoughts": [{"id": "t1", "text": text}]}), "delta.thoughts[].text"),
        (lambda text: chat_event({"content": None, "audio": {"transcript": text}}), "delta.audio.transcript"),
        (lambda text: chat_event({"reasoning": {"steps": [[text]]}}), "delta.reasoning.steps[][]"),
        (lambda text: event(choices=[{"index": 0, "output": text, "finish_reason": None}]), "output"),
        (lambda text: event(candidates=[{"content": {"role": "model", "parts": [{"text": text}]}}]),
         "candidates[].content.parts[].text"),
        (lambda text: event(type="response.output_text.delta", delta=text), "delta"),
        (lambda text: event(type="content_block_delta", delta={"type": "text_delta", "text": text}), "delta.text"),
        (lambda text: chat_event({"tool_calls": [{"index": 0, "custom": {"name": "f", "input": text}}]}),
         "delta.tool_calls[].custom.input"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("texts", [[" one", " two", " three", " two"], [" tok"] * 4, [" a", " a", " a", " b"]])
def test_text_under_an_unknown_key_is_counted_from_its_first_event(
    make: Any, key: str, texts: list[str], keep_text: bool
) -> None:
    """Every event with it, also the first, whose nature only later ones show; and after a first event of its role."""
    answer = read([ROLE, *map(make, texts), END, usage_event(4), DONE], keep_text=keep_text)
    assert [2, 3, 4, 5] == answer.event_reads.tolist()
    assert ([key], 4, 0) == (answer.strange_keys, answer.output_tokens, answer.hidden_tokens)
    assert Flag.UNKNOWN_TEXT_KEY in answer.flags(4)
    assert Flag.USAGE_OVER_TEXT not in answer.flags(4)
    assert (1, 0, 0) == (answer.first_token_event, answer.coalesced_reads, answer.malformed_events)
    if keep_text:
        assert "".join(texts) == answer.text + answer.reasoning_text


def test_reasoning_under_an_unknown_key_is_no_answer() -> None:
    """What its key calls thinking is reasoning; the first answer token comes after it."""
    events = [chat_event({"thinking_text": text}) for text in ("a", "b", "c")]
    answer = read([ROLE, *events, chat_event({"content": "x"}), END], keep_text=True)
    assert ([2, 3, 4, 5], 5) == (answer.event_reads.tolist(), answer.first_answer_read)
    assert ("abc", "x") == (answer.reasoning_text, answer.text)


@pytest.mark.parametrize("keep_text", [True, False])
@pytest.mark.parametrize(
    "label",
    [
        {"provider_note": "fast lane"},
        {"native_finish_reason": None},
        {"created_at": "2026-01-01T00:00:0{}"},
        {"request_id": "r{}"},
        {"requestId": "r{}"},
        {"obfuscation": "x{}"},
        {"logprobs": {"content": [{"token": " t{}", "top_logprobs": []}]}},
        {"content_filter_results": {"hate": {"filtered": False, "severity": "safe {}"}}},
        {"matched_stop": "</s{}>"},
        {"note": "n{}"},  # unknown, and it changes; but events with known text have it too
    ],
)
def test_labels_are_no_text(label: dict[str, Any], keep_text: bool) -> None:
    """Beside tokens, in the first event and the last, and in blank ones between: never a token."""

    def labelled(number: int, delta: dict[str, object], finish: str | None = None) -> bytes:
        said = json.loads(json.dumps(label).replace("{}", str(number)))
        return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish, **said}])

    events = [labelled(1, {"content": " a"}), labelled(2, {"content": ""}), labelled(3, {"content": " b"})]
    events += [labelled(4, {"content": ""}), labelled(5, {"content": ""}), labelled(6, {}, "stop"), DONE]
    answer = read([labelled(0, {"role": "assistant", "content": ""}), *events], keep_text=keep_text)
    assert ([2, 4], []) == (answer.event_reads.tolist(), answer.strange_keys)


def test_a_string_of_one_event_is_no_text() -> None:
    """A signature, a summary at the end, the whole text once more: nothing that grows."""
    events = [ROLE, chat_event({"content": "a"}), event(choices=[{"delta": {}, "message": {"content": "a"}}])]
    answer = read([*events, chat_event({"summary": "all in all"}, "stop"), DONE])
    assert ([2], []) == (answer.event_reads.tolist(), answer.strange_keys)


def test_unknown_text_behind_known_text_takes_its_place_in_order() -> None:
    """Read 4 and 6 are found out at read 6, behind the known token of read 5."""
    answer = read(
        [
            *(ROLE, chat_event({"content": "a"}), chat_event({"aside": "x"})),
            *(chat_event({"content": "b"}), chat_event({"aside": "y"}), END),
        ]
    )
    assert [2, 3, 4, 5] == answer.event_reads.tolist()


def test_native_dialects_have_unknown_places_too() -> None:
    """Ollama's message and llama.cpp's event from its top; times, models and settings are labels."""
    ndjson = response_head(200, {"Transfer-Encoding": "chunked"})
    lines = [
        json.dumps({"model": "m", "created_at": f"t{i}", "message": {"role": "a", "content": "", "musing": f" {i}"}})
        for i in range(3)
    ]
    answer = read([line.encode() + b"\n" for line in lines], api="ollama-chat", head=ndjson)
    assert ([1, 2, 3], ["message.musing"]) == (answer.event_reads.tolist(), answer.strange_keys)
    native = [event(content="", hidden=f" {i}", tokens_predicted=i, stop=False) for i in range(3)]
    answer = read(native, api="llamacpp")
    assert ([1, 2, 3], ["hidden"]) == (answer.event_reads.tolist(), answer.strange_keys)


def test_known_reasoning_in_all_its_places() -> None:
    """Mistral's thinking parts and the details of OpenRouter and MiniMax need no finding."""
    thinking: dict[str, object] = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}]}
    shapes: list[dict[str, object]] = [
        thinking,
        {"content": [{"type": "thinking", "thinking": "n"}]},
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "o", "id": "1", "index": 0}]},
        {"content": None, "reasoning": "p", "reasoning_details": [{"type": "reasoning.text", "text": "p"}]},
        {"content": [{"type": "text", "text": "q"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2Vj"}]},
    ]
    answer = read([ROLE, *map(chat_event, shapes), END, usage_event(5), DONE], keep_text=True)
    assert ("mnop", "q", []) == (answer.reasoning_text, answer.text, answer.strange_keys)
    assert ([2, 3, 4, 5, 6], 6) == (answer.event_reads.tolist(), answer.first_answer_read)


def test_a_run_names_the_key_and_the_share_of_the_cache() -> None:
    """From the wire through the journal to the findings: what the key was, fit to be printed, and 80 % of 10 tokens."""
    usage = event(choices=[], usage={"prompt_tokens": 10, "completion_tokens": 3, "prompt_cache_hit_tokens": 8})
    texts = [chat_event({"mus\x1bing": text}) for text in (" a", " b", " c")]
    body = b"".join([HEAD, *map(chunk, [ROLE, *texts, END, usage, DONE]), LAST_CHUNK])
    with Player(lambda *_: Play([(0, body)])) as player:
        found = findings(replay(player.url(), schedule([0.0, 0.01], prompt_tokens=10, max_tokens=3), api="chat"))
    assert ("delta.mus\ufffding", 2) == tuple(found["unknown_text_key"].evidence[name] for name in ("keys", "count"))
    assert "(80%)" in found["prefix_cache"].message
