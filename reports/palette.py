"""The colours of a report: Okabe and Ito's palette, one darker set for light paper and one lighter for dark.

Charts name CSS variables (`var(--good)`), never colours, so one specification and one SVG serve the light
page, the dark page and paper.
"""

from __future__ import annotations

LIGHT = {
    "paper": "#f7f7f5",
    "card": "#ffffff",
    "ink": "#16191d",
    "soft": "#565c64",
    "line": "#dddfe0",
    "grid": "#ecedec",
    "accent": "#0b6ba8",
    "good": "#00835f",
    "late": "#e8a317",
    "slow": "#c25100",
    "both": "#8c2a10",
    "end": "#b9872f",
    "unmeasurable": "#7a5195",
    "failed": "#6b7178",
    "target": "#16191d",
    "on": "#ffffff",
    "on-bright": "#16191d",
    "s1": "#0b6ba8",
    "s2": "#b4467f",
    "s3": "#454b52",
    "s4": "#3fa3da",
    "p1": "#6b7178",
    "p2": "#b3570b",
    "p3": "#0b6ba8",
    "p4": "#a03a72",
    "p5": "#00785a",
    "p6": "#565c64",
    "valid": "#00714f",
    "warning": "#8a5a00",
    "invalid": "#b3370b",
    "wash": "#f0f1ef",
}

DARK = {
    "paper": "#0f1215",
    "card": "#171b20",
    "ink": "#eceef0",
    "soft": "#a3abb4",
    "line": "#2f363d",
    "grid": "#252b31",
    "accent": "#63b8ee",
    "good": "#23b58b",
    "late": "#f2bd4a",
    "slow": "#ef7d33",
    "both": "#d4694e",
    "end": "#a88a4a",
    "unmeasurable": "#b595d6",
    "failed": "#8d959d",
    "target": "#eceef0",
    "on": "#0b0d0f",
    "on-bright": "#0b0d0f",
    "s1": "#56a9e0",
    "s2": "#e08ab8",
    "s3": "#d2d7dc",
    "s4": "#a5dcf9",
    "p1": "#8d959d",
    "p2": "#ef9a4a",
    "p3": "#63b8ee",
    "p4": "#e08ab8",
    "p5": "#23b58b",
    "p6": "#a3abb4",
    "valid": "#4fd0a8",
    "warning": "#f2bd4a",
    "invalid": "#ff8f66",
    "wash": "#1e2329",
}

# A run in a chart of several: never told apart by colour alone.
SERIES = [f"var(--s{i})" for i in (1, 2, 3, 4)]
DASHES = [[1, 0], [7, 4], [2, 3], [9, 3, 2, 3]]


# The phases of a request, in the order in which they happen.
PHASES = [f"var(--p{i})" for i in range(1, 7)]

# What a request missed, in the order it is stacked.
PARTS = ["good", "late", "slow", "both", "end", "unmeasurable", "failed"]
PART_NAMES = {
    "good": "good",
    "late": "late first token",
    "slow": "slow tokens",
    "both": "both",
    "end": "late end",
    "unmeasurable": "not measurable",
    "failed": "failed",
}


def series_colour(index: int) -> str:
    """The colour of run `index` in a chart of several."""
    return SERIES[index % len(SERIES)]


def series_dash(index: int) -> list[int]:
    """Its dash: differs from its neighbours', and from that of the next run of the same colour."""
    return DASHES[(index + index // len(SERIES)) % len(DASHES)]


def variables(colours: dict[str, str]) -> str:
    """The palette as CSS custom properties."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
