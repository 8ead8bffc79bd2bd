"""A plan on a terminal of 80 columns: the decision table, what it hangs on, and where the gain comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metrics.plan import Candidate, PlanReport
from reports.escape import printable
from reports.numbers import NOTHING, THIN, count, digits, percent, seconds
from reports.text import paragraph
from reports.words import arrangement

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# What the first line of the plan says already; the hardware only where there is but one kind.
OBVIOUS = ("model", "hardware")
POWER = {
    "constant": "Energy: constant machine power, not a measurement.",
    "two-level": "Energy: of GPUs, at the two levels measured on A100 (prompts, decodes); idle is an assumption.",
}
SHORT = {"max_num_batched_tokens": "budget", "instances": "x", "prefill": "P", "decode": "D"}


def render_plan(report: PlanReport, console: Console) -> None:
    """Print a plan."""
    from rich.text import Text

    console.print()
    gpus = f"{count(report.gpus)} {' or '.join(report.hardware)}"
    console.print(Text(printable(f"{report.model} on {gpus}: {report.trace}, {report.slo}"), style="bold"))
    console.print(Text(f"{report.designs} designs on the virtual clock, seed {report.seed}", style="dim"))
    console.print()
    console.print(_decision(report))
    console.print()
    console.print(_all(report))
    console.print()
    for line in _lines(report):
        console.print(paragraph(printable(line), console))
    console.print()
    console.print(_waterfall(report))
    if report.sizing:
        console.print()
        console.print(_sizing(report))
    console.print()
    holds = "holds here" if report.rule_holds else f"does not hold here: {report.rule_note}"
    rule = "one pool for tokens, chunks for an SLO, two pools for a strict one"
    console.print(Text(f"The rule of thumb ({rule}) {holds}.", style="bold"))
    console.print()


def setting(deployment: str, *, kinds: int = 1) -> str:
    """A deployment's text without what a plan has in its title; its hardware where that has several kinds."""
    head, *words = deployment.partition(":")[2].split(",")
    pairs = [(key, value) for key, _, value in (word.partition("=") for word in words)]
    shown = [f"{SHORT.get(key, key)}={value}" for key, value in pairs if key not in OBVIOUS]
    kind = [value for key, value in pairs if key == "hardware" and kinds > 1]
    return " ".join([head, *kind, *shown])


def _decision(report: PlanReport) -> Table:
    table = _table("demand", "best design")
    for name in ("goodput\nper GPU", "95 %\ninterval", "$ per 1,000\ngood", "Wh per\ngood"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in report.rows:
        best = row.winner
        limits = row.slo.replace(",share=90%", "").replace(",", ",\n")  # else they break inside a number
        slo = "" if row.slo == "none" else f"\n{limits}"
        design = setting(best.deployment, kinds=len(report.hardware)) + (" (tie)" if row.tie else "")
        table.add_row(f"{row.demand}{slo}", design, *_cells(best))
    table.caption = "throughput only: output tokens per second and GPU, all requests count as good"
    table.caption_justify = "left"
    return table


def _all(report: PlanReport) -> Table:
    row = report.rows[-1]
    table = _table(f"{row.demand}: best of each", "")
    for name in ("goodput\nper GPU", "95 %\ninterval", "$ per 1,000\ngood", "Wh per\ngood"):
        table.add_column(name, justify="right", no_wrap=True)
    for candidate in row.candidates:
        words = setting(candidate.deployment, kinds=len(report.hardware)).partition(" ")[2]
        table.add_row(arrangement(candidate.arrangement), words, *_cells(candidate))
    return table


def _cells(candidate: Candidate) -> tuple[str, str, str, str]:
    found = candidate.goodput_per_gpu
    known = found is not None and found.low is not None and found.high is not None
    side = "" if found is None else {"at_least": "≥ ", "below": "< "}.get(found.bound, "")
    return (
        f"{digits(candidate.output_tokens_per_s_per_gpu)} tok/s" if found is None else f"{side}{digits(found.rate)}",
        f"{digits(found.low or 0)}-{digits(found.high or 0)}" if known and found is not None else NOTHING,
        NOTHING if candidate.usd_per_1000_good is None else digits(candidate.usd_per_1000_good),
        NOTHING if candidate.wh_per_good is None else digits(candidate.wh_per_good),
    )


def _lines(report: PlanReport) -> list[str]:
    flip = f"at {seconds(report.flip_tpot_s)}" if report.flip_tpot_s is not None else f"nowhere: {report.flip_note}"
    link = f"below {digits(report.link_gbps)} Gb/s" if report.link_gbps is not None else report.link_note
    lines = [f"Token time limit where the winner flips (two pools below it): {flip}"]
    lines.append(f"KV link rate where two pools start to lose: {link}")
    kv = report.kv
    if kv is not None:
        lines.append(
            f"KV cache {count(kv.bytes_per_token)} bytes a token: {digits(kv.gigabytes_p50)} GB and"
            f" {seconds(kv.wire_s_p50)} on {digits(kv.link_gbps, trim=True)} Gb/s for the median prompt,"
            f" {digits(kv.gigabytes_p99)} GB and {seconds(kv.wire_s_p99)} for the 99th percentile"
        )
    lines += [f"! {warning}" for warning in report.warnings]
    lines.append(POWER[report.power_model])
    return lines


def _waterfall(report: PlanReport) -> Table:
    table = _table("where the gain comes from", "design")
    for name in ("goodput\nper GPU", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in report.waterfall:
        free = step.deployment.partition(",kv_link_gbps=1000000")
        design = setting(free[0], kinds=len(report.hardware)) + (" free link" if free[1] else "")
        sizes = ",".join(word for word in free[2].split(",") if "_tp=" in word or "_hardware=" in word)
        gain = f"{step.gain:+.3f}" if step is not report.waterfall[0] else NOTHING
        table.add_row(step.name, f"{design} {sizes}".strip(), digits(step.goodput_per_gpu), gain)
    return table


def _sizing(report: PlanReport) -> Table:
    table = _table(f"for {digits(report.wanted_rate_per_s or 0.0, trim=True)} requests/s", "design")
    for name in ("GPUs", "$/h", "attainment"):
        table.add_column(name, justify="right", no_wrap=True)
    for size in report.sizing:
        share = percent(size.attainment).replace(f"{THIN}%", "%")
        words = setting(size.deployment, kinds=len(report.hardware)).partition(" ")[2]
        table.add_row(arrangement(size.arrangement), words, count(size.gpus), digits(size.usd_per_hour), share)
    return table


def _table(first: str, second: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="dim")
    table.add_column(first, overflow="fold")
    table.add_column(second, overflow="fold", ratio=1)
    return table
