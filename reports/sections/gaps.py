"""Token gaps: what an arriving prompt does to the others, and the worst wait."""

from __future__ import annotations

from collections.abc import Sequence

from reports import words
from reports.figures import interference, worst
from reports.numbers import count, seconds
from reports.page import RunView
from reports.sections.section import WIDTHS, Section, Swatch, abreast, named, panel
from reports.tables import Table


def interference_section(runs: Sequence[RunView]) -> Section | None:
    """Token gaps of the others around the arrivals of long prompts."""
    known = [(run.label, run.bins.interference) for run in runs if run.bins.interference is not None]
    if not known:
        return None
    medians = [gap for _, found in known for gap in found.p50_s if gap is not None]
    longest = [gap for _, found in known for gap in found.max_s if gap is not None]
    columns = abreast(len(known))
    panels, rows = [], []
    for i, (label, found) in enumerate(known, 1):
        tells = words.interference(found)
        chart = interference.interference(found, (min(medians), max(longest)), description=tells)
        panels.append(panel("interference", i, chart, tells, caption=named(runs, label), width=WIDTHS[columns]))
        rows += [
            [label, f"{at:+.3f} s", count(n), seconds(p50), seconds(p99), seconds(most)]
            for at, n, p50, p99, most in zip(
                found.offset_s, found.n, found.p50_s, found.p99_s, found.max_s, strict=True
            )
            if n
        ]
    return Section(
        "interference",
        "What an arriving prompt does to the others",
        "Flat lines: prefill leaves running requests alone. A step up after zero: their tokens wait for it.",
        panels,
        Table(["run", "since the arrival", "gaps", "p50", "p99", "longest"], rows),
        key=[
            Swatch("median gap", "var(--accent)"),
            Swatch("p99", "var(--slow)", dash="6 3"),
            Swatch("longest", "var(--late)", square=True),
        ],
        columns=columns,
    )


def worst_section(runs: Sequence[RunView]) -> Section | None:
    """The longest token gap of each run with its surroundings."""
    known = [(run.label, run.bins.worst_gap) for run in runs if run.bins.worst_gap is not None]
    if not known:
        return None
    panels = []
    rows = []
    for i, (label, found) in enumerate(known, 1):
        tells = words.worst_gap(found)
        panels.append(panel("worst", i, worst.worst_gap(found, description=tells), tells, caption=named(runs, label)))
        rows += [
            [
                label,
                f"token {found.index + 1} after",
                seconds(found.gap_s),
                f"{found.ends_s:.3f} s",
                count(found.request_id),
            ]
        ]
        rows += [
            [label, "prompt sent", f"{a.prompt_tokens:,} tokens", f"{a.at_s:.3f} s", count(a.request_id)]
            for a in found.arrivals
        ]
    return Section(
        "worst",
        "The worst wait, token by token",
        "Each tick is a token of the request that waited longest; circles are prompts others sent, sized by length.",
        panels,
        Table(["run", "what", "how much", "at", "request"], rows),
    )
