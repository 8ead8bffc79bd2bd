"""Recorded files: what another CPU changes passes, what a change of the code changes does not."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.golden import check_file, differences

WORDS = st.text(alphabet="abcxyz <>=-", min_size=1, max_size=8)
FLOATS = st.floats(min_value=1e-12, max_value=1e12) | st.floats(min_value=-1e12, max_value=-1e-12)
LEAVES = WORDS | FLOATS | st.integers(-999, 999) | st.booleans() | st.none()
DOCUMENTS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4))
HOLDERS = st.dictionaries(WORDS, DOCUMENTS, min_size=1, max_size=4)


def leaves(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value that holds no others stands."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    found = []
    for key, value in inner:
        found += leaves(value, (*path, key)) if isinstance(value, dict | list) else [(*path, key)]
    return found


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at one place."""
    made = copy.deepcopy(document)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return made


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def other(value: Any) -> Any:
    """Something that is not this value: of a number the next that is no rounding of it."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * (1 + 3e-6)
        case str():
            return value + "x"
    return 0


@given(HOLDERS)
def test_a_document_is_itself(document: dict[str, Any]) -> None:
    """And the same after a turn through JSON."""
    assert [] == differences(document, copy.deepcopy(document))
    assert [] == differences(document, json.loads(json.dumps(document)))


@given(HOLDERS, st.data())
def test_one_changed_value_is_one_difference(document: dict[str, Any], data: st.DataObject) -> None:
    """Whatever it is and wherever it stands, and the line says where."""
    places = leaves(document)
    assume(places)
    path = data.draw(st.sampled_from(places))
    (said,) = differences(document, changed(document, path, other(at(document, path))))
    assert said.startswith(str(path[0]))


@given(HOLDERS, st.floats(-9e-7, 9e-7))
def test_the_last_digits_of_a_computed_number_are_the_machines(document: dict[str, Any], off: float) -> None:
    """All of them at once."""
    made = document
    for path in leaves(document):
        if isinstance(at(document, path), float):
            made = changed(made, path, at(document, path) * (1 + off))
    assert [] == differences(document, made)


@given(HOLDERS, st.data())
def test_a_missing_key_and_a_new_one(document: dict[str, Any], data: st.DataObject) -> None:
    """Each is named; a case that states only some keys may leave others unsaid."""
    key = data.draw(st.sampled_from(sorted(document)))
    less = {name: value for name, value in document.items() if name != key}
    assert [f"{key}: missing"] == differences(document, less)
    assert [f"{key}: new"] == differences(less, document)
    assert [f"{key}: missing"] == differences(document, less, others_allowed=True)
    assert [] == differences(less, document, others_allowed=True)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=6))
def test_the_order_of_a_list_counts(values: list[int]) -> None:
    """As does its length."""
    assert (values == values[::-1]) == (not differences(values, values[::-1]))
    assert differences(values, values[:-1])
    assert differences(values[:-1], values)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (math.nan, math.nan),
        (math.inf, math.inf),
        (0.0, -0.0),  # which zero the larger of both is, is the CPU's choice
        (3, 3.0),
        (1e-300, 1.0000005e-300),
        ("12.3 ms", "12.4 ms"),
        ("9.99 ms", "10.0 ms"),
        ("-0.05", "-0.04"),
        ("-0.0 pp", "0.0 pp"),
        ("[0.30000000000000004]", "[0.3]"),
        ("M1.5-2.3,4.5", "M1.6-2.4,4.5"),
        ("1.25e-05", "1.26e-05"),
        ("1,234.5", "1,234.6"),
    ],
)
def test_what_passes(expected: Any, found: Any) -> None:
    """In both directions."""
    assert [] == differences(expected, found)
    assert [] == differences(found, expected)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (math.nan, 0.0),
        (math.nan, None),
        (math.inf, -math.inf),
        (math.inf, 1e308),
        (0.0, 1e-300),
        (1, 2),
        (10_000_000, 10_000_001),
        (1, True),
        (0, False),
        (0, None),
        ("1", 1),
        ([], {}),
        ([], None),
        ("", None),
        ("12.3 ms", "12.5 ms"),
        ("12.3 ms", "12.3 s"),
        ("12.3 ms", "12.3 ms "),
        ("12 of 900", "13 of 900"),
        ("2024-01-05", "2024-01-06"),
        ("0.1", "-0.1"),
        ("version 1.2.3", "version 1.2.4"),
        ("127.0.0.1", "127.0.0.2"),
        ("p90", "p91"),
        ("a\nb", "a\nb\n"),
        ("a b", "b a"),
        ("9.95", "10.0"),
        ("1234567.5", "1234569.5"),
    ],
)
def test_what_fails(expected: Any, found: Any) -> None:
    """In both directions, with one line each."""
    assert 1 == len(differences(expected, found))
    assert 1 == len(differences(found, expected))


@given(st.lists(WORDS | st.decimals(0, 999, places=2).map(str), min_size=1, max_size=12), st.data())
def test_a_text_passes_with_rounded_numbers_and_no_other_word(parts: list[str], data: st.DataObject) -> None:
    """One digit of one number may turn; a word may not."""
    index = data.draw(st.integers(0, len(parts) - 1))
    number = parts[index].replace(".", "").isdigit()
    turned = f"{float(parts[index]) + 0.01:.2f}" if number else parts[index] + "q"
    text, after = (" ; ".join(each) for each in (parts, [*parts[:index], turned, *parts[index + 1 :]]))
    assert number == (not differences(text, after))


def test_absolute_is_for_numbers_printed_with_few_digits() -> None:
    """A case states 0.0123 where 0.012301 is computed."""
    assert [] == differences({"a": [0.0123]}, {"a": [0.012301]}, absolute=2e-6)
    assert ["a[0]: expected 0.0123, found 0.01231"] == differences({"a": [0.0123]}, {"a": [0.01231]}, absolute=2e-6)


def test_a_difference_says_where_and_what() -> None:
    """Paths of a document, lines of a text, an excerpt of a long line."""
    assert ["layer[1].x: expected 1.5, found 2.5"] == differences(
        {"layer": [{}, {"x": 1.5}]}, {"layer": [{}, {"x": 2.5}]}
    )
    assert ["line 2: expected 'b', found 'c'"] == differences("a\nb\nd", "a\nc\nd")
    assert ["line 2: expected 'b 1.5', found 'b 2.5'"] == differences("a\nb 1.5\nd", "a\nb 2.5\nd")
    assert ["line 2: expected '', found 'new'"] == differences("a\nb", "a\nnew\nb")
    (said,) = differences("a" * 500 + "b" + "c" * 500, "a" * 500 + "x" + "c" * 500)
    assert len(said) < 300
    assert "...aaaa" in said


def test_a_recorded_file(tmp_path: Path) -> None:
    """Missing, recorded, unchanged but for another machine's digits, changed, recorded again."""
    path = tmp_path / "chart.json"
    with pytest.raises(AssertionError, match="not recorded yet"):
        check_file(path, "{}")
    check_file(path, '{"x": 0.1234567891}', update=True)
    check_file(path, '{\n "x": 0.1234567892\n}')
    with pytest.raises(AssertionError, match=r"x: expected 0\.1234567891, found 0\.2"):
        check_file(path, '{"x": 0.2}')
    assert '{"x": 0.1234567891}' == path.read_text()
    check_file(path, '{"x": 0.1234567892}', update=True)
    assert '{"x": 0.1234567891}' == path.read_text()
    check_file(path, '{"x": 0.2}', update=True)
    assert '{"x": 0.2}' == path.read_text()
