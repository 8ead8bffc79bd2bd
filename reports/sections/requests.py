"""Good and bad requests: what became of them, and what the bad ones missed."""

from __future__ import annotations

from collections.abc import Sequence

from reports import words
from reports.figures import outcomes, quadrants
from reports.numbers import count, percent
from reports.page import RunView
from reports.palette import PART_NAMES
from reports.sections.section import WIDTHS, Section, Swatch, abreast, named, panel
from reports.tables import Table


def outcomes_section(runs: Sequence[RunView]) -> Section | None:
    """All planned requests of each run in one bar."""
    known = [(run.label, run.bins.quadrants) for run in runs if run.bins.quadrants is not None]
    share = next((run.bins.targets.share for run in runs if run.bins.targets.share is not None), None)
    if not known or share is None:
        return None
    tells = words.of_each([(label, words.outcomes(q)) for label, q in known])
    parts = {name: [outcomes.counts(q)[part] for _, q in known] for part, name in PART_NAMES.items()}
    cut = any(q.undecided for _, q in known)
    rows = [
        [
            label,
            *(count(ns[i]) for ns in parts.values()),
            *([count(q.undecided)] if cut else []),
            count(q.total + q.undecided),
            percent(q.ok / q.total, share),
        ]
        for i, (label, q) in enumerate(known)
    ]
    return Section(
        "outcomes",
        "What became of every request",
        "Good requests should reach the target line; the colour after them says what is missed.",
        [panel("outcomes", 1, outcomes.outcomes(known, share, description=tells), tells)],
        Table(["run", *parts, *(["undecided"] if cut else []), "planned", "attainment"], rows),
        key=[Swatch(name, f"var(--{part})", square=True) for part, name in PART_NAMES.items() if any(parts[name])],
    )


def quadrants_section(runs: Sequence[RunView]) -> Section | None:
    """TTFT against TPOT with the four quadrants counted."""
    extent = quadrants.common_extent([run.bins for run in runs])
    if extent is None:
        return None
    columns = abreast(len(runs))
    panels, rows = [], []
    for i, run in enumerate(runs, 1):
        found = run.bins.density
        if found is None:
            continue
        tells = words.density(found)
        chart = quadrants.quadrants(found, run.bins.quadrants, run.bins.targets, extent, description=tells)
        panels.append(panel("quadrants", i, chart, tells, caption=named(runs, run.label), width=WIDTHS[columns]))
        rows += quadrants.table(run.label, found)
    asked = any(run.bins.targets.ttft_s is not None or run.bins.targets.tpot_s is not None for run in runs)
    parts = ("good", "late", "slow", "both") if asked else ()
    lower_left = "is good" if asked else "is fast"
    return Section(
        "quadrants",
        "Where requests fail" if asked else "First token against later tokens",
        f"Lower left {lower_left}. A cloud to the right waits for its first token; a cloud at the top decodes slowly.",
        panels,
        Table(["run", "first token", "per token", "requests"], rows),
        key=[Swatch(PART_NAMES[part], f"var(--{part})", square=True) for part in parts],
        columns=columns,
    )
