"""Load: what happens as the rate grows, how tight the targets may be there, and speed against throughput."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.goodput import GoodputEstimate
from metrics.sweep import Sweep
from reports import words
from reports.figures import rates as figures
from reports.figures import tightness as tightness_figure
from reports.numbers import NOTHING, count, digits, percent, plural, rate, target
from reports.sections.section import WIDTHS, Section, Swatch, abreast, panel, series
from reports.tables import Table

Panels = Sequence[Sweep]


def attainment_section(sweeps: Panels) -> Section | None:
    """Attainment against rate with goodput marked where it meets the target."""
    if not sweeps:
        return None
    by, unit = figures.divisor(sweeps)
    tells = words.of_each(
        [(found.label, _crossing_words(found, each, unit)) for found, each in zip(sweeps, by, strict=True)]
    )
    return Section(
        "attainment",
        "Requests within targets as the rate grows",
        "Goodput is where the line falls through the target; how steep it falls says how sharp that limit is.",
        [panel("attainment", 1, figures.attainment(sweeps, description=tells), tells)],
        Table(
            ["deployment", unit, "good", "requests", "attainment", "failed"],
            [
                [
                    found.label,
                    digits(point.rate_per_s / gpus),
                    count(point.good),
                    count(point.total),
                    percent(point.share, found.target_share),
                    percent(point.failed_share),
                ]
                for found, gpus in zip(sweeps, by, strict=True)
                for point in found.points
            ],
        ),
        key=series([found.label for found in sweeps]),
    )


def _crossing_words(found: Sweep, by: int, unit: str) -> str:
    """In the unit of the axis, so that the numbers can be found in the picture."""
    if found.goodput is None:
        point = found.points[0]
        share = percent(point.share, found.target_share)
        return f"{share} good at {digits(point.rate_per_s / by)} {unit}; a second rate would show more."
    estimate = told(found.goodput, by)
    runs = plural(len(found.points), "run")
    return f"{target(found.target_share)} are good up to {estimate} {unit}, from {runs}."


def told(found: GoodputEstimate, by: int = 1) -> str:
    """`3.2 (3.0 to 3.4)`, or which end it is beyond."""
    if found.bound != "estimate":
        return f"{found.bound.replace('_', ' ')} {digits(found.rate / by)}"
    if found.low is None or found.high is None:
        return digits(found.rate / by)
    return f"{digits(found.rate / by)} ({digits(found.low / by)} to {digits(found.high / by)})"


def binding_section(sweeps: Panels) -> Section | None:
    """The share that meets each limit alone, a chart per deployment: the lowest line binds."""
    known = [found for found in sweeps if len(found.points) > 1 and any(point.marginals for point in found.points)]
    if not known:
        return None
    limits = [name for name in figures.LIMITS if any(name in p.marginals for found in known for p in found.points)]
    columns = abreast(len(known))
    panels, rows = [], []
    for i, found in enumerate(known, 1):
        tells = _binding_words(found)
        chart = figures.binding(found, limits, description=tells)
        caption = found.label if len(known) > 1 else ""
        panels.append(panel("binding", i, chart, tells, caption=caption, width=WIDTHS[columns]))
        rows += [
            [
                found.label,
                rate(point.rate_per_s),
                percent(point.share, found.target_share),
                *(percent(point.marginals.get(name)) for name in limits),
                percent(1 - point.failed_share),
            ]
            for point in found.points
        ]
    names = [*limits, "failed"]
    return Section(
        "binding",
        "Which objective binds",
        "Each line is one objective alone, the thick one all together. The one that falls first sets goodput.",
        panels,
        Table(["deployment", "rate", "all", *(figures.LIMITS[name] for name in names)], rows),
        key=[
            Swatch("all objectives", "var(--good)"),
            *(Swatch(figures.LIMITS[n], figures.LIMIT_COLOURS[n], dash=_dash(figures.LIMIT_DASHES[n])) for n in names),
        ],
        columns=columns,
    )


def _dash(pattern: list[int]) -> str:
    return " ".join(map(str, pattern))


def _binding_words(found: Sweep) -> str:
    """Which objective is the lowest at the highest rate, and just where the target is lost."""
    by, unit = figures.divisor([found])
    lost = next((point for point in found.trend if point.share < found.target_share), None)
    if lost is None:
        return "At no rate tried was the target lost."
    alone = {**lost.marginals, "failed": 1 - lost.failed_share}
    worst = min(alone, key=lambda name: alone[name])
    at = digits(lost.rate_per_s / by[0])
    return (
        f"At {at} {unit}, where the target is lost, {figures.LIMITS[worst]} is the lowest: "
        f"{percent(alone[worst])} alone, {percent(lost.share)} with all others."
    )


def scale_section(sweeps: Panels) -> Section | None:
    """Goodput against the scale of the limits."""
    known = [found for found in sweeps if sum(estimate is not None for estimate in found.scaled_goodput) > 1]
    if not known:
        return None
    by, unit = figures.divisor(known)
    lines = [
        (found.label, found.scales, [e.per_gpu(gpus) if e else None for e in found.scaled_goodput])
        for found, gpus in zip(known, by, strict=True)
    ]
    tells = words.of_each([(label, _scale_words(scales, estimates)) for label, scales, estimates in lines])
    chart = tightness_figure.scaled_goodput(lines, unit, description=tells)
    return Section(
        "scale",
        "Goodput against SLO scale",
        "Where the lines cross, the ranking depends on how tight the targets are.",
        [panel("scale", 1, chart, tells)],
        Table(
            ["deployment", *(f"{scale:g}\N{MULTIPLICATION SIGN}" for scale in known[0].scales)],
            [[label, *(NOTHING if e is None else told(e) for e in estimates)] for label, _, estimates in lines],
        ),
        key=series([label for label, _, _ in lines]),
    )


def _scale_words(scales: Sequence[float], estimates: Sequence[GoodputEstimate | None]) -> str:
    known = [(scale, found) for scale, found in zip(scales, estimates, strict=True) if found is not None]
    ends = (known[0], known[-1])
    return "; ".join(f"{_sure(found)} with limits times {scale:g}" for scale, found in ends) + "."


def _sure(found: GoodputEstimate) -> str:
    if tightness_figure.told_apart(found):
        return told(found)
    return f"about {digits(found.rate)} (no run was near)"


def interactivity_section(sweeps: Panels) -> Section | None:
    """Tokens per second per GPU against tokens per second a user sees."""
    known = [found for found in sweeps if sum(bool(p.output_tokens_per_s) for p in found.points) > 1]
    if not known:
        return None
    by, unit = figures.divisor(known)
    per = unit.removeprefix("requests ")
    tells = "Each dot is a rate; the ring is the one nearest to goodput. Only output tokens are counted."
    return Section(
        "interactivity",
        "Throughput against interactivity",
        "Up is cheaper, right is faster for the user. Beyond the ring, throughput is bought with broken targets.",
        [panel("interactivity", 1, figures.interactivity(known, description=tells), tells)],
        Table(
            ["deployment", unit, f"output tokens {per}", "tokens/s a user sees", "attainment"],
            [
                [
                    found.label,
                    digits(point.rate_per_s / gpus),
                    NOTHING if not point.output_tokens_per_s else digits(point.output_tokens_per_s / gpus),
                    NOTHING if not point.user_tokens_per_s else digits(point.user_tokens_per_s),
                    percent(point.share, found.target_share),
                ]
                for found, gpus in zip(known, by, strict=True)
                for point in found.points
            ],
        ),
        key=series([found.label for found in known]),
    )
