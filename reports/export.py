"""Runs for other programs: a line per request as CSV or JSON, and the figures of a page as SVG or PNG files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from metrics.requests import COLUMNS, Cell
from reports import palette
from reports.escape import csv_cell, json_document
from reports.static import VEGA_LITE, drawable

if TYPE_CHECKING:
    from reports.page import PageData
    from reports.sections.section import Panel, Section

FIGURE_WIDTH = 900
PNG_SCALE = 2.0
KEY_Y = -42  # of the key, above the plot and its axis title
FONT = "sans-serif"
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")


def csv_lines(labelled: Iterable[tuple[str, Iterable[Sequence[Cell]]]]) -> Iterator[str]:
    """CSV with a header, the run's label first; empty cells for what is unknown."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", *COLUMNS])
    yield _taken(out)
    for label, rows in labelled:
        for row in rows:
            writer.writerow(map(csv_cell, [label, *row]))
            yield _taken(out)


def _taken(out: StringIO) -> str:
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return text


def jsonl_lines(labelled: Iterable[tuple[str, Iterable[Sequence[Cell]]]]) -> Iterator[str]:
    """A JSON object per request, null for what is unknown."""
    encode = msgspec.json.Encoder().encode
    for label, rows in labelled:
        for row in rows:
            yield json_document(encode({"run": label, **dict(zip(COLUMNS, row, strict=True))}).decode()) + "\n"


def figures(page: PageData, kind: Literal["svg", "png"]) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of every figure of a page, on white, with title and caption."""
    import vl_convert

    from reports.sections import sections

    for section in sections(page):
        for panel in section.panels:
            spec = drawable(_standing_alone(section, panel))
            if kind == "svg":
                yield f"{panel.id}.svg", vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).encode()
            else:
                yield f"{panel.id}.png", vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=PNG_SCALE)


def _standing_alone(section: Section, panel: Panel) -> dict[str, Any]:
    """The specification with colours instead of the page's variables, a width, a title and the section's key."""
    spec = {**panel.spec, "layer": [*panel.spec["layer"], *_key(section)]}
    text = _VARIABLE.sub(lambda found: palette.LIGHT[found[1]], msgspec.json.encode(spec).decode())
    coloured: dict[str, Any] = msgspec.json.decode(text)
    heading = {"text": section.title, "subtitle": panel.caption, "anchor": "start", "frame": "group"}
    looks = {"font": FONT, "fontSize": 17, "subtitleFont": FONT, "subtitleFontSize": 13}
    colours = {"color": palette.LIGHT["ink"], "subtitleColor": palette.LIGHT["soft"]}
    framed = {"width": FIGURE_WIDTH, "background": "#ffffff", "padding": 22}
    return {**coloured, **framed, "title": {**heading, **looks, **colours, "offset": 20}}


def _key(section: Section) -> list[dict[str, Any]]:
    """The page's key as marks above the plot: a page can write its own, a picture cannot."""
    layers: list[dict[str, Any]] = []
    at = 6.0
    for entry in section.key:
        shape = "cross" if entry.cross else "square" if entry.square else "stroke"
        marked = {
            "type": "point",
            "shape": shape,
            "size": 110,
            "filled": entry.square,
            "strokeWidth": 2.5,
            "opacity": 1,
        }
        colour = {"color": {"value": entry.colour}, "x": {"value": at}, "y": {"value": KEY_Y}}
        named = {"type": "text", "align": "left", "text": entry.name, "font": FONT, "fontSize": 12}
        layers.append({"data": {"values": [{}]}, "mark": marked, "encoding": colour})
        where = {"x": {"value": at + 12}, "y": {"value": KEY_Y}, "color": {"value": "var(--ink)"}}
        layers.append({"data": {"values": [{}]}, "mark": named, "encoding": where})
        at += 12 + 7 * len(entry.name) + 22
    return layers
