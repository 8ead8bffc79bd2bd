"""Fields of a request body by name: nested, renamed, left out; and what is no field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from loadtest.errors import UsageError
from loadtest.replay.bodies import RequestBuilder
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.fields import holds, shaped
from workloads.prompts import Prompts


def sent(max_tokens: int = 20, **options: Any) -> dict[str, Any]:
    """The body of one request."""
    builder = RequestBuilder(Endpoint.parse("h:1", model="m", **options), Prompts(1, "s"))
    document: dict[str, Any] = json.loads(builder.build(7, 4, max_tokens).partition(b"\r\n\r\n")[2])
    return document


BODY = {"a": 1, "b": {"c": 2, "d": {"e": 3}}}


@pytest.mark.parametrize(
    ("rename", "leave_out", "result"),
    [
        ({}, ["a"], {"b": {"c": 2, "d": {"e": 3}}}),
        ({}, ["b.c"], {"a": 1, "b": {"d": {"e": 3}}}),
        ({}, ["b.d.e"], {"a": 1, "b": {"c": 2}}),
        ({}, ["b.d.e", "b.c"], {"a": 1}),
        ({}, ["x", "a.x", "b.x"], BODY),
        ({"a": "z"}, [], {"z": 1, "b": {"c": 2, "d": {"e": 3}}}),
        ({"a": "b.z"}, [], {"b": {"c": 2, "d": {"e": 3}, "z": 1}}),
        ({"b.c": "c"}, ["b.d"], {"a": 1, "c": 2}),
        ({"a": "z"}, ["a"], {"b": {"c": 2, "d": {"e": 3}}}),
        ({"a": "b"}, [], {"b": {"c": 2, "d": {"e": 3}}}),
    ],
)
def test_fields_are_renamed_and_left_out(rename: dict[str, str], leave_out: list[str], result: dict[str, Any]) -> None:
    """By name, also within objects; an object that is left empty goes; what has the new name already stays."""
    before = json.dumps(BODY)
    assert result == shaped(BODY, rename, leave_out)
    assert before == json.dumps(BODY)


def test_a_field_may_have_a_dot_in_its_name() -> None:
    """The name as it stands comes first."""
    assert {"a": {"b": 1}} == shaped({"a.b": 2, "a": {"b": 1}}, {}, ["a.b"])
    assert not holds({"a": 1}, "a.b")


@pytest.mark.parametrize("length", [1, 20, 4096])
def test_the_rows_own_length_follows_the_new_name(length: int) -> None:
    """By hand too: each request asks for its own length, and the old name is gone."""
    body = sent(length, api="chat", rename_field=("max_tokens=max_completion_tokens",), drop_field=("min_tokens",))
    assert length == body["max_completion_tokens"]
    assert not {"max_tokens", "min_tokens"} & set(body)


def test_workers_get_the_names_too() -> None:
    """An endpoint travels as JSON."""
    endpoint = Endpoint.parse("h:1", rename_field=("max_tokens=x",), drop_field=("stream_options.include_usage",))
    assert endpoint == msgspec.json.decode(msgspec.json.encode(endpoint), type=Endpoint)


def test_nested_fields_are_dropped_by_hand() -> None:
    """`stream_options.include_usage`, the only one of its object: the object goes with it."""
    assert "stream_options" not in sent(drop_field=("stream_options.include_usage",))
    kept = sent(drop_field=("stream_options.include_usage",), extra_body=('stream_options={"continuous":true}',))
    assert {"continuous": True} == kept["stream_options"]
    assert {"temperature": 0.0, "max": 20} == sent(api="ollama", rename_field=("options.num_predict=options.max",))[
        "options"
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drop_field": ("top_k",)}, "no request has the field 'top_k'"),
        ({"drop_field": ("prompt",)}, "no prompt would be sent"),
        ({"api": "chat", "drop_field": ("messages",)}, "no prompt would be sent"),
        ({"rename_field": ("max_tokens",)}, "not OLD=NEW"),
        ({"rename_field": ("=x",)}, "not OLD=NEW"),
        ({"rename_field": ("max_token=x",)}, "no request has the field 'max_token'"),
    ],
)
def test_what_is_no_field_is_refused(options: dict[str, Any], says: str) -> None:
    """A misspelt name would change nothing, without a word."""
    with pytest.raises(UsageError, match=says):
        Endpoint.parse("h:1", **options)


@pytest.mark.parametrize(
    ("options", "field", "own"),
    [
        ({}, "max_tokens", ""),
        ({"rename_field": ("max_tokens=x",)}, "x", ""),
        ({"drop_field": ("max_tokens",)}, "", ""),
        ({"extra_body": ("max_tokens=5",)}, "", "max_tokens"),
        ({"extra_body": ("max_completion_tokens=5",)}, "max_tokens", "max_completion_tokens"),
        ({"extra_body": ("max_tokens=null",)}, "", ""),
        ({"extra_body": ("x=5",), "rename_field": ("max_tokens=x",)}, "", ""),
        ({"api": "ollama"}, "options.num_predict", ""),
    ],
)
def test_which_field_asks_for_the_length(options: dict[str, Any], field: str, own: str) -> None:
    """Each row's own, or one of the user's for all, or none."""
    endpoint = Endpoint.parse("h:1", **options)
    assert (field, own) == (endpoint.length_field, endpoint.own_length)
