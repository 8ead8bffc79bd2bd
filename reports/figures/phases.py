"""Where the time of an answer goes: stacked phases at three quantiles, and two requests as waterfalls."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.phases import HandOff, Level, Waterfall
from reports.figures.theme import CARD, FONT, SOFT, Chart, Datum, data, finish, layered, seconds_axis, seconds_scale
from reports.numbers import percent, seconds
from reports.palette import PHASES

ROW_HEIGHT = 34
ROOM_PX = 52  # a narrower segment has no room for its length
FITS = f"scale('x', datum.to) - scale('x', datum.from) >= {ROOM_PX}"


def levels(names: Sequence[str], found: Sequence[Level], longest_s: float, *, description: str) -> Chart:
    """One stacked bar a quantile; all charts of a page share `longest_s` as the end of their axis."""
    rows: list[Datum] = []
    for level in found:
        at = 0.0
        for i, (name, part) in enumerate(zip(names, level.phase_s, strict=True)):
            if part > 0:
                rows.append(_segment(f"p{level.share * 100:g}", i, name, at, part, longest_s))
            at += part
    order = [f"p{level.share * 100:g}" for level in found]
    return _bars(rows, order, longest_s, description, height=ROW_HEIGHT * len(order) + 6)


def waterfalls(names: Sequence[str], found: Sequence[Waterfall], longest_s: float, *, description: str) -> Chart:
    """Each phase of a request on a line of its own, beginning where the one before ended."""
    rows: list[Datum] = []
    order: list[str] = []
    for request in found:
        at = 0.0
        for i, (name, part) in enumerate(zip(names, request.phase_s, strict=True)):
            if part <= 0:
                continue
            lane = f"{request.name} · {name}"
            order.append(lane)
            rows.append(_segment(lane, i, name, at, part, longest_s))
            at += part
    return _bars(rows, order, longest_s, description, height=22 * len(order) + 6, outside=True)


def _segment(row: str, index: int, name: str, at: float, part: float, longest_s: float) -> Datum:
    return {
        "row": row,
        "phase": name,
        "colour": PHASES[index % len(PHASES)],
        "from": at,
        "to": at + part,
        "middle": at + part / 2,
        "told": seconds(part),
        "of": percent(part / longest_s),
        "end": at + part,
    }


def _bars(
    rows: Sequence[Datum], order: list[str], longest_s: float, description: str, *, height: int, outside: bool = False
) -> Chart:
    base = alt.Chart(data(rows))
    y = alt.Y(
        "row:N",
        sort=order,
        title=None,
        axis=alt.Axis(labelFontSize=12, ticks=False, domain=False, labelLimit=220, labelColor=SOFT),
        scale=alt.Scale(paddingInner=0.25, paddingOuter=0.05),
    )
    domain = (0.0, longest_s * (1.12 if outside else 1.02))
    x = alt.X("from:Q", scale=seconds_scale(domain, log=False), axis=seconds_axis(domain, log=False, title=None))
    bars = base.mark_bar(stroke=CARD, strokeWidth=1, cornerRadius=2).encode(
        x=x,
        x2=alt.X2("to:Q"),
        y=y,
        color=alt.Color("colour:N", scale=None),
        tooltip=[
            alt.Tooltip("row:N", title="request"),
            alt.Tooltip("phase:N", title="phase"),
            alt.Tooltip("told:N", title="time"),
        ],
    )
    if outside:
        text = base.mark_text(align="left", dx=5, font=FONT, fontSize=11.5, color=SOFT, aria=False).encode(
            x=alt.X("end:Q"), y=y, text=alt.Text("told:N")
        )
    else:
        text = (
            # Asked of the scale itself, because a bar is as wide as the reader's window lets it be.
            base.mark_text(font=FONT, fontSize=12, fontWeight="bold", color="var(--on)", aria=False).encode(
                x=alt.X("middle:Q"),
                y=y,
                text=alt.Text("told:N"),
                opacity=alt.condition(FITS, alt.value(1), alt.value(0)),
            )
        )
    return finish(layered(bars, text), height=height, description=description)


def hand_off(found: HandOff, longest_s: float, *, description: str) -> Chart:
    """The transfer as the engine tells it, beside the waits in which a client would feel it."""
    named = {
        "KV transfer, median (engine)": (found.transfer_p50_s, "var(--p4)"),
        "KV transfer, p99 (engine)": (found.transfer_p99_s, "var(--p4)"),
        "headers to first token, median": (found.held_p50_s, "var(--p2)"),
        "wait for the second token, median": (found.second_gap_p50_s, "var(--p3)"),
        "wait for the second token, p99": (found.second_gap_p99_s, "var(--p3)"),
        "later tokens, median gap": (found.later_gap_p50_s, "var(--p5)"),
    }
    rows: list[Datum] = [
        {"row": name, "colour": colour, "from": 0.0, "to": value, "phase": name, "told": seconds(value), "end": value}
        for name, (value, colour) in named.items()
        if value is not None
    ]
    order = [str(row["row"]) for row in rows]
    return _bars(rows, order, longest_s, description, height=26 * len(order) + 6, outside=True)
