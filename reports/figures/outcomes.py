"""Every planned request in one bar per run: good, or what it missed."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.bins import Quadrants
from reports.figures.theme import CARD, FONT, Chart, Datum, data, finish, layered, target_rule
from reports.numbers import percent, target
from reports.palette import PART_NAMES, PARTS

ROW_HEIGHT = 46
LABEL_FROM = 0.08  # a narrower segment has no room for its per cent
BRIGHT = ("late", "end")  # parts whose colour is light in both themes


def outcomes(runs: Sequence[tuple[str, Quadrants]], share: float, *, description: str) -> Chart:
    """One stacked bar a run over 0..100 % of its planned requests, with the share to reach."""
    rows = [row for label, quadrants in runs for row in _segments(label, quadrants, share)]
    base = alt.Chart(data(rows))
    named = len(runs) > 1
    y = alt.Y(
        "run:N",
        sort=[label for label, _ in runs],
        title=None,
        axis=alt.Axis(labelFontSize=13, ticks=False, domain=False, labelLimit=180) if named else None,
        scale=alt.Scale(paddingInner=0.3, paddingOuter=0.08),
    )
    x = alt.X(
        "from:Q",
        title=None,
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(format="%", tickCount=5, grid=False),
    )
    bars = base.mark_bar(stroke=CARD, strokeWidth=1.5, cornerRadius=2).encode(
        x=x,
        x2=alt.X2("to:Q"),
        y=y,
        color=alt.Color(
            "part:N", scale=alt.Scale(domain=PARTS, range=[f"var(--{part})" for part in PARTS]), legend=None
        ),
        tooltip=[
            alt.Tooltip("run:N", title="run"),
            alt.Tooltip("name:N", title="part"),
            alt.Tooltip("count:Q", title="requests", format=","),
            alt.Tooltip("share:N", title="share"),
        ],
    )
    labels = base.transform_filter(f"datum.to - datum.from >= {LABEL_FROM}").mark_text(
        font=FONT, fontSize=13, fontWeight="bold", aria=False
    )
    text = labels.encode(
        x=alt.X("middle:Q"),
        y=y,
        text=alt.Text("share:N"),
        color=alt.Color("ink:N", scale=None),
    )
    rule = target_rule("x", share, f"target {target(share)}", leftwards=share > 0.6)
    return finish(
        layered(bars, text, rule), height=ROW_HEIGHT * len(runs) + (8 if named else 0), description=description
    )


def _segments(label: str, quadrants: Quadrants, share: float) -> list[Datum]:
    rows: list[Datum] = []
    begun = 0
    for part, count in counts(quadrants).items():
        if not count:
            continue
        rows.append(
            {
                "run": label,
                "part": part,
                "name": PART_NAMES[part],
                "count": count,
                "from": begun / quadrants.total,
                "to": (begun + count) / quadrants.total,
                "middle": (begun + count / 2) / quadrants.total,
                "share": percent(count / quadrants.total, share if part == "good" else None),
                "ink": "var(--on-bright)" if part in BRIGHT else "var(--on)",
            }
        )
        begun += count
    return rows


def counts(quadrants: Quadrants) -> dict[str, int]:
    """The parts in stacking order."""
    return {
        "good": quadrants.ok,
        "late": quadrants.late_first_token,
        "slow": quadrants.slow_tokens,
        "both": quadrants.both,
        "end": quadrants.late_end,
        "unmeasurable": quadrants.unmeasurable,
        "failed": quadrants.failed,
    }
