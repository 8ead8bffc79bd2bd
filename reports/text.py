"""A run, or a decision, on a terminal of 80 columns; plain text when colour is off or nobody is watching."""

from __future__ import annotations

import textwrap
from typing import IO, TYPE_CHECKING, cast

from metrics.bins import Bins
from metrics.decision import Decision
from metrics.slo import Attainment
from metrics.stats import Stat
from metrics.summary import Summary
from reports import sparks, tables, words
from reports.escape import Shown, printable
from reports.numbers import NOTHING, THIN, count, percent, rate, seconds, span, target

if TYPE_CHECKING:
    from rich.console import Console, RenderHook
    from rich.table import Table
    from rich.text import Text

WIDTH = 80
NARROWEST, WIDEST = 40, 100
BAR = 44  # characters of the attainment bar
CHART = 40  # of a small chart
SIGNS = {"valid": ("✓", "green"), "warning": ("!", "yellow"), "invalid": ("✗", "bold red")}
SHORT = {
    "ttft_s": "TTFT",
    "ttft_from_sent_s": "TTFT from sent",
    "tpot_s": "TPOT",
    "itl_s": "token gap",
    "second_token_gap_s": "2nd token gap",
    "e2e_s": "end to end",
}


def console(file: IO[str] | None = None, *, width: int | None = None) -> Console:
    """A console as reports want it: no guessing at what a number is, no markup in texts, colours where they show."""
    from rich.console import Console

    made = Console(file=file, highlight=False, markup=False, emoji=False, width=width)
    fitting = min(max(made.width, NARROWEST), WIDEST)  # a terminal may say that it is 0 wide
    if not width and made.width != fitting:
        return console(file, width=fitting)
    made.push_render_hook(cast("RenderHook", Shown()))
    return made


def paragraph(text: str, console: Console, style: str = "") -> Text:
    """Text broken between words only: rich would also break a number from its unit at their no-break space."""
    from rich.text import Text

    lines = textwrap.wrap(text, console.width, break_long_words=False, break_on_hyphens=False)
    return Text("\n".join(lines), style=style)


def render_text(summary: Summary, console: Console, bins: Bins | None = None) -> None:
    """Print one run: headline, soundness, latencies, small charts where `bins` are given, rates, errors."""
    console.print()
    sure = None if bins is None else bins.certainty
    console.print(paragraph(printable(words.headline(summary, sure)), console, "bold"))
    console.print(paragraph(printable(words.subline(summary, sure)), console, "dim"))
    if summary.attainment is not None and summary.attainment.share is not None:
        console.print()
        console.print(_bar(summary.attainment, summary.attainment.share))
    console.print()
    _print_validity(summary, console)
    console.print()
    table = _latencies(summary)
    if table.row_count:
        console.print(table)
        console.print()
    charts = [] if bins is None else _charts(bins)
    for line in charts:
        console.print(line)
    if charts:
        console.print()
    for name, told in _facts(summary):
        console.print(_fact(name, told))
    for error in summary.errors[:5]:
        text = f" {printable(error.text)}" if error.text else ""
        console.print(_fact("error", f"{count(error.count)} {error.outcome}{text}"[: 3 * WIDTH]))
    console.print()


def render_decision(decision: Decision, console: Console) -> None:
    """Print the decision: the table, best first, and the sentence."""
    console.print()
    console.print(_decision_table(decision))
    console.print()
    console.print(paragraph(printable(decision.sentence), console, "bold"))
    console.print()


def _bar(attained: Attainment, share: float) -> Text:
    """The share that was good as a bar, with a mark where it should reach."""
    from rich.text import Text

    full, mark = round(share * BAR), min(BAR - 1, round(attained.target_share * BAR))
    colour = "green" if attained.meets else "red"
    bar = Text("  good ")
    for i in range(BAR):
        if i == mark:
            bar.append("│", style="bold")
        else:
            bar.append("━" if i < full else "╌", style=colour if i < full else "dim")
    bar.append(f" {percent(share, attained.target_share)}", style=f"bold {colour}")
    bar.append(f"  target {target(attained.target_share)}", style="dim")
    return bar


def _print_validity(summary: Summary, console: Console) -> None:
    from rich.text import Text

    found = summary.validity
    sign, style = SIGNS[found.verdict]
    console.print(Text.assemble((f"{sign} {found.verdict}", style), f"  {words.soundness(summary)}"))
    for finding in found.findings:
        sign, style = SIGNS[finding.level]
        told = Text.assemble((finding.code, style), f" {printable(finding.message)}")
        console.print(_hanging(Text(f"  {sign} ", style=style), told))
    stamps = "" if words.simulated(summary) else tables.stamps(found)
    if stamps:
        console.print(_hanging(Text("    "), Text(stamps, style="dim")))


def _hanging(lead: Text, body: Text) -> Table:
    """A paragraph whose lines after the first stand under its first word."""
    from rich.table import Table

    grid = Table.grid(padding=0)
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_row(lead, body)
    return grid


def _latencies(summary: Summary) -> Table:
    from rich import box
    from rich.table import Table

    limits = summary.attainment.limits_s if summary.attainment else {}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("n", "p50", "p90", "p99", "max", "target"):
        table.add_column(name, justify="right", no_wrap=True)
    few = False
    for key, title in SHORT.items():
        stat: Stat | None = getattr(summary, key)
        if stat is not None:
            few = few or bool(stat.few)
            limit = limits.get(key.removesuffix("_s"))
            table.add_row(title, count(stat.n), *_cells(stat), NOTHING if limit is None else seconds(limit, trim=True))
    if few:
        table.caption = "* too few samples behind this percentile"
        table.caption_justify = "left"
    return table


def _cells(stat: Stat) -> list[str]:
    marked = [f"{seconds(getattr(stat, name))}{'*' if name in stat.few else ''}" for name in ("p50", "p90", "p99")]
    return [*marked, seconds(stat.max)]


def _charts(bins: Bins) -> list[Text]:
    """How first tokens and token times are spread, and the run over time, a line each."""
    from rich.text import Text

    lines = []
    for name, curve, limit in (
        ("TTFT", bins.curves.ttft_s, bins.targets.ttft_s),
        ("TPOT", bins.curves.tpot_s, bins.targets.tpot_s),
    ):
        if curve is not None and curve.n > 1:
            heights, low, high = sparks.histogram(curve, CHART)
            line = Text.assemble((f"{name:<12}", "dim"), (sparks.spark(heights), "cyan"))
            at = None if limit is None else sparks.place(limit, low, high, CHART)
            if at is not None:
                line.stylize("reverse", 12 + at, 13 + at)
            lines.append(line.append(f"  {span(low, high)}", style="dim"))
    if bins.timeline is not None and len(bins.timeline.in_flight) > 1:
        flying = bins.timeline.in_flight
        line = Text.assemble(("in flight   ", "dim"), (sparks.spark(sparks.resampled(flying, CHART)), "cyan"))
        end = bins.timeline.start_s[-1] + bins.timeline.width_s
        lines.append(line.append(f"  at most {max(flying):.3g}, 0 to {seconds(end)}", style="dim"))
    return lines


def _facts(summary: Summary) -> list[tuple[str, str]]:
    rates, tokens = summary.rates, summary.tokens
    speeds = [
        (rates.offered_per_s, "offered"),
        (rates.completed_per_s, "completed"),
        (rates.slo_throughput_per_s, "within targets"),
    ]
    out = [
        (rates.output_tokens_per_s, "output"),
        (rates.output_tokens_per_s_per_gpu, "per GPU"),
        (rates.peak_tokens_per_s, "peak"),
    ]
    outcomes = ", ".join(f"{count(n)} {name}" for name, n in summary.requests.by_outcome.items())
    facts = [
        ("requests", f"{count(summary.requests.planned)} planned: {outcomes}"),
        ("rates", _joined(speeds)),
        ("tokens", f"{_joined(out)}; {count(tokens.output_got)} of {count(tokens.output_asked)} asked"),
        ("connections", tables.connections(summary.connections)),
        ("seed, salt", f"{summary.run.seed}, {summary.run.salt or NOTHING}"),
    ]
    return [(name, told) for name, told in facts if told]


def _joined(speeds: list[tuple[float | None, str]]) -> str:
    return " · ".join(f"{rate(value)} {name}" for value, name in speeds if value is not None)


def _fact(name: str, told: str) -> Table:
    from rich.text import Text

    return _hanging(Text(f"{name:<12}", style="dim"), Text(told))


def _decision_table(decision: Decision) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), collapse_padding=True, header_style="dim"
    )
    table.add_column("", no_wrap=True)
    headers = ("GPUs", "goodput\nper GPU", "95 %\ninterval", "live", "predicted", "TTFT\np90", "TPOT\np90")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for row, line in zip(decision.rows, tables.decision(decision).rows, strict=True):
        sign, style = SIGNS[row.validity]
        name = Text.assemble((f"{sign} ", style), (printable(row.label), "bold" if line.leads else ""))
        p90 = (NOTHING if pair is None else seconds(pair.p90) for pair in (row.ttft_s, row.tpot_s))
        cells = (line.gpus, line.goodput, line.interval.replace(" to ", "-"), line.live, line.predicted, *p90)
        table.add_row(name, *(cell.replace(f"{THIN}%", "%") for cell in cells))
    table.caption = "goodput in requests/s per GPU; live and predicted: requests within targets"
    table.caption_justify = "left"
    return table
