"""`goodput trace info` and `goodput trace lint`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options, workload_options
from loadtest.cli.output import say
from loadtest.errors import ExitCode

if TYPE_CHECKING:
    from reports.trace import TraceView
    from workloads.describe import TraceInfo
    from workloads.trace import Trace


@click.command(cls=options.Command)
@click.argument("source", metavar="NAME|FILE")
@workload_options.shaping
@click.option("--rate", type=float, metavar="R", help="Requests per second, as in a run.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="For what is drawn by chance."
)
@click.option("--plot", is_flag=True, help="Draw arrivals and lengths on the terminal.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Draw them into an HTML file.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
def info(source: str, html: Path | None, **given: Any) -> int:
    """Print the rate, burstiness and lengths of a trace."""
    import msgspec

    from loadtest.cli import output
    from workloads.describe import describe

    trace = _read(source, given)
    found = describe(trace)
    if html is not None:
        from reports.trace import render_trace

        output.write_page(html, render_trace(_view(trace, found)))
    if given["json"]:
        from loadtest.documents import TraceInfoDocument

        output.print_json(TraceInfoDocument(**msgspec.structs.asdict(found)))
    else:
        say("\n".join(_lines(_figures(found))))
    if given["plot"]:
        from reports.trace import plot_text

        say("\n" + plot_text(_view(trace, found)), err=given["json"])
    if html is not None:
        say(f"plot: {html}", err=True)
    return ExitCode.OK


@click.command(cls=options.Command)
@click.argument("source", metavar="NAME|FILE")
@workload_options.shaping
@click.option("--rate", type=float, metavar="R", help="Requests per second, as in a run.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="For what is drawn by chance."
)
@click.option("--context", type=click.IntRange(2), metavar="N", help="Context of the target, in tokens.")
@click.option("--lines", type=click.IntRange(0), default=20, show_default=True, metavar="N", help="Rejected to list.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
def lint(source: str, context: int | None, lines: int, **given: Any) -> int:
    """List what is suspicious about a trace; exit 1 when no run can come of it."""
    from loadtest.cli import output
    from loadtest.documents import RejectedLine, TraceLint
    from workloads.lint import lint as findings_of

    trace = _read(source, given)
    findings = findings_of(trace, max_tokens=context)
    rejected = [RejectedLine(row.line, row.reason) for row in trace.rejected[:lines]]
    if given["json"]:
        output.print_json(TraceLint(trace=trace.name, rows=len(trace), findings=findings, rejected=rejected))
    else:
        say(f"{trace.name}: {len(trace)} rows, {'nothing suspicious' if not findings else ''}".rstrip(", "))
        for finding in findings:
            say(f"{finding.level:<8} {finding}")
        for row in rejected:
            say(f"rejected line {row.line}: {row.reason}")
    return ExitCode.FAILED if any(found.level == "error" for found in findings) else ExitCode.OK


def _read(source: str, given: dict[str, Any]) -> Trace:
    """The trace as a run would take it; lengths without times are looked at as they are."""
    from loadtest.errors import UsageError
    from loadtest.workload import Workload

    workload = Workload(trace=source, rate_per_s=given["rate"], seed=given["seed"], **workload_options.fields(given))
    try:
        return workload.read()
    except UsageError as error:
        if error.code != "no_arrivals":
            raise
        return workload.source()


def _figures(found: TraceInfo) -> dict[str, Any]:
    """The figures as plain values, how the file was read in words."""
    import msgspec

    figures: dict[str, Any] = msgspec.to_builtins(found)
    return figures | {"reading": None if found.reading is None else str(found.reading)}


def _view(trace: Trace, found: TraceInfo) -> TraceView:
    from reports.trace import Bars, TraceView
    from workloads.describe import curves
    from workloads.lint import lint as findings_of

    drawn = curves(trace)
    rate = "all at one instant" if found.mean_rate_per_s is None else f"{found.mean_rate_per_s:.3g} per second"
    middle = [tokens.percentiles["p50"] for tokens in (found.prompt_tokens, found.output_tokens)]
    bin_s = drawn.arrivals.edges[1]
    return TraceView(
        name=trace.name,
        headline=f"{len(trace):,} requests in {trace.span_s:,.0f} s, {rate}",
        subline=f"Half of the prompts have at most {middle[0]:,.0f} tokens, half of the outputs {middle[1]:,.0f}.",
        facts=[(name.strip(), value) for name, value in _pairs(_figures(found))],
        findings=[str(finding) for finding in findings_of(trace)],
        bars=[
            Bars(title=f"Arrivals per {bin_s:g} s", unit="s", edges=drawn.arrivals.edges, counts=drawn.arrivals.counts),
            *(
                Bars(title=title, unit="tokens", edges=histogram.edges, counts=histogram.counts, log=True)
                for title, histogram in (
                    ("Prompt tokens", drawn.prompt_tokens),
                    ("Output tokens", drawn.output_tokens),
                )
            ),
        ],
    )


def _pairs(figures: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in figures.items():
        if isinstance(value, dict) and value:
            pairs += _pairs(value, f"{prefix}{key} ")
        else:
            pairs.append((f"{prefix}{key}", _shown(value)))
    return pairs


def _lines(figures: dict[str, Any], indent: str = "") -> list[str]:
    """`key  value` lines, nested figures indented."""
    lines = []
    for key, value in figures.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{key}", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key:<{28 - len(indent)}} {_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "; ".join(map(_shown, value)) if isinstance(value, list) else str(value)
