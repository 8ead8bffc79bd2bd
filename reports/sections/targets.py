"""Targets: how tight they could be, and which workloads meet them."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.lengths import FEW, LengthGrid
from metrics.tightness import SCALES, Tightness
from reports import words
from reports.figures import lengths as lengths_figure
from reports.figures import tightness as tightness_figure
from reports.numbers import count, digits, percent, target
from reports.page import RunView
from reports.sections.section import WIDTHS, Section, Swatch, named, panel, series
from reports.tables import Table

TABLE_SCALES = (0.25, 0.5, 0.7071, 1.0, 1.4142, 2.0, 4.0)


def tightness_section(runs: Sequence[RunView]) -> Section | None:
    """Attainment against the scale of the limits."""
    known = [(run.label, run.bins.tightness) for run in runs if run.bins.tightness is not None]
    if not known:
        return None
    limits = next((run.summary.attainment.limits_s for run in runs if run.summary.attainment), {})
    tells = words.of_each([(label, _tightness_words(found, limits)) for label, found in known])
    chart = tightness_figure.tightness(known, description=tells)
    return Section(
        "tightness",
        "How tight could the targets be?",
        "Left of one the limits are tighter than asked. A flat line there means room, a steep one none.",
        [panel("tightness", 1, chart, tells)],
        Table(
            ["run", *(f"{scale:.3g}\N{MULTIPLICATION SIGN}" for scale in TABLE_SCALES), "smallest that suffices"],
            [
                [
                    label,
                    *(percent(found.share[SCALES.index(scale)], found.target_share) for scale in TABLE_SCALES),
                    "none" if found.smallest is None else digits(found.smallest),
                ]
                for label, found in known
            ],
        ),
        key=series([label for label, _ in known]),
    )


def _tightness_words(found: Tightness, limits_s: dict[str, float]) -> str:
    if found.smallest is None:
        return f"no limits are wide enough for {target(found.target_share)}, because too many requests failed."
    scaled = {name: limit * found.smallest for name, limit in limits_s.items()}
    asked = words.targets({name: float(f"{limit:.3g}") for name, limit in scaled.items()})
    return f"{target(found.target_share)} of requests are good up to {digits(found.smallest)} times: {asked}."


def lengths_section(runs: Sequence[RunView]) -> Section | None:
    """Attainment over prompt length x output length, a chart per run."""
    known = [(run.label, run.bins.lengths, _share(run)) for run in runs if run.bins.lengths is not None]
    if not known:
        return None
    columns = 1 if len(known) == 1 else 2
    panels, rows = [], []
    for i, (label, grid, share) in enumerate(known, 1):
        tells = _lengths_words(grid)
        chart = lengths_figure.lengths(grid, share, description=tells)
        panels.append(panel("lengths", i, chart, tells, caption=named(runs, label), width=WIDTHS[columns]))
        rows += _lengths_rows(label, grid, share)
    return Section(
        "lengths",
        "Which workloads are served well",
        f"Every cell should reach the target share. Pale cells hold fewer than {FEW} requests and say little.",
        panels,
        Table(["run", "prompt tokens", "output tokens", "good", "requests", "attainment"], rows),
        key=[
            Swatch("reaches the target share", "var(--good)", square=True),
            Swatch("above 80 % of it", "var(--late)", square=True),
            Swatch("above half", "var(--slow)", square=True),
            Swatch("below half of it", "var(--both)", square=True),
        ],
        columns=columns,
    )


def _share(run: RunView) -> float:
    return run.bins.targets.share or 0.9


def _cells(grid: LengthGrid) -> list[tuple[str, str, int, int]]:
    prompts, outputs = lengths_figure.spans(grid.prompt_edge), lengths_figure.spans(grid.output_edge)
    return [
        (prompt, output, grid.good[i][j], grid.total[i][j])
        for i, prompt in enumerate(prompts)
        for j, output in enumerate(outputs)
        if grid.total[i][j]
    ]


def _lengths_words(grid: LengthGrid) -> str:
    """The worst cell that enough requests stand behind."""
    enough = [(good / total, prompt, output) for prompt, output, good, total in _cells(grid) if total >= FEW]
    if not enough:
        return f"No cell holds {FEW} requests."
    share, prompt, output = min(enough)
    return f"Worst served: prompts of {prompt} with outputs of {output} tokens, {percent(share)} good."


def _lengths_rows(label: str, grid: LengthGrid, share: float) -> list[list[str]]:
    return [
        [label, prompt, output, count(good), count(total), percent(good / total, share)]
        for prompt, output, good, total in _cells(grid)
    ]
