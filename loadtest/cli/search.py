"""`goodput search`: the highest rate that keeps the objectives, with its interval."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.load_options import body_options, patience_options
from loadtest.cli.options import HEADER
from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from loadtest.deployment import Deployment
    from loadtest.search.job import SearchJob, Variant
    from loadtest.search.reference import Suggestion
    from loadtest.sides import Side
    from metrics.objective import Objective
    from metrics.search import Attempt, Mode, SearchReport

PAGE = "search.html"
PRECISION = {"quick": 6, "precise": 12}


@click.command(cls=options.Command)
@click.option("--target", metavar="URL", help="Server to search.")
@click.option(
    "--backend", "backends", multiple=True, metavar="DEPLOYMENT", help="Or bundled ones, e.g. emulated:chunked."
)
@click.option(
    "--launch", "launches", cls=options.SeveralOption, metavar="FILE...", help="Or servers described by launch files."
)
@click.option("--virtual", is_flag=True, help="Bundled ones on the simulator: seconds instead of minutes.")
@click.option("--trace", metavar="NAME|FILE", default="azure-conv", show_default=True, help="What to replay.")
@click.option("--slo", metavar="SLO", help="ttft=1s,tpot=45ms, a family, or none.  [default: suggest some]")
@click.option("--rate", type=float, metavar="R", help="Where to begin.  [default: 60 % of the model's capacity]")
@click.option("--rates", metavar="R,R,...", help="Only these rates, a run each.")
@click.option("--sweep", metavar="FLAG=V,V,...", help="A search for each value, with the same arrivals.")
@click.option(
    "--over", type=click.Choice(["rate", "concurrency"]), default="rate", show_default=True, help="What to raise."
)
@click.option("--slo-scale", is_flag=True, help="How tight the SLO could be at --rate.")
@click.option(
    "--precision", type=click.Choice(list(PRECISION)), default="quick", show_default=True, help="6 or 12 runs."
)
@click.option("--budget", metavar="TIME|N", help="At most so much load: 10m, or 6000 requests.")
@click.option(
    "--requests", type=click.IntRange(20), default=500, show_default=True, metavar="N", help="At least, in a run."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Decides lengths and arrivals."
)
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs behind --target, for per-GPU figures.")
@click.option("--set", "set_", multiple=True, metavar="K=V", help="Value for {K} in the launch files.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Processes that send."
)
@patience_options
@click.option("--model", metavar="NAME", help="Model to ask for.  [default: the first listed]")
@click.option("--api", type=click.Choice(["completions", "chat"]), help="API to use.  [default: completions]")
@body_options
@click.option("--api-key-env", metavar="VARIABLE", help="Variable that holds the API key.")
@click.option("--header", "header", type=HEADER, multiple=True, metavar="'NAME: VALUE'", help="Extra header.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder.  [default: runs/search/...]")
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Go on with the search in a folder.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def search(context: click.Context, /, **given: Any) -> int:
    """Find goodput: the highest request rate whose attainment holds, per GPU, with a 95 % interval.

    Runs close to the crossing are pooled in one fit (docs/goodput.md). --slo none measures saturation; without --slo
    targets are suggested from the times of an idle server.
    """
    from metrics.objective import parse_objective

    options.require_positive(given, "rate")
    if given["slo"] is None:
        return _suggest(given)
    objective = None if given["slo"].strip().lower() == "none" else parse_objective(given["slo"])
    mode, variants = _mode(given, objective), _variants(given, objective)
    with _folder(given) as (directory, before):
        job = _job(context, given, mode, objective, directory)
        return _publish(given, job.run(variants, before), directory)


def _mode(given: dict[str, Any], objective: Objective | None) -> Mode:
    from metrics.slo import SLO

    asked = [name for name in ("rates", "slo_scale") if given[name]] + ["over"] * (given["over"] != "rate")
    if len(asked) > 1:
        raise UsageError(f"--{asked[0].replace('_', '-')} and --{asked[1]} are different searches", code="one_mode")
    if objective is None:
        if asked:
            raise UsageError("--slo none measures saturation, which has no rate to search for", code="one_mode")
        return "saturation"
    if not isinstance(objective, SLO) and {"slo_scale", "over"} & set(asked):
        raise UsageError(
            f"--{asked[0].replace('_', '-')} needs joint limits, no percentiles",
            hint="write them like ttft=1s,tpot=45ms",
            code="joint_slo",
        )
    if given["slo_scale"] and given["rate"] is None:
        raise UsageError("--slo-scale is about one rate", hint="give --rate", code="no_rate")
    return (
        "rates"
        if given["rates"]
        else "slo-scale"
        if given["slo_scale"]
        else ("concurrency" if given["over"] == "concurrency" else "search")
    )


@contextmanager
def _folder(given: dict[str, Any]) -> Iterator[tuple[Path, SearchReport | None]]:
    """Where search.json goes, and what it holds already."""
    from loadtest.cli.load_options import default_folder, fresh_folder, resumed_folder
    from loadtest.search import store

    if given["resume"] is not None:
        if given["out"] is not None:
            raise UsageError("--resume goes on in its own folder", hint="leave --out away", code="resume_out")
        with resumed_folder(given["resume"]) as directory:
            yield directory, store.read(directory)
        return
    with fresh_folder(given["out"], default_folder("runs/search")) as directory:
        yield directory, None


def _job(
    context: click.Context, given: dict[str, Any], mode: Mode, objective: Objective | None, directory: Path
) -> SearchJob:
    from loadtest.search.job import SearchJob
    from loadtest.search.procedure import Budget

    return SearchJob(
        mode=mode,
        trace=given["trace"],
        objective=objective,
        directory=directory,
        command=options.command_line(context, seed=str(given["seed"])),
        seed=given["seed"],
        rate_per_s=given["rate"],
        rates=_rates(given["rates"]) if given["rates"] else (),
        runs=PRECISION[given["precision"]],
        budget=Budget.parse(given["budget"]) if given["budget"] else Budget(),
        least_requests=given["requests"],
        workers=given["workers"],
        swept=given["sweep"].partition("=")[0] if given["sweep"] else "",
        progress=None if given["virtual"] else _run_progress,
        on_run=_tell,
    )


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(word) for word in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise UsageError(f"--rates {text!r} is not a list of rates", hint="write it like 1,2,3.5", code="bad_rates")
    return rates


def _variants(given: dict[str, Any], objective: Objective | None) -> list[Variant]:
    """One for each deployment, launch file or value of the swept flag."""
    from loadtest.search.job import Variant, gpus_of

    texts = [*given["backends"], *given["launches"], *([given["target"]] if given["target"] else [])]
    if not texts:
        raise UsageError("nothing to search", hint="give --target, --backend or --launch", code="no_target")
    if given["sweep"] and len(texts) > 1:
        raise UsageError("--sweep is for one deployment", code="sweep_one")
    if given["virtual"] and (given["target"] or given["launches"]):
        raise UsageError("--virtual is for --backend emulated:...", code="virtual")
    found = []
    for label, value, text, settings in _asked(given, texts):
        side = _side(text, settings, objective)
        deployment = _emulated(text)
        found.append(Variant(label, side, deployment, gpus_of(side, deployment, given["gpus"]), value))
    return found


def _asked(given: dict[str, Any], texts: list[str]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """(label, value of the swept flag, deployment or file or URL, settings) of each variant."""
    from metrics.names import without_folders

    if not given["sweep"]:
        return [(label, "", text, given) for label, text in zip(without_folders(texts), texts, strict=True)]
    flag, equals, values = given["sweep"].partition("=")
    words = [value.strip() for value in values.split(",") if value.strip()]
    if not flag or not equals or len(words) < 2 or len(set(words)) < len(words):
        raise UsageError(
            f"--sweep {given['sweep']!r} names no flag with at least two different values",
            hint="write it like max_num_batched_tokens=256,512,1024",
            code="bad_sweep",
        )
    if given["target"]:
        raise UsageError("a running server has its flags already", hint="use --backend or --launch", code="sweep_url")
    text = texts[0]
    if given["launches"]:
        return [(f"{flag}={v}", v, text, {**given, "set_": (*given["set_"], f"{flag}={v}")}) for v in words]
    from loadtest.deployment import Deployment
    from loadtest.search.job import with_option

    base = Deployment.parse(text)
    return [(f"{flag}={value}", value, str(with_option(base, flag, value)), given) for value in words]


def _side(text: str, given: dict[str, Any], objective: Objective | None) -> Side:
    from loadtest.cli.load_options import side_of
    from loadtest.sides import StoredSide
    from metrics.slo import SLO

    side = side_of(text, given, objective if isinstance(objective, SLO) else None)
    if isinstance(side, StoredSide):
        raise UsageError(f"{text} holds runs: a search makes its own", code="stored_search")
    return side


def _emulated(text: str) -> Deployment | None:
    from loadtest.deployment import Deployment

    if text.endswith(".toml") and Path(text).is_file():
        return None
    deployment = Deployment.parse(text)
    return deployment if deployment.backend == "emulated" else None


def _run_progress(schedule: Any) -> Any:
    from loadtest.cli.progress import ProgressLine

    return ProgressLine(len(schedule), schedule.duration_s)


def _tell(label: str, attempt: Attempt, estimate: float) -> None:
    """A line per run on stderr: what it showed, and the estimate it looked around."""
    cut = " (ended early)" if attempt.aborted else ""
    share = attempt.good / attempt.total if attempt.total else 0.0
    line = f"{label}: {attempt.purpose} {attempt.rate_per_s:.3g}/s  {share:.1%} good{cut}  estimate {estimate:.3g}/s"
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")
    say(line, err=True)


def _publish(given: dict[str, Any], report: SearchReport, directory: Path) -> int:
    from loadtest.cli import output
    from reports.text import console
    from reports.text_search import render_search

    output.draw_page(directory / PAGE, lambda: _page(report))
    if given["json"]:
        output.print_json(report)
    else:
        render_search(report, console())
    say(f"search: {directory}", err=True)
    if report.state == "partial":
        say(f"goodput: stopped by the user; go on with --resume {directory}", err=True)
        return ExitCode.INTERRUPTED
    unsound = sorted({code for row in report.rows for code in row.unsound})
    if unsound:
        say(f"goodput: the measurement is invalid: {', '.join(unsound)}", err=True)
        return ExitCode.INVALID
    return ExitCode.OK


def _page(report: SearchReport) -> str:
    from reports.page import render_html
    from reports.pages import search_page

    return render_html(search_page(report))


def _suggest(given: dict[str, Any]) -> int:
    """Targets for a user who has none: from the model, or from the idle server."""
    import msgspec

    from loadtest.cli import output
    from loadtest.search.reference import model_unloaded, suggest
    from loadtest.search.windows import Windows

    variant = _variants(given, None)[0]
    if variant.deployment is not None:
        windows = Windows(given["trace"], seed=given["seed"], max_tokens=int(variant.deployment["max_model_len"]))
        unloaded = model_unloaded(variant.deployment)
    else:
        windows, unloaded = _measure_idle(given, variant)
    trace = windows.trace(0, 1.0, 1000)
    found = suggest(unloaded, trace.prompt_tokens, trace.output_tokens)
    if given["json"]:
        from loadtest.documents import SuggestionDocument

        output.print_json(SuggestionDocument(**msgspec.structs.asdict(found)))
    else:
        say(_suggestion_text(found))
    return ExitCode.OK


def _measure_idle(given: dict[str, Any], variant: Variant) -> Any:
    from loadtest.search.live import LiveRuns, measure_idle
    from loadtest.search.windows import Windows
    from metrics.slo import SLO

    with _folder(given) as (directory, _), variant.side.open(directory) as target:
        windows = Windows(given["trace"], seed=given["seed"], max_tokens=target.facts.max_model_len)
        return windows, measure_idle(LiveRuns(target, windows, SLO(ttft_s=60.0), directory, []))


def _suggestion_text(found: Suggestion) -> str:
    how = "measured on the idle server" if found.measured else "from the performance model"
    return (
        f"Alone, the median request has TTFT {found.ttft_s * 1e3:.0f} ms and {found.tpot_s * 1e3:.1f} ms per token"
        f" ({how}).\n  strict   (5 times)   --slo {found.strict}\n  relaxed  (25 times)  --slo {found.relaxed}"
    )
