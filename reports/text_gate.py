"""A gate, a comparison or a noise floor on a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from metrics.compare import Comparison, Contrast
from metrics.gate.looks import RuleResult
from metrics.gate.noise import NoiseFloor, Refusal
from metrics.gate.report import GateReport
from metrics.standing import metric_name
from reports import gate_words as words
from reports.escape import printable
from reports.numbers import NOTHING, change, digits, joined, percent, plural, rate, seconds
from reports.text import paragraph
from reports.words import of_slo as words_of_slo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

STYLES = {"PASS": "green", "FAIL": "bold red", "INCONCLUSIVE": "yellow", "INVALID": "bold red"}
STANDINGS = {"better": ("better", "green"), "worse": ("worse", "red"), "cannot_tell": ("cannot tell", "dim")}

MOST_CHANGE = 10.0  # of a relative change: the interval of two runs may end at ten thousand


def render_gate(report: GateReport, console: Console) -> None:
    """Print the verdict, why, the table of rules, and the cost."""
    from rich.text import Text

    console.print()
    style = STYLES[report.verdict]
    verdict = Text.assemble((f"{words.SIGNS[report.verdict]} {report.verdict}", style), "  ", report.sentence)
    console.print(verdict.append(words.outcome(report)))
    console.print(Text(words.sides(report), style="dim"))
    for reason in report.invalid:
        console.print(Text(f"  {reason.code} ({reason.side}): {printable(reason.message)}", style="red"))
    for warning in report.warnings:
        console.print(paragraph(f"  ! {printable(warning)}", console, "yellow"))
    for rule in report.left_out:
        console.print(paragraph(f"  left out: {rule.rule} ({rule.why})", console, "dim"))
    console.print()
    console.print(rules_table(report.rules))
    console.print()
    for line in report.advice:
        console.print(Text(f"  → {line}"))
    measured = plural(len(report.pairs), "pair")
    looks = ", ".join(map(str, report.looks))
    console.print(Text(f"{measured} of runs (looks at {looks}), {words.cost(report)}", style="dim"))
    console.print()


def render_requirements(results: Sequence[RuleResult], console: Console) -> None:
    """Print what a single run was required to reach."""
    console.print(rules_table(results))
    console.print()


def rules_table(results: Sequence[RuleResult]) -> Table:
    """One row per rule: metric, both sides, effect, interval, margin, verdict."""
    from rich.text import Text

    changes = any(result.unit != "value" for result in results)
    headers = ["baseline", "candidate", "effect", "interval", "margin"] if changes else ["value", "interval", "limit"]
    table = _table("", *headers, "verdict", "n" if changes else "from")
    for result in results:
        sides = [words.value(result, result.candidate)]
        if changes:
            sides = [words.value(result, result.baseline), *sides, words.effect(result)]
        verdict = Text(f"{words.SIGNS[result.verdict]} {words.WORDS[result.verdict]}", style=STYLES[result.verdict])
        verdict.append(" (warn)" if result.warn else "", style="dim")
        cells = [*sides, words.interval(result), words.margin(result)]
        behind = str(result.pairs) if changes else words.based_on(result)
        table.add_row(result.metric, *cells, verdict, behind, style="dim" if result.implied else "")
    return table


def render_noise(floor: NoiseFloor, refused: Sequence[Refusal], console: Console) -> None:
    """Print the spread of equal builds and the smallest changes that pairs of runs can find."""
    from rich.text import Text

    console.print()
    console.print(Text(f"Noise of {plural(floor.pairs, 'pair')} of equal builds ({floor.deployment})", style="bold"))
    looks = list(floor.noise[0].detectable) if floor.noise else []
    table = _table("", "sigma of a pair", *(f"found with {look}" for look in looks))
    for noise in floor.noise:
        change = [_percent(noise.detectable[look]) for look in looks]
        table.add_row(noise.metric, _percent(noise.sigma), *change)
    console.print(table)
    for refusal in refused:
        console.print(Text(refused_words(refusal), style="yellow"))
    console.print(Text(f"{digits(floor.server_minutes, 2)} server-minutes", style="dim"))
    console.print()


def refused_words(refusal: Refusal) -> str:
    """Why a margin cannot be carried, and what would do."""
    unit = "pp" if refusal.rule.split("warn")[0].rstrip().endswith("pp") else "%"
    pairs = f"{refusal.pairs_needed} pairs in one look" if refusal.pairs_needed else "no sensible number of pairs"
    return (
        f"{refusal.rule}: the margin is below twice the noise ({_percent(refusal.sigma)} per pair). "
        f"What would do: a margin of {digits(refusal.margin_needed * 100, 2)}{unit}, "
        f"runs {digits(refusal.longer_runs, 2)} times as long, or {pairs}."
    )


def render_comparison(found: Comparison, console: Console, *, definitions: bool = False) -> None:
    """Print the sentence, a column per side, effects with intervals, what differed, and other tools' definitions."""
    from rich.text import Text

    names = [chr(ord("A") + place) for place in range(len(found.sides))]
    console.print()
    console.print(paragraph(printable(found.sentence), console, "bold"))
    at = "" if found.rate_per_s is None else f"at {rate(found.rate_per_s)}"
    asked = f"for {words_of_slo(found.slo)}" if found.slo else ""
    console.print(paragraph(printable(" ".join(part for part in (found.trace, at, asked) if part)), console, "dim"))
    for reason in found.invalid:
        console.print(Text(f"  {reason.code} ({reason.side}): {printable(reason.message)}", style="red"))
    for name, side in zip(names, found.sides, strict=True):
        gpus = "" if side.gpus is None else f", {plural(side.gpus, 'GPU')}"
        console.print(Text(f"  {name}  {printable(side.label)} ({plural(side.runs, 'run')}{gpus})", style="dim"))
    console.print()
    table = _table("", *names)
    for key in found.sides[0].values:
        name = metric_name(key, per_gpu=found.per_gpu)
        table.add_row(name, *(_value(key, side.values.get(key)) for side in found.sides))
    console.print(table)
    for name, side in zip(names[1:], found.sides[1:], strict=True):
        console.print()
        console.print(Text(f"{name} against A", style="bold"))
        mine = [contrast for contrast in found.contrasts if contrast.label == side.label]
        console.print(_contrasts(mine, per_gpu=found.per_gpu))
    if found.differences:
        console.print()
        table = _table("differs", *names)
        for column in table.columns:
            column.justify, column.overflow = "left", "fold"
        width = max((console.width - 14) // len(names) - 2, 12)
        for difference in found.differences:
            told = (_folded(printable(value)[:120], width) or NOTHING for value in difference.values)
            table.add_row(difference.what, *told)
        console.print(table)
    if definitions:
        console.print()
        console.print(_definitions(found, names))
    console.print()


def _folded(text: str, width: int) -> str:
    """Text in lines of so many characters, broken behind commas: a deployment must not break inside a word."""
    lines = [""]
    for piece in re.split(r"(?<=,)", text):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _definitions(found: Comparison, names: Sequence[str]) -> Table:
    """Median of each quantity by each tool's definition, in one row per definition."""
    table = _table("median by definition", *names, "used by")
    for place, definition in enumerate(found.sides[0].definitions):
        stats = [side.definitions[place].stat for side in found.sides]
        tokens = definition.quantity == "output tokens"
        told = [NOTHING if s is None else digits(s.p50) if tokens else seconds(s.p50) for s in stats]
        table.add_row(f"{definition.quantity}: {definition.formula}", *told, definition.used_by)
    return table


def _contrasts(contrasts: Sequence[Contrast], *, per_gpu: bool) -> Table:
    from rich.text import Text

    table = _table("", "effect", "95 % interval", "", "requests\nslower")
    for column in table.columns[:4]:
        column.no_wrap = True
    for contrast in contrasts:
        text, style = STANDINGS[contrast.standing]
        slower = NOTHING if contrast.slower_share is None else percent(contrast.slower_share)
        within = ", one run" if contrast.interval == "within_run" else ""
        same = f", same request{within}" if contrast.paired_by == "request" else ""
        name = metric_name(contrast.metric, per_gpu=per_gpu) + same
        table.add_row(name, _change(contrast, contrast.effect), _interval(contrast), Text(text, style=style), slower)
    return table


def _interval(contrast: Contrast) -> str:
    """Two runs leave almost everything open: beyond elevenfold the digits would say nothing."""
    low, high = contrast.low, contrast.high
    if low is None or high is None:
        return "not known"
    if contrast.kind != "share" and high > MOST_CHANGE:
        return joined(_change(contrast, low), f">{change(MOST_CHANGE)}")
    return joined(_change(contrast, low), _change(contrast, high))


def _change(contrast: Contrast, number: float | None) -> str:
    return change(number, "pp" if contrast.kind == "share" else "%")


def _value(key: str, number: float | None) -> str:
    if number is None:
        return NOTHING
    if "." in key:
        return seconds(number)
    return percent(number) if key in ("attainment", "failed") else rate(number)


def _percent(share: float) -> str:
    return f"{digits(share * 100, 2)} %"


def _table(*headers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True, header_style="dim"
    )
    table.add_column(headers[0])
    for header in headers[1:]:
        table.add_column(header, justify="right")
    return table
