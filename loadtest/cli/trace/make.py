"""`goodput trace convert`, `sample`, `synth` and `fit`: traces and models as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options, workload_options
from loadtest.cli.options import DURATION
from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from workloads.model import Model, Quality
    from workloads.trace import Trace

_OUT = click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="File to write."
)
_SEED = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="For what is drawn by chance."
)
_JSON = click.option("--json", "json", is_flag=True, help="Print one JSON document.")


@click.command(cls=options.Command)
@click.argument("sources", metavar="NAME|FILE...", nargs=-1, required=True)
@workload_options.shaping
@click.option("--rate", type=float, metavar="R", help="Requests per second.  [default: the trace's]")
@click.option("--class-per-file", is_flag=True, help="Each file is an SLO class of its own.")
@_SEED
@_OUT
@_JSON
def convert(sources: tuple[str, ...], out: Path, class_per_file: bool, **given: Any) -> int:
    """Write a trace, or several merged on absolute time, in our own form (.csv or .csv.gz)."""
    from loadtest.workload import Workload
    from workloads.combine import merge

    rest = workload_options.fields(given)
    if len(sources) == 1:
        workload = Workload(trace=sources[0], rate_per_s=given["rate"], seed=given["seed"], **rest)
        return _write(workload.read(), out, given)
    shaping = {name: rest.pop(name) for name in ("shape", "arrivals") if name in rest}
    parts = [Workload(trace=source, seed=given["seed"], **rest).read() for source in sources]
    merged = merge(parts, class_per_trace=class_per_file)
    workload = Workload(trace=merged.name, rate_per_s=given["rate"], seed=given["seed"], **shaping)
    return _write(workload.shaped(merged), out, given)


@click.command(cls=options.Command)
@click.argument("source", metavar="NAME|FILE")
@click.argument("rows", type=click.IntRange(1))
@workload_options.reading
@_SEED
@_OUT
@_JSON
def sample(source: str, rows: int, out: Path, **given: Any) -> int:
    """Write ROWS requests of a trace, drawn at random, at their own times; sessions stay whole."""
    from loadtest.workload import Workload

    workload = Workload(trace=source, seed=given["seed"], shape=(f"sample={rows}",), **workload_options.fields(given))
    return _write(workload.read(), out, given)


@click.command(cls=options.Command)
@click.argument("workload", metavar="[NAME|MODEL]", required=False)
@click.option("--from-prometheus", "page", metavar="FILE", help="Or from a server's saved /metrics page.")
@click.option("--requests", type=click.IntRange(1), metavar="N", help="So many requests.")
@click.option("--duration", type=DURATION, metavar="TIME", help="Or so long.")
@click.option("--rate", type=float, metavar="R", help="Requests per second.  [default: the original's]")
@_SEED
@_OUT
@_JSON
def synth(workload: str | None, page: str | None, out: Path, **given: Any) -> int:
    """Write a trace generated from a built-in workload, a fitted model, or the histograms of a metrics page.

    With --from-prometheus and an OUT that ends in .json, the model itself is written.
    """
    import numpy as np

    from workloads import model as models
    from workloads.synth import BUILTIN, generate

    options.require_one({"NAME": workload, "--from-prometheus": page})
    source: str | Model
    if page is not None:
        source = _of_page(Path(page), given["rate"])
        if out.suffix == ".json":
            _write_bytes(out, models.encode(source))
            return ExitCode.OK
    else:
        assert workload is not None
        source = workload if workload in BUILTIN else models.load(Path(workload))
    trace = generate(
        source,
        requests=given["requests"],
        duration_s=given["duration"],
        rate_per_s=given["rate"],
        rng=np.random.default_rng(given["seed"]),
    )
    return _write(trace, out, given)


@click.command(cls=options.Command)
@click.argument("source", metavar="FILE")
@workload_options.shaping
@click.option("--name", metavar="NAME", help="Name of the workload.  [default: the file's]")
@_SEED
@_OUT
@_JSON
def fit(source: str, out: Path, name: str | None, **given: Any) -> int:
    """Write a model of a trace: a workload to share without its data; print how near it comes."""
    import msgspec
    import numpy as np

    from loadtest.cli import output
    from loadtest.workload import Workload
    from workloads import model as models
    from workloads.fit import fit as fitted

    trace = Workload(trace=source, seed=given["seed"], **workload_options.fields(given)).read()
    found = fitted(trace, np.random.default_rng(given["seed"]))
    if name:
        found = msgspec.structs.replace(found, name=name)
    _write_bytes(out, models.encode(found))
    if given["json"]:
        from loadtest.documents import FittedTrace

        output.print_json(FittedTrace(model=str(out), warnings=list(found.warnings), quality=found.quality))
    elif found.quality is not None:
        say("\n".join([*_quality(found.quality), *found.warnings]))
    return ExitCode.OK


def _of_page(path: Path, rate_per_s: float | None) -> Model:
    from workloads.prometheus import model_of

    try:
        page, at_s = path.read_text(encoding="utf-8"), path.stat().st_mtime
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the metrics page {path} cannot be read: {error}", code="file") from error
    return model_of(page, name=path.name, at_s=at_s, rate_per_s=rate_per_s)


def _write(trace: Trace, out: Path, given: dict[str, Any]) -> int:
    """Write a trace in our form and say what it is."""
    import msgspec

    from loadtest.cli import output
    from loadtest.documents import WrittenTrace
    from loadtest.workload import rejections
    from workloads.formats.goodput import write

    _make_room(out)
    write(trace, out)
    written = WrittenTrace(
        file=str(out),
        rows=len(trace),
        span_s=trace.span_s,
        content_hash=trace.content_hash,
        rejected=rejections(trace),
        warnings=list(trace.warnings),
    )
    if given["json"]:
        output.print_json(written)
    else:
        told = {key: value for key, value in msgspec.structs.asdict(written).items() if key != "schema"}
        say("\n".join(f"{key:<14} {value}" for key, value in told.items() if value not in ({}, [])))
    return ExitCode.OK


def _write_bytes(out: Path, content: bytes) -> None:
    _make_room(out)
    out.write_bytes(content)
    say(f"wrote {out}", err=True)


def _make_room(out: Path) -> None:
    if out.exists():
        raise UsageError(f"{out} exists", hint="choose another --out, or remove it", code="output_exists")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", hint="make it first", code="no_folder")


def _quality(quality: Quality) -> list[str]:
    """The fit beside the noise floor, as a table."""
    lines = [f"{'Kolmogorov-Smirnov distance':<34}{'model':>8}{'floor':>8}"]
    for title, distance in (
        ("prompt tokens", quality.prompt_tokens),
        ("output tokens", quality.output_tokens),
        ("output given prompt, 40 bins", quality.output_given_prompt),
        ("gaps", quality.gap_s),
    ):
        if distance is not None:
            lines.append(f"  {title:<32}{distance.fitted:>8.3f}{distance.floor:>8.3f}")
    lines += ["", f"{'arrivals':<34}{'model':>8}{'trace':>8}"]
    pairs = {"CV of gaps": quality.gap_cv, **{f"variance / mean in {w} s": pair for w, pair in quality.idc.items()}}
    for title, pair in pairs.items():
        cells = (f"{value:>8.3g}" if value is not None else f"{'-':>8}" for value in (pair.model, pair.data))
        lines.append(f"  {title:<32}{''.join(cells)}")
    return [*lines, f"({quality.generated_rows:,} generated rows; floor: two halves of the trace)"]
