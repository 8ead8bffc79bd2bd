"""What a command case may demand: each demand is met by what it says and by nothing else, a misspelt one by nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.kinds.command import _misses

DOCUMENT = {
    "count": 4,
    "rate": 2.0,
    "text": "At 12 requests/s",
    "nothing": None,
    "requests": {"by_outcome": {"ok": 4}},
    "findings": [{"code": "prefix_cache", "message": "79%"}, {"code": "failures", "message": "2 of 4"}],
    "headers": {"x.y": "z"},
}


@pytest.mark.parametrize(
    ("expected", "met"),
    [
        ({"count": 4, "rate": 2.000001, "nothing": None}, True),
        ({"count": 5}, False),
        ({"missing": None}, False),
        ({"missing": "(missing)"}, True),
        ({"requests.by_outcome": {"ok": 4}}, True),
        ({"requests.by_outcome.ok": 5}, False),
        ({"requests": {"by_outcome": {"ok": 4, "http_500": 0}}}, False),
        ({"headers": {"x.y": "z"}}, True),
        ({"count": {"at_least": 4, "at_most": 4}}, True),
        ({"count": {"at_least": 5}}, False),
        ({"count": {"at_most": 3}}, False),
        ({"nothing": {"at_most": 3}}, False),
        ({"missing": {"at_least": 0}}, False),
        ({"count": {"one_of": [3, {"at_least": 4}]}}, True),
        ({"count": {"one_of": [3, 5]}}, False),
        ({"text": {"contains": ["12", "requests"], "lacks": "Traceback"}}, True),
        ({"text": {"contains": ["12", "tokens"]}}, False),
        ({"text": {"contains": "12", "lacks": "requests"}}, False),
        ({"missing": {"lacks": "Traceback"}}, False),
        ({"findings": {"some": {"code": "prefix_cache", "message": {"contains": "79"}}}}, True),
        ({"findings": {"some": {"code": "failures", "message": {"contains": "79"}}}}, False),
        ({"findings": {"none": {"code": "overload"}}}, True),
        ({"findings": {"none": {"code": "failures"}}}, False),
        ({"missing": {"some": {"code": "failures"}}}, False),
        ({"missing": {"none": {"code": "failures"}}}, False),
        ({"text": {"contians": "12"}}, False),
    ],
)
def test_a_demand(expected: dict[str, Any], met: bool) -> None:
    """One line for each that is not met."""
    assert (0 if met else 1) == len(_misses(expected, DOCUMENT))
