"""`goodput run`: replay a trace against one target and report what it delivered."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import master_options, options, require, workload_options
from loadtest.cli.load_options import body_options, patience_options, patient_sender
from loadtest.cli.options import DURATION, HEADER, RULE, TAG
from loadtest.cli.output import say
from loadtest.cli.predicting import foretell, print_beside
from loadtest.cli.probing import print_table, probing
from loadtest.cli.worker_table import print_workers
from loadtest.errors import ExitCode, TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.target import LoadSettings, Target
    from loadtest.workload import Workload
    from metrics.prediction import Prediction
    from metrics.rundir import Run
    from metrics.runinfo import RunInfo
    from metrics.slo import SLO
    from metrics.summary import Summary
    from reports.page import RunView
    from workloads.trace import Trace

APIS = ("completions", "chat", "llamacpp", "ollama", "ollama-chat")
_OF_A_TARGET = (
    *("path", "extra_body", "rename_field", "drop_field", "no_stream"),
    *("api_key_env", "api_key_file", "ca_file", "no_verify"),
)
_NOWHERE = "http://127.0.0.1"


@click.command(cls=options.Command)
@click.option("--target", metavar="URL", help="Server to load.")
@click.option("--backend", metavar="DEPLOYMENT", help="Or a bundled one: emulated:chunked,instances=2.")
@click.option("--virtual", is_flag=True, help="An emulated one on the simulator, not live.")
@click.option("--trace", metavar="NAME|FILE", default="azure-conv", show_default=True, help="What to replay.")
@click.option("--rate", type=float, metavar="R", help="Scale time to exactly R requests per second.")
@click.option("--speed", type=float, metavar="X", help="Or replay X times as fast.")
@click.option("--duration", type=DURATION, metavar="TIME", help="Length of the run; the first part of a file.")
@click.option("--requests", type=int, metavar="N", help="At most N requests.")
@workload_options.sending
@click.option(
    "--warmup", type=DURATION, default="0s", show_default=True, metavar="TIME", help="First part, not counted."
)
@click.option("--slo", metavar="SLO", help="Targets, e.g. ttft=200ms,tpot=50ms,share=90%.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Decides lengths and arrivals."
)
@click.option("--salt", metavar="TEXT", help="Decides prompts.  [default: fresh]")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Processes that send."
)
@master_options.mastering
@patience_options
@click.option(
    "--max-lateness", type=DURATION, default="2s", show_default=True, metavar="TIME", help="Skip what is later."
)
@click.option("--max-in-flight", type=click.IntRange(1), metavar="N", help="Cap; the replay is then not open loop.")
@click.option(
    "--spin-us", type=click.IntRange(0), default=0, show_default=True, metavar="US", help="Spin before each instant."
)
@click.option("--metrics-url", multiple=True, metavar="[POOL=]URL", help="Prometheus page to sample beside the run.")
@click.option("--predict", metavar="DEPLOYMENT", help="Simulate it too, e.g. emulated:chunked,model=FILE.json.")
@click.option("--abort-on", metavar="RULE", help="End early when e.g. 'failed > 20%' or 'ttft.p90 > 5s'.")
@click.option("--reactor", type=click.Choice(["hub", "epoll"]), default="hub", show_default=True, help="Event loop.")
@click.option("--model", metavar="NAME", help="Model to ask for.  [default: the first listed]")
@click.option("--api", type=click.Choice(APIS), help="API to use.  [default: completions]")
@click.option("--path", metavar="PATH", help="Send there instead of the API's own path.")
@body_options
@click.option("--no-stream", is_flag=True, help="Ask for answers in one piece; TTFT is then not measurable.")
@click.option("--api-key-env", metavar="VARIABLE", help="Variable that holds the API key.")
@click.option("--api-key-file", metavar="FILE", help="Or a file that holds it.")
@click.option("--header", "header", type=HEADER, multiple=True, metavar="'NAME: VALUE'", help="Extra header.")
@click.option("--ca-file", metavar="FILE", help="Certificate authority of an https target.")
@click.option("--no-verify", is_flag=True, help="Do not check the certificate.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs behind --target, for per-GPU figures.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Run directory.  [default: runs/...]")
@click.option("--tag", type=TAG, multiple=True, metavar="K=V", help="Written into run.json.")
@click.option("--require", type=RULE, multiple=True, metavar="RULE", help="E.g. 'attainment > 90%'; else exit 1.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent and its cost, and send nothing.")
@click.option("--gpu-hour-usd", type=click.FloatRange(0), metavar="USD", help="Price of a GPU hour, for --dry-run.")
@click.option("--token-usd", metavar="IN,OUT", help="Price of a million prompt and output tokens, for --dry-run.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def run(context: click.Context, /, **given: Any) -> int:
    """Replay a trace against a server, on time, and report what it delivered."""
    return offer(context, given, lambda slo, directory: _target(given, slo, directory))


def offer(context: click.Context, given: dict[str, Any], open_target: Callable[[SLO | None, Path], Target]) -> int:
    """One load run on the target that `open_target` makes; shared with `goodput launch`."""
    from loadtest.cli.load_options import fresh_folder
    from loadtest.workload import Workload

    slo = options.parse_slo(given["slo"])
    require.parse(given["require"], slo)
    if given["predict"] is not None:
        from loadtest.predict import model_of

        model_of(given["predict"])
    workload = Workload(
        trace=given["trace"],
        rate_per_s=given["rate"],
        speed=given["speed"],
        duration_s=given["duration"],
        requests=given["requests"],
        warmup_s=given["warmup"],
        seed=given["seed"],
        salt=given["salt"] or "",
        **workload_options.fields(given),
    )
    if given["dry_run"]:
        from loadtest.cli.dryrun import dry_run

        _checked(given, open_target(slo, given["out"] or Path()))  # what a run would refuse is refused
        return dry_run(workload, given)
    trace = workload.read()
    with (
        fresh_folder(given["out"], _default_directory(given, workload, trace)) as directory,
        _checked(given, open_target(slo, directory)) as target,
    ):
        return _measure(context, target, workload, trace, slo, directory)


def _checked(given: dict[str, Any], target: Target) -> Target:
    """The target, once all of its metrics pages can be asked: a misspelt one is found before a server is started."""
    if pages := (*given["metrics_url"], *target.facts.metrics):
        from loadtest.probe import sources_of

        sources_of(pages)
    return target


def _default_directory(given: dict[str, Any], workload: Workload, trace: Trace) -> Path:
    from loadtest import clock

    moment = clock.utc_now().strftime("%Y-%m-%dT%H-%M-%S")
    rate = f"r{trace.mean_rate_per_s or 0:.3g}"
    return Path("runs") / "_".join([moment, Path(workload.trace).stem, rate, _arrangement(given)])


def _arrangement(given: dict[str, Any]) -> str:
    backend = given["backend"]
    return str(backend).partition(":")[2].partition(",")[0] or "live" if backend else "live"


def _target(given: dict[str, Any], slo: SLO | None, directory: Path) -> Target:
    from loadtest.cli.load_options import endpoint_of
    from loadtest.deployment import Deployment
    from loadtest.target import LiveTarget, SimulatedTarget, SupervisedTarget

    if given["dry_run"] and given["target"] is None and given["backend"] is None:  # a plan can do without
        given = {**given, "target": _NOWHERE}
    options.require_one({"--target": given["target"], "--backend": given["backend"]})
    settings = settings_of(given, slo)
    deployment = Deployment.parse(given["backend"]) if given["backend"] else None
    if given["virtual"] and (deployment is None or deployment.backend != "emulated"):
        raise UsageError("--virtual is for an emulated --backend: nothing else has a simulator", code="virtual")
    if deployment is None or deployment.url is not None:
        url = given["target"] if deployment is None else deployment.url
        return LiveTarget(endpoint_of(given).endpoint(url or ""), settings)
    refuse_options_of_a_target(given)
    if given["virtual"]:
        return SimulatedTarget(deployment)
    api, model = given["api"] or "completions", given["model"] or ""
    return SupervisedTarget(deployment, settings, directory / "server.log", api, model)


def refuse_options_of_a_target(given: dict[str, Any]) -> None:
    """UsageError for what a bundled server has no use for: better than leaving it out without a word."""
    if given["gpus"] is not None:
        raise UsageError("--gpus is for --target: a bundled backend's GPUs follow from its text", code="gpus")
    foreign = [name for name in _OF_A_TARGET if given[name]]
    if foreign or given["api"] not in (None, "completions", "chat"):
        option = f"--{(foreign or ['api'])[0].replace('_', '-')}"
        raise UsageError(f"{option} is for --target: a bundled backend speaks plain OpenAI", code="of_a_target")


def settings_of(given: dict[str, Any], slo: SLO | None) -> LoadSettings:
    """How the load is sent."""
    import msgspec

    from loadtest.replay.abort import AbortRule
    from loadtest.target import LoadSettings

    cap, workers = given["max_in_flight"], master_options.workers_of(given)
    if cap is not None and cap < workers:
        raise UsageError(f"--max-in-flight {cap} leaves some of {workers} workers nothing to do", code="max_in_flight")
    if given["abort_on"]:
        AbortRule.parse(given["abort_on"])
    sender = msgspec.structs.replace(
        patient_sender(given, slo),
        max_lateness_s=given["max_lateness"],
        max_in_flight=cap,
        spin_us=given["spin_us"],
        abort_on=given["abort_on"] or "",
        slo=str(slo) if slo is not None else "",
    )
    return master_options.with_master(LoadSettings(sender, workers, given["reactor"]), given)


def _measure(
    context: click.Context, target: Target, workload: Workload, trace: Trace, slo: SLO | None, directory: Path
) -> int:
    from loadtest.cli import output
    from loadtest.cli.progress import ProgressLine
    from loadtest.record import planned_info, record

    trace = _fitted(target, workload, trace)
    schedule = workload.schedule(trace, _template_tokens(target))
    _say_findings(workload, trace)
    info = _asked(context, planned_info(target, schedule), workload, trace, directory)
    pages = (*context.params["metrics_url"], *target.facts.metrics)
    with probing(pages, directory) as probed, closing(ProgressLine(len(schedule), schedule.duration_s)) as progress:
        finished = record(target, schedule, info, directory, progress)
        table = probed(finished)
    died = target.died()
    predicted = foretell(context.params["predict"], finished, directory, slo)
    summary, seen, drawn = _written(finished, slo, directory, predicted)
    code, why = _ending(summary, died)
    required = [] if code else require.judge(finished, summary, slo, context.params["require"], directory)
    # Everything is on the disk: whoever reads what follows may stop reading.
    if context.params["json"]:
        output.print_json(summary)
    else:
        output.print_summary(summary, seen.bins)
        print_workers(finished)
        print_table(table)
        print_beside(summary, predicted)
    if drawn:
        say(f"report: {directory / output.REPORT}", err=True)
    if why:
        say(why, err=True)
    return code or require.told(required)


def _template_tokens(target: Target) -> int:
    """What the server adds to a text, from the usage of the one probe before the load."""
    from loadtest.replay.preflight import PROBE_PROMPT_TOKENS

    counted = target.facts.server.get("probe_prompt_tokens", PROBE_PROMPT_TOKENS)
    return max(int(counted or 0) - PROBE_PROMPT_TOKENS, 0)


def _say_findings(workload: Workload, trace: Trace) -> None:
    """What is suspicious about the trace, before the first request leaves."""
    for finding in workload.findings(trace):
        say(f"goodput: {finding}", err=True)


def _fitted(target: Target, workload: Workload, trace: Trace) -> Trace:
    """The trace without rows that the model's context cannot hold; TargetError when none is left."""
    from workloads.errors import WorkloadError

    limit = target.facts.max_model_len
    if limit is None or int((trace.prompt_tokens + trace.output_tokens).max()) <= limit:
        return trace
    try:
        return workload.read(limit)
    except WorkloadError as error:
        if error.code != "exceeds_context":
            raise
        raise TargetError(error.message, hint=error.hint, code=error.code) from None


def _asked(context: click.Context, info: RunInfo, workload: Workload, trace: Trace, directory: Path) -> RunInfo:
    """`info` with what the user asked for."""
    import msgspec

    given, told = context.params, workload.facts(trace)
    return msgspec.structs.replace(
        info,
        name=directory.name,
        command=options.command_line(context, seed=str(info.seed), salt=info.salt),
        gpus=info.gpus if given["gpus"] is None else given["gpus"],
        slo=given["slo"] or "",
        warmup_s=workload.warmup_s,
        workers=master_options.workers_of(given),
        **told | {"warnings": [*told["warnings"], *info.warnings]},
        config=options.resolved(context),
        tags=dict(given["tag"]),
    )


def _written(
    finished: Run, slo: SLO | None, directory: Path, predicted: Prediction | None
) -> tuple[Summary, RunView, bool]:
    """summary.json and report.html into the run directory; what is in them, and whether the page could be drawn."""
    from loadtest.cli import output
    from metrics.summary import summarise

    summary = summarise(finished, slo)
    output.write_summary(directory, summary)
    label = finished.info.arrangement or finished.info.target_url
    seen = output.views([(label, finished)], [summary], slo, [predicted], folders=[directory])
    drawn = output.draw_page(directory / output.REPORT, lambda: _page(finished.info.name, seen))
    return summary, seen[0], drawn


def _page(name: str, seen: list[RunView]) -> str:
    from reports.page import render_html
    from reports.pages import runs_page

    return render_html(runs_page(name, seen))


def _ending(summary: Summary, died: TargetError | None) -> tuple[int, str]:
    """The exit code that the run amounts to, and one sentence for stderr when it is not well."""
    from metrics.runinfo import DISK_FULL, FAULT, STOPPED_BY_USER
    from reports.escape import printable

    if summary.run.state == "partial":
        code = ExitCode.INTERRUPTED if summary.run.stop_reason == STOPPED_BY_USER else ExitCode.FAILED
        if summary.run.stop_reason.startswith(DISK_FULL):  # not all could be written
            code = ExitCode.INVALID
        elif summary.run.stop_reason.startswith(FAULT):
            code = ExitCode.INTERNAL
        return code, f"goodput: {summary.run.stop_reason}; the report covers what was due before"
    if died is not None:
        return ExitCode.TARGET, f"goodput: {died.message}\n         {died.hint}"
    if summary.requests.sent and not summary.requests.by_outcome.get("ok"):
        worst = summary.errors[0] if summary.errors else None
        why = f": {worst.outcome} {worst.text}".rstrip() if worst is not None else ""
        return ExitCode.TARGET, f"goodput: every request failed{printable(why)}"
    if summary.validity.verdict == "invalid":
        found = next(finding for finding in summary.validity.findings if finding.level == "invalid")
        return ExitCode.INVALID, f"goodput: the measurement is invalid: {found.message}"
    return ExitCode.OK, ""
