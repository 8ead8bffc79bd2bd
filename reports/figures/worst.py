"""The worst stall of a run: one request's tokens, one tick each, over the prompts others sent meanwhile."""

from __future__ import annotations

import altair as alt

from metrics.tokengaps import STRIP_SIDE_S, WorstGap
from reports.figures.theme import INK, PLAIN, Chart, Datum, data, finish, halo, layered
from reports.numbers import seconds

HEIGHT = 132
LANES = ["tokens received", "prompts others sent"]
UPPER, LOWER = 0.30, 0.78  # lanes, as parts of the height


def worst_gap(worst: WorstGap, *, description: str) -> Chart:
    """Tokens as ticks, the gap as a band, arrivals as circles as large as their prompts; time from the gap's start."""
    begin = -max(STRIP_SIDE_S, worst.gap_s)
    end = worst.gap_s + STRIP_SIDE_S
    x = alt.X(
        "at:Q",
        scale=alt.Scale(domain=[round(begin, 4), round(end, 4)], nice=False),
        axis=alt.Axis(title="seconds since the last token before the gap", grid=False, format=PLAIN, tickCount=8),
    )
    band = alt.Chart(data([{"at": 0.0, "to": worst.gap_s}])).mark_rect(opacity=0.16, color="var(--slow)", aria=False)
    tokens: list[Datum] = [{"at": at - worst.begins_s} for at in worst.token_s]
    ticks = alt.Chart(data(tokens)).mark_tick(
        thickness=1.6, height=26, color="var(--accent)", clip=True, aria=False, opacity=0.9
    )
    return finish(
        layered(
            band.encode(x=x, x2=alt.X2("to:Q")),
            ticks.encode(x=x, y=alt.value(HEIGHT * UPPER)),
            *_arrivals(worst, x),
            _gap_label(worst, x),
            *_lane_names(),
        ),
        height=HEIGHT,
        description=description,
    )


def _arrivals(worst: WorstGap, x: alt.X) -> list[alt.Chart | alt.LayerChart]:
    if not worst.arrivals:
        return []
    longest = max(worst.arrivals, key=lambda a: a.prompt_tokens)
    rows: list[Datum] = [
        {"at": a.at_s - worst.begins_s, "prompt": a.prompt_tokens, "request": a.request_id} for a in worst.arrivals
    ]
    circles = alt.Chart(data(rows)).mark_point(
        shape="circle", filled=True, opacity=0.75, color="var(--slow)", clip=True, stroke="var(--card)", strokeWidth=1
    )
    size = alt.Size("prompt:Q", scale=alt.Scale(domain=[0, longest.prompt_tokens], range=[12, 420]), legend=None)
    named = data([{"at": longest.at_s - worst.begins_s, "label": f"{longest.prompt_tokens:,}"}])
    label = alt.Chart(named).encode(x=x, y=alt.value(HEIGHT * LOWER + 12), text=alt.Text("label:N"))
    turns = longest.at_s > worst.ends_s + STRIP_SIDE_S * 0.8  # no room for its length to the right of it
    return [
        circles.encode(
            x=x,
            y=alt.value(HEIGHT * LOWER),
            size=size,
            tooltip=[
                alt.Tooltip("request:Q", title="request"),
                alt.Tooltip("prompt:Q", title="prompt tokens", format=","),
                alt.Tooltip("at:Q", title="seconds since the gap began", format="+.3f"),
            ],
        ),
        halo(label, align="right" if turns else "center", baseline="top", fontWeight="bold"),
    ]


def _gap_label(worst: WorstGap, x: alt.X) -> alt.LayerChart:
    named = data([{"at": worst.gap_s / 2, "label": seconds(worst.gap_s)}])
    base = alt.Chart(named).encode(x=x, y=alt.value(4), text=alt.Text("label:N"))
    return halo(base, baseline="top", fontWeight="bold", color=INK)


def _lane_names() -> list[alt.LayerChart]:
    heights = (UPPER, LOWER)
    return [
        halo(
            alt.Chart(data([{"label": name}])).encode(
                x=alt.value(0), y=alt.value(HEIGHT * height - 20), text=alt.Text("label:N")
            ),
            align="left",
            baseline="bottom",
            color="var(--soft)",
        )
        for name, height in zip(LANES, heights, strict=True)
    ]
