"""Sides against each other: a comparison or a gate as a forest of effects, and what differed in the set-up."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.compare import Comparison, Contrast
from metrics.gate.looks import RuleResult
from metrics.gate.report import GateReport
from metrics.standing import metric_name
from reports import gate_words
from reports.figures.forest import Effect, forest
from reports.numbers import NOTHING, change, percent, rate, seconds
from reports.page import PageData
from reports.sections.section import Panel, Section, Swatch, panel
from reports.tables import Table

UNITS = {"share": "change in percentage points", "relative": "change in per cent"}
AT_A_GLANCE = ("attainment", "ttft.p90", "tpot.p90", "completed_per_s", "tokens_per_s")
STANDINGS = {"better": "better", "worse": "worse", "cannot_tell": "open"}
VERDICTS = {"PASS": "better", "FAIL": "worse", "INCONCLUSIVE": "open", "INVALID": "open"}
KEY = [
    Swatch("better", "var(--valid)", square=True),
    Swatch("worse", "var(--invalid)", square=True),
    Swatch("cannot tell", "var(--soft)", square=True),
]


def comparison_sections(found: Comparison | None) -> list[Section]:
    """The sides at a glance, then the effects of each against the first."""
    if found is None:
        return []
    made = [_effects(found, side.label, number) for number, side in enumerate(found.sides[1:], 1)]
    return [_sides(found), *(section for section in made if section is not None)]


def _sides(found: Comparison) -> Section:
    """A row per side: its GPUs, the share within targets, and what it delivered, per GPU where those differ."""
    keys = [key for key in AT_A_GLANCE if key in found.sides[0].values]
    rows = [
        [
            side.label,
            NOTHING if side.gpus is None else str(side.gpus),
            str(side.runs),
            *(value(key, side.values.get(key)) for key in keys),
            side.verdict,
        ]
        for side in found.sides
    ]
    names = [metric_name(key, per_gpu=found.per_gpu) for key in keys]
    each = (
        " The sides have different numbers of GPUs, so rates are per GPU: offered the same load, a side with more GPUs "
        "has less to do on each. What each could carry, goodput search finds."
    )
    return Section(
        "sides",
        "Side by side",
        "The mean over the runs of each side; the first is the one that the others are compared with.",
        [],
        Table(["side", "GPUs", "runs", *names, "measurement"], rows),
        note=f"Attainment: the share of requests within all targets.{each if found.per_gpu else ''}",
        unfolded=True,
        leads=True,
    )


def _effects(found: Comparison, label: str, number: int) -> Section | None:
    mine = [c for c in found.contrasts if c.label == label and c.effect is not None]
    groups = {
        "relative": [c for c in mine if c.kind != "share"],
        "share": [c for c in mine if c.kind == "share"],
    }
    name = f"comparison-{number}"
    panels: list[Panel] = []
    for unit, contrasts in groups.items():
        if not contrasts:
            continue
        tells = _contrast_words(found, contrasts)
        chart = forest([_effect(found, c) for c in contrasts], unit=UNITS[unit], description=tells)
        caption = "Shares" if unit == "share" else "Times and rates"
        panels.append(panel(name, len(panels) + 1, chart, tells, caption=caption))
    if not panels:
        return None
    return Section(
        name,
        f"{label} against {found.sides[0].label}",
        "An interval clear of zero is a difference; one that touches zero may be chance, however far its dot.",
        panels,
        Table(
            ["metric", found.sides[0].label, label, "effect", "from", "to", "paired by", "verdict"],
            [_contrast_row(found, c, number) for c in mine],
        ),
        key=KEY,
        note=_certainty(mine),
    )


def _certainty(contrasts: Sequence[Contrast]) -> str:
    if any(c.interval == "within_run" for c in contrasts):
        return "One run per side: intervals come from inside the runs and do not cover what changes between runs."
    return "95 % intervals over pairs of runs."


def _name(found: Comparison, contrast: Contrast) -> str:
    same = ", same request" if contrast.paired_by == "request" else ""
    return metric_name(contrast.metric, per_gpu=found.per_gpu) + same


def _effect(found: Comparison, contrast: Contrast) -> Effect:
    assert contrast.effect is not None
    return Effect(
        name=_name(found, contrast),
        effect=contrast.effect * 100,
        low=None if contrast.low is None else contrast.low * 100,
        high=None if contrast.high is None else contrast.high * 100,
        told=_change(contrast, contrast.effect),
        standing=STANDINGS[contrast.standing],
    )


def _change(contrast: Contrast, value: float | None) -> str:
    return change(value, "pp" if contrast.kind == "share" else "%")


def _contrast_words(found: Comparison, contrasts: Sequence[Contrast]) -> str:
    told = []
    for standing, verb in (("better", "Better"), ("worse", "Worse"), ("cannot_tell", "Cannot tell")):
        names = [_name(found, c) for c in contrasts if c.standing == standing]
        if names:
            told.append(f"{verb}: {'; '.join(names)}.")
    return " ".join(told)


def _contrast_row(found: Comparison, contrast: Contrast, number: int) -> list[str]:
    first, side = found.sides[0], found.sides[number]
    key = contrast.metric
    ends = (contrast.effect, contrast.low, contrast.high)
    return [
        _name(found, contrast),
        value(key, first.values.get(key)),
        value(key, side.values.get(key)),
        *(_change(contrast, end) for end in ends),
        contrast.paired_by,
        contrast.standing.replace("_", " "),
    ]


def value(key: str, number: float | None) -> str:
    """A metric's value in its own unit, by its key."""
    if number is None:
        return NOTHING
    if "." in key:
        return seconds(number)
    return percent(number) if key in ("attainment", "failed") else rate(number)


def differences(page: PageData) -> Table | None:
    """What was not the same in the set-up of the sides, or of the runs."""
    if page.comparison is not None:
        labels, found = [side.label for side in page.comparison.sides], page.comparison.differences
    else:
        labels, found = [run.label for run in page.runs], page.differences
    if not found:
        return None
    return Table(["differs", *labels], [[d.what, *(text or NOTHING for text in d.values)] for d in found])


def gate_section(found: GateReport | None) -> Section | None:
    """Each rule's effect with its interval and its margin."""
    if found is None:
        return None
    panels: list[Panel] = []
    for unit, caption, axis in (
        ("relative", "Times and rates", "change in per cent"),
        ("difference", "Shares", "change in percentage points"),
    ):
        results = [r for r in found.rules if r.unit == unit and r.effect is not None]
        if not results:
            continue
        tells = " ".join(f"{r.rule}: {gate_words.effect(r)}, {gate_words.WORDS[r.verdict]}." for r in results)
        chart = forest([_rule_effect(r) for r in results], unit=axis, description=tells)
        panels.append(panel("gate", len(panels) + 1, chart, tells, caption=caption))
    return Section(
        "gate",
        "Each rule and what the pairs say",
        "A rule passes when its whole interval lies on the better side of its margin, the upright tick.",
        panels,
        Table(
            ["rule", "baseline", "candidate", "effect", "interval", "margin", "verdict", "based on", "p", "p (Holm)"],
            [_rule_row(result) for result in found.rules],
        ),
        key=[
            Swatch("pass", "var(--valid)", square=True),
            Swatch("fail", "var(--invalid)", square=True),
            Swatch("undecided", "var(--soft)", square=True),
        ],
        note=f"{gate_words.sides(found)}; {gate_words.cost(found)}.",
        unfolded=True,
    )


def _rule_effect(result: RuleResult) -> Effect:
    assert result.effect is not None
    return Effect(
        name=result.metric,
        effect=result.effect * 100,
        low=None if result.low is None else result.low * 100,
        high=None if result.high is None else result.high * 100,
        told=f"{gate_words.effect(result)}  {gate_words.WORDS[result.verdict]}",
        standing=VERDICTS[result.verdict],
        margin=result.margin * 100,
    )


def _rule_row(result: RuleResult) -> list[str]:
    return [
        result.rule + (" (warn)" if result.warn else ""),
        gate_words.value(result, result.baseline),
        gate_words.value(result, result.candidate),
        gate_words.effect(result),
        gate_words.interval(result),
        gate_words.margin(result),
        f"{gate_words.SIGNS[result.verdict]} {gate_words.WORDS[result.verdict]}",
        gate_words.based_on(result),
        *(NOTHING if p is None else f"{p:.3g}" for p in (result.p_value, result.p_holm)),
    ]
