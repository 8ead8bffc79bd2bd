"""Specifications on their way to a renderer that is not ours."""

from __future__ import annotations

from typing import Any

from reports.static import drawable, svg

SPEC: dict[str, Any] = {
    "layer": [
        {
            "data": {"values": [{"x": "a\x1b[31m", "y": 1}]},
            "mark": "bar",
            "encoding": {"x": {"field": "x", "type": "nominal"}, "y": {"field": "y", "type": "quantitative"}},
        }
    ]
}


def test_a_label_that_no_svg_can_hold_is_drawn_without_it() -> None:
    """At such a character the renderer would end the whole process, whatever had been measured."""
    assert "\ufffd[31m" in svg(SPEC, width=200, ids="a")


def test_other_text_is_left_as_it_is() -> None:
    """Nothing is copied where nothing is wrong; tuples and keys are looked into, and line breaks stay."""
    plain = {"layer": [{"name": "ä\n\t<b>"}]}
    assert plain is drawable(plain)
    assert {"a": ["\ufffd", ["x\n"]]} == drawable({"a": ["\x00", ("x\n",)]})
