"""What each freedom adds: goodput per GPU of the best design as more is allowed, a bar a step."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.plan import Step
from reports.figures.theme import CARD, FONT, PLAIN, Chart, Datum, data, finish, layered
from reports.numbers import digits

ROOM_PX = 340  # a narrower chart has no room for two numbers beside a bar
ROW_HEIGHT = 38


def gains(steps: Sequence[Step], *, description: str) -> Chart:
    """The first bar is the whole of the plain design, every later one what it adds, from where the last ended."""
    rows: list[Datum] = [
        {
            "step": step.name,
            "from": step.goodput_per_gpu - step.gain if i else 0.0,
            "to": step.goodput_per_gpu,
            "end": max(step.goodput_per_gpu, step.goodput_per_gpu - step.gain),
            "short": digits(step.goodput_per_gpu),
            "told": f"{digits(step.goodput_per_gpu)}" + (f"  ({_signed(step.gain)})" if i else ""),
            "colour": "var(--s1)" if not i else "var(--good)" if step.gain >= 0 else "var(--slow)",
        }
        for i, step in enumerate(steps)
    ]
    top = max((step.goodput_per_gpu for step in steps), default=1.0) or 1.0
    base = alt.Chart(data(rows))
    y = alt.Y(
        "step:N",
        sort=[step.name for step in steps],
        title=None,
        axis=alt.Axis(labelFontSize=12.5, ticks=False, domain=False, labelLimit=230),
        scale=alt.Scale(paddingInner=0.3, paddingOuter=0.1),
    )
    x = alt.X(
        "from:Q",
        scale=alt.Scale(domain=[0, top * 1.2], nice=False),
        axis=alt.Axis(title="requests per second per GPU", format=PLAIN, tickCount=6),
    )
    bars = base.mark_bar(stroke=CARD, strokeWidth=1, cornerRadius=2).encode(
        x=x,
        x2=alt.X2("to:Q"),
        y=y,
        color=alt.Color("colour:N", scale=None),
        tooltip=[alt.Tooltip("step:N", title="allowed"), alt.Tooltip("told:N", title="goodput per GPU")],
    )
    # On a phone there is room for one number only; the table has the other.
    texts = [
        base.mark_text(align="left", dx=7, font=FONT, fontSize=12, fontWeight="bold", aria=False).encode(
            x=alt.X("end:Q"),
            y=y,
            text=alt.Text(f"{field}:N"),
            opacity=alt.condition(f"width {side} {ROOM_PX}", alt.value(1), alt.value(0)),
        )
        for field, side in (("told", ">="), ("short", "<"))
    ]
    return finish(layered(bars, *texts), height=ROW_HEIGHT * len(rows) + 8, description=description)


def _signed(gain: float) -> str:
    sign = "+" if gain >= 0 else "\N{MINUS SIGN}"
    return sign + digits(abs(gain))
