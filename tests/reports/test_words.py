"""Phrases that pages and terminal share."""

from __future__ import annotations

import pytest

from reports import words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("chunked against colocated", "Chunked against colocated"),
        ("chunked, 2 instances", "Chunked, 2 instances"),
        ("vllm-chunked against vllm-colocated", "vllm-chunked against vllm-colocated"),
        ("http://h:1 is better", "http://h:1 is better"),
        ("tp=8", "tp=8"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_and_a_name_as_it_is_written(text: str, shown: str) -> None:
    """A name with anything but letters in it is somebody's own."""
    assert shown == words.capital(text)
