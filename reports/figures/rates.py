"""One deployment at several rates: attainment against rate, what binds as it grows, and speed against throughput."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.sweep import LoadPoint, Sweep
from reports.figures.theme import (
    CARD,
    PLAIN,
    Chart,
    Datum,
    data,
    finish,
    halo,
    layered,
    series_colour,
    series_dash,
    target_rule,
    y_title,
)
from reports.numbers import count, digits, percent, target

HEIGHT = 260
CLOSE = 0.07  # of the axis: crossings nearer than that would write over each other
LIMITS = {"ttft": "first token in time", "tpot": "tokens in time", "e2e": "end in time", "failed": "did not fail"}
LIMIT_COLOURS = {"ttft": "var(--late)", "tpot": "var(--slow)", "e2e": "var(--end)", "failed": "var(--failed)"}
LIMIT_DASHES = {"ttft": [7, 4], "tpot": [2, 3], "e2e": [9, 3, 2, 3], "failed": [1, 2]}


def divisor(sweeps: Sequence[Sweep]) -> tuple[list[int], str]:
    """What each sweep's rates are divided by, and the unit that gives: per GPU where all are known."""
    if all(found.gpus for found in sweeps):
        return [found.gpus or 1 for found in sweeps], "requests per second per GPU"
    return [1] * len(sweeps), "requests per second"


def attainment(sweeps: Sequence[Sweep], *, description: str) -> Chart:
    """A dot per run, a line through the rates, and goodput with its interval where the line meets the target."""
    labels = [found.label for found in sweeps]
    by, unit = divisor(sweeps)
    rows: list[Datum] = [
        {
            "run": found.label,
            "rate": point.rate_per_s / gpus,
            "share": point.share,
            "told": f"{percent(point.share, found.target_share)} ({count(point.good)} of {count(point.total)})",
        }
        for found, gpus in zip(sweeps, by, strict=True)
        for point in found.points
    ]
    trend: list[Datum] = [
        {"run": found.label, "rate": point.rate_per_s / gpus, "share": point.share}
        for found, gpus in zip(sweeps, by, strict=True)
        for point in found.trend
    ]
    met = [row for found, gpus in zip(sweeps, by, strict=True) if (row := _met(found, gpus)) is not None]
    rates = [float(str(row["rate"])) for row in rows]
    met = _apart(_within(met, min(rates), max(rates)), max(rates) - min(rates))
    base = alt.Chart(data(rows))
    x = alt.X(
        "rate:Q",
        scale=alt.Scale(zero=False, padding=12),
        axis=alt.Axis(title=unit, format=PLAIN, tickCount=7, labelOverlap="parity", labelSeparation=10),
    )
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], **y_title("requests within targets")),
    )
    colour = series_colour(labels)
    line = (
        alt.Chart(data(trend)).mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=series_dash(labels))
    )
    dots = base.mark_point(size=40, filled=True, opacity=0.5).encode(
        x=x,
        y=y,
        color=colour,
        tooltip=[
            alt.Tooltip("run:N", title="deployment"),
            alt.Tooltip("rate:Q", title=unit, format=".3~g"),
            alt.Tooltip("told:N", title="within targets"),
        ],
    )
    share = sweeps[0].target_share
    return finish(
        layered(line, dots, target_rule("y", share, f"target {target(share)}"), *_crossings(met, labels)),
        height=HEIGHT,
        description=description,
    )


def _met(found: Sweep, gpus: int) -> Datum | None:
    estimate = found.goodput
    if estimate is None or estimate.bound != "estimate":
        return None
    return {
        "run": found.label,
        "rate": estimate.rate / gpus,
        "low": (estimate.low or estimate.rate) / gpus,
        "high": (estimate.high or estimate.rate) / gpus,
        "share": found.target_share,
        "told": digits(estimate.rate / gpus),
    }


def _crossings(met: Sequence[Datum], labels: Sequence[str]) -> list[Chart]:
    base = alt.Chart(data(met)).encode(y=alt.Y("share:Q"))
    colour = series_colour(labels)
    return [
        base.mark_rule(strokeWidth=7, strokeCap="round", opacity=0.4, aria=False).encode(
            x=alt.X("low:Q"), x2=alt.X2("high:Q"), color=colour
        ),
        base.mark_point(size=120, filled=True, opacity=1, stroke=CARD, strokeWidth=2).encode(
            x=alt.X("rate:Q"), color=colour
        ),
        *(
            halo(
                base.transform_filter(f"datum.below == {str(below).lower()}").encode(
                    x=alt.X("rate:Q"), text=alt.Text("told:N")
                ),
                dy=18 if below else -15,
                fontWeight="bold",
            )
            for below in sorted({bool(row["below"]) for row in met})
        ),
    ]


def _within(met: Sequence[Datum], low: float, high: float) -> list[Datum]:
    """Intervals cut off where nothing was tried: one that says nothing would push all dots into a corner."""
    room = 0.1 * (high - low)
    return [
        {**row, "low": max(float(str(row["low"])), low - room), "high": min(float(str(row["high"])), high + room)}
        for row in met
    ]


def _apart(met: Sequence[Datum], span: float) -> list[Datum]:
    """The crossings from left to right; the label of one close to the one before stands below the line, not on it."""
    placed: list[Datum] = []
    for row in sorted(met, key=lambda row: float(str(row["rate"]))):
        near = bool(placed) and float(str(row["rate"])) - float(str(placed[-1]["rate"])) < CLOSE * span
        placed.append({**row, "below": near and not placed[-1]["below"]})
    return placed


def binding(found: Sweep, limits_first: Sequence[str], *, description: str) -> Chart:
    """The share that meets each limit alone, and all of them, as the rate grows: the lowest line binds."""
    by, unit = divisor([found])
    rows = [row for point in found.trend for row in _parts(point, by[0], limits_first)]
    names = [name for name in LIMITS if any(row["part"] == name for row in rows)]
    x = alt.X(
        "rate:Q",
        scale=alt.Scale(zero=False, padding=8),
        axis=alt.Axis(title=unit, format=PLAIN, tickCount=5, labelOverlap="parity", labelSeparation=10),
    )
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], **y_title("share of requests")),
    )
    base = alt.Chart(data(rows)).encode(x=x, y=y)
    every = base.transform_filter("datum.part == 'all'").mark_line(strokeWidth=3, color="var(--good)")
    each = base.transform_filter("datum.part != 'all'").mark_line(strokeWidth=2)
    colour = alt.Scale(domain=names, range=[LIMIT_COLOURS[name] for name in names])
    dash = alt.Scale(domain=names, range=[LIMIT_DASHES[name] for name in names])
    hover = base.mark_circle(size=70, opacity=0).encode(
        tooltip=[
            alt.Tooltip("name:N", title="limit"),
            alt.Tooltip("rate:Q", title=unit, format=".3~g"),
            alt.Tooltip("told:N", title="share"),
        ]
    )
    return finish(
        layered(
            each.encode(
                color=alt.Color("part:N", scale=colour, legend=None),
                strokeDash=alt.StrokeDash("part:N", scale=dash, legend=None),
            ),
            every,
            hover,
            target_rule("y", found.target_share, f"target {target(found.target_share)}"),
        ),
        height=HEIGHT - 40,
        description=description,
    )


def _parts(point: LoadPoint, gpus: int, limits: Sequence[str]) -> list[Datum]:
    parts = {name: point.marginals[name] for name in limits if name in point.marginals}
    shares = {"all": point.share, **parts, "failed": 1 - point.failed_share}
    names = {"all": "all limits", **LIMITS}
    return [
        {"rate": point.rate_per_s / gpus, "part": part, "name": names[part], "share": share, "told": percent(share)}
        for part, share in shares.items()
    ]


def interactivity(sweeps: Sequence[Sweep], *, description: str) -> Chart:
    """Output tokens/s per GPU against tokens/s one user sees, a point per rate; the one at goodput is ringed."""
    labels = [found.label for found in sweeps]
    by, unit = divisor(sweeps)
    per = unit.removeprefix("requests ")
    rows: list[Datum] = [
        {
            "run": found.label,
            "user": point.user_tokens_per_s,
            "tokens": point.output_tokens_per_s / gpus,
            "rate": point.rate_per_s / gpus,
            "order": i,
            "ring": i == _nearest(found),
        }
        for found, gpus in zip(sweeps, by, strict=True)
        for i, point in enumerate(found.trend)
        if point.user_tokens_per_s and point.output_tokens_per_s
    ]
    base = alt.Chart(data(rows))
    x = alt.X(
        "user:Q",
        scale=alt.Scale(zero=False, padding=14),
        axis=alt.Axis(title="tokens per second a user sees (1 / median TPOT)", format=PLAIN, tickCount=6),
    )
    y = alt.Y(
        "tokens:Q", scale=alt.Scale(zero=True), axis=alt.Axis(format=PLAIN, tickCount=5, **y_title(f"tokens {per}"))
    )
    colour = series_colour(labels)
    line = base.mark_line(strokeWidth=1.6, opacity=0.7).encode(
        x=x, y=y, color=colour, strokeDash=series_dash(labels), order=alt.Order("order:Q")
    )
    dots = base.mark_point(size=44, filled=True, opacity=0.9).encode(
        x=x,
        y=y,
        color=colour,
        tooltip=[
            alt.Tooltip("run:N", title="deployment"),
            alt.Tooltip("rate:Q", title=unit, format=".3~g"),
            alt.Tooltip("tokens:Q", title=f"tokens {per}", format=".4~g"),
            alt.Tooltip("user:Q", title="tokens/s a user sees", format=".3~g"),
        ],
    )
    ring = base.transform_filter("datum.ring").mark_point(size=260, filled=False, strokeWidth=2.2, opacity=1)
    return finish(layered(line, dots, ring.encode(x=x, y=y, color=colour)), height=HEIGHT, description=description)


def _nearest(found: Sweep) -> int | None:
    """The point nearest to goodput."""
    if found.goodput is None:
        return None
    rate = found.goodput.rate
    return min(range(len(found.trend)), key=lambda i: abs(found.trend[i].rate_per_s - rate))
