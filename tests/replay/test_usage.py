"""A server's count of its tokens, under the names and conventions of providers."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.replay.dialects.usage import Usage, read_usage


@pytest.mark.parametrize(
    ("counts", "cached"),
    [
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 80}}, 80),  # OpenAI, vLLM
        ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 80, "prompt_cache_miss_tokens": 20}, 80),  # DeepSeek
        ({"prompt_tokens": 100, "cached_tokens": 80}, 80),  # Moonshot
        ({"prompt_tokens": 100, "cached_tokens": 80, "prompt_tokens_details": {"cached_tokens": 80}}, 80),  # not 160
        ({"input_tokens": 20, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 7}, 80),  # Anthropic
        ({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}}, 80),  # OpenAI's responses
        ({"promptTokenCount": 100, "cachedContentTokenCount": 80}, 80),  # Google
        ({"inputTokens": 20, "cacheReadInputTokens": 80, "cacheWriteInputTokens": 5}, 80),  # Bedrock
        ({"prompt_tokens": 100, "num_cached_tokens": 80.0}, 80),
        ({"prompt_tokens": 100, "details": {"cache": {"kv_cache_hits": 80}}}, 80),  # nobody's yet
        ({"prompt_tokens": 100, "prompt_cache_miss_tokens": 100}, 0),
        ({"prompt_tokens": 100, "cache_creation_input_tokens": 100}, 0),
        ({"prompt_tokens": 100, "cache_hit": True, "cache_hit_rate": 1, "cached_tokens": None}, 0),
        ({"prompt_tokens": 100, "cached_tokens": "80"}, 0),
        ({"prompt_tokens": 100, "cached_tokens": -1}, 0),
    ],
)
def test_cache_hits_are_found_under_any_name(counts: dict[str, Any], cached: int) -> None:
    """Each provider's way to say that 80 prompt tokens came from the cache, and what is none."""
    assert cached == read_usage(counts).cached


@pytest.mark.parametrize(
    ("counts", "prompt"),
    [
        ({"input_tokens": 20, "cache_read_input_tokens": 80}, 100),
        ({"input_tokens": 20, "cache_creation_input_tokens": 80}, 100),
        ({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}}, 100),
        ({"prompt_tokens": 100, "cache_read_input_tokens": 80}, 100),
        ({"prompt_tokens": 20, "cached_tokens": 80}, 100),  # more from the cache than there is prompt
        ({"prompt_tokens": 20, "completion_tokens": 5, "cached_tokens": 15, "total_tokens": 40}, 35),
        ({"prompt_tokens": 20, "completion_tokens": 5, "cached_tokens": 15, "total_tokens": 25}, 20),
        ({"completion_tokens": 5, "cached_tokens": 15}, -1),
    ],
)
def test_the_prompt_holds_its_cached_tokens(counts: dict[str, Any], prompt: int) -> None:
    """By the total where it tells, else by the names and by what is possible."""
    assert prompt == read_usage(counts).prompt_tokens


@pytest.mark.parametrize(
    ("counts", "events", "output"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "reasoning_tokens": 30, "total_tokens": 45}, 33, 33),
        ({"prompt_tokens": 12, "completion_tokens": 33, "reasoning_tokens": 30, "total_tokens": 45}, 33, 33),
        ({"promptTokenCount": 12, "candidatesTokenCount": 40, "thoughtsTokenCount": 30, "totalTokenCount": 82}, 40, 70),
        ({"prompt_tokens": 12, "completion_tokens": 40, "reasoning_tokens": 30, "total_tokens": 52}, 70, 40),
        ({"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 30}}, 3, 33),  # cannot be inside
        ({"completion_tokens": 40, "reasoning_tokens": 30}, 70, 70),  # the events say beside
        ({"completion_tokens": 40, "reasoning_tokens": 30}, 40, 40),
        ({"completion_tokens": 40, "reasoning_tokens": 30}, 10, 40),  # several tokens in an event
        ({"completion_tokens": 0, "reasoning_tokens": 30, "prompt_tokens": 5, "total_tokens": 35}, 30, 30),
        ({"completion_tokens": 3, "reasoning_tokens": 30, "prompt_tokens": 12, "total_tokens": 0}, 33, 33),
        ({"completion_tokens": 3, "prompt_tokens": 12}, 5, 3),
        ({"prompt_tokens": 12}, 5, -1),
    ],
)
def test_reasoning_inside_or_beside(counts: dict[str, Any], events: int, output: int) -> None:
    """The total decides for each answer; without one, what is possible, and then what came."""
    assert output == read_usage(counts).output_tokens(events)


@pytest.mark.parametrize(
    ("counts", "contradicts"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 33, "total_tokens": 45}, False),
        ({"prompt_tokens": 12, "completion_tokens": 3, "reasoning_tokens": 30, "total_tokens": 45}, False),
        ({"prompt_tokens": 2, "completion_tokens": 33, "cached_tokens": 10, "total_tokens": 45}, False),
        (
            {"input_tokens": 2, "output_tokens": 3, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 5}
            | {"total_tokens": 14},
            False,
        ),
        ({"prompt_tokens": 12, "completion_tokens": 33}, False),
        ({"prompt_tokens": 12, "completion_tokens": 33, "total_tokens": 0}, False),
        ({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 45}, True),
        ({"prompt_tokens": 12, "completion_tokens": 33, "total_tokens": 44}, True),
    ],
)
def test_a_total_that_no_convention_explains(counts: dict[str, Any], contradicts: bool) -> None:
    """Reasoning and cached tokens may stand inside or beside; nothing else may be missing."""
    assert contradicts == read_usage(counts).contradicts_itself


def test_the_last_report_counts_and_a_total_belongs_to_its_own() -> None:
    """Continuous usage: a later count without a total is not held against an earlier total."""
    usage = Usage()
    usage.update(read_usage({"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}))
    usage.update(read_usage({"completion_tokens": 7}))
    assert (7, 10, False) == (usage.output_tokens(7), usage.prompt_tokens, usage.contradicts_itself)
    usage.update(read_usage({"completion_tokens": 2**40, "prompt_tokens": -3}))
    assert (7, 10) == (usage.completion, usage.prompt)
