"""`goodput gate`: does the candidate keep the rules, judged over interleaved pairs of runs?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import config_file, gate_rules, load_options, options
from loadtest.cli.load_options import load_options as with_load_options
from loadtest.cli.options import RULE
from loadtest.cli.output import say, say_commands
from loadtest.errors import ExitCode, GoodputError, UsageError

if TYPE_CHECKING:
    from loadtest.pairs import Pairs, Probe
    from loadtest.sides import Side, StoredSide
    from metrics.gate.defaults import LeftOut
    from metrics.gate.noise import NoiseFloor
    from metrics.gate.report import GateReport, Plan
    from metrics.gate.rules import Rule
    from metrics.gate.sample import Sample
    from metrics.slo import SLO

GATE, GATE_PAGE, NOISE = "gate.json", "gate.html", "noise.json"
SKIP = 125  # git bisect: this commit cannot be judged


class LooksType(click.ParamType[tuple[int, ...]]):
    """`3,5,8,12`, or one number for a fixed size."""

    name = "looks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        words = value if isinstance(value, list | tuple) else str(value).split(",")
        try:
            looks = tuple(int(word) for word in words)
        except ValueError:
            looks = ()
        if not looks or list(looks) != sorted(set(looks)) or (looks != (1,) and looks[0] < 3):
            self.fail(f"{value!r} is neither 1 (quick) nor 3 or more pairs, or a list of them like 3,5,8", param, ctx)
        return looks


class GateCommand(options.Command):
    """Under --bisect even a bad command line must not count as a bad commit."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        bisect = "--bisect" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (click.ClickException, GoodputError) as error:
            if not bisect:
                raise
            say(f"goodput: {error.message}", err=True)
            raise click.exceptions.Exit(SKIP) from None


@click.command(cls=GateCommand)
@click.option("--baseline", metavar="DIR|URL|DEPLOYMENT", help="What is good enough.")
@click.option("--candidate", metavar="DIR|URL|DEPLOYMENT", help="What is to be judged.")
@click.option("--launch", nargs=2, metavar="BASE CAND", help="Launch files of both; started and stopped in turn.")
@click.option("--rule", "rules", type=RULE, multiple=True, metavar="RULE", help="E.g. 'ttft.p90 rise < 10%'.")
@click.option("--metric", type=click.Choice(["goodput"]), help="Paired searches for goodput instead of replays.")
@click.option(
    "--pairs", type=LooksType(), default="3,5,8,12", show_default=True, metavar="LOOKS", help="When to look; 1: quick."
)
@click.option("--order", type=click.Choice(["abba", "abab"]), default="abba", show_default=True, help="Of runs.")
@click.option(
    "--on-inconclusive",
    type=click.Choice(["fail", "warn", "pass"]),
    default="fail",
    show_default=True,
    help="What it means for the build when the data cannot decide.",
)
@click.option("--noise-floor", type=click.IntRange(2), metavar="N", help="Measure N A/A pairs of the baseline.")
@click.option("--noise", type=click.Path(path_type=Path, exists=True), metavar="FILE", help="A stored noise floor.")
@click.option("--ladder", is_flag=True, help="Fixed points at low load instead of a replay.")
@click.option("--bisect", is_flag=True, help="Exit 0, 1 or 125, for git bisect run.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--summary", type=click.Path(path_type=Path), metavar="FILE", help="Append a Markdown table.")
@click.option("--annotations", is_flag=True, help="Print GitHub workflow commands on stderr.")
@click.option("--openmetrics", type=click.Path(path_type=Path), metavar="FILE", help="Write metrics for GitLab.")
@with_load_options
@click.pass_context
def gate(context: click.Context, /, **given: Any) -> int:
    """Judge a candidate against a baseline: exit 0 pass, 1 fail, 3 inconclusive, 4 invalid.

    Both replay the same arrivals in ABBA order until every rule is decided. RULE: METRIC[.STAT] [drop|rise] <
    NUMBER UNIT [warn], e.g. 'attainment drop < 2pp' or 'failed < 1%' (docs/gate.md).
    """
    if given["bisect"]:
        return _bisect(lambda: _run(context, given))
    return _run(context, given)


def _bisect(judge: Callable[[], int]) -> int:
    """0 and 1 stay; whatever else happens says nothing about the commit."""
    from metrics.errors import MetricsError
    from workloads.errors import WorkloadError

    try:
        code = judge()
    except (GoodputError, MetricsError, WorkloadError) as error:
        if isinstance(error, GoodputError) and error.exit_code == ExitCode.INTERRUPTED:
            raise
        say(f"goodput: {error.message}", err=True)
        return SKIP
    return code


def _run(context: click.Context, given: dict[str, Any]) -> int:
    options.require_writable(given["junit"], given["summary"], given["openmetrics"])
    slo = options.parse_slo(given["slo"])
    asked = gate_rules.asked_rules(given, slo)
    baseline, candidate = _sides(given, slo)
    with load_options.fresh_folder(given["out"], load_options.default_folder("gates")) as directory:
        probe, rate = _probe(context, given, slo, baseline, candidate)
        rules, left_out = (asked, []) if asked else gate_rules.default_rules(slo, baseline, probe)
        if given["noise_floor"]:
            return _noise(given, baseline, probe, rules, directory)
        pairs = _pairs(given, baseline, candidate, probe, directory)
        report = _judge(context, pairs, _plan(given, pairs, rules, left_out), rate)
        return _publish(given, report, directory)


def _sides(given: dict[str, Any], slo: SLO | None) -> tuple[Side | StoredSide, Side | StoredSide]:
    """Baseline and candidate; for a noise floor the baseline twice."""
    from loadtest.sides import StoredSide

    first, second = given["launch"] or (given["baseline"], given["candidate"])
    if given["launch"] and (given["baseline"] or given["candidate"]):
        raise UsageError("--launch names both sides: give it alone", code="one_of")
    if first is None or (second is None and not given["noise_floor"]):
        raise UsageError("give --baseline and --candidate, or --launch BASE CAND", code="two_sides")
    baseline = load_options.side_of(first, given, slo, "baseline")
    if given["noise_floor"]:
        if isinstance(baseline, StoredSide):
            raise UsageError("a noise floor needs a server, not stored runs", code="stored_noise")
        if given["virtual"]:
            raise UsageError("the simulator has no noise to measure", hint="leave out --virtual", code="no_noise")
        return baseline, baseline
    candidate = load_options.side_of(str(second), given, slo, "candidate")
    if isinstance(candidate, StoredSide) and not isinstance(baseline, StoredSide):
        raise UsageError("a stored candidate needs a stored baseline", code="stored_candidate")
    return baseline, candidate


def _probe(
    context: click.Context,
    given: dict[str, Any],
    slo: SLO | None,
    baseline: Side | StoredSide,
    candidate: Side | StoredSide,
) -> tuple[Probe, float | None]:
    """What one run is, and its rate where the options fix one."""
    from loadtest.ladder import Ladder
    from loadtest.pairs import WARMUP_SHARE, Replay
    from loadtest.sides import StoredSide, VirtualSide
    from metrics.rundir import read_plan
    from workloads.schedule import Schedule

    command = options.command_line(context)
    if given["ladder"]:
        return Ladder(command), None
    schedule = None
    if isinstance(baseline, StoredSide) and not isinstance(candidate, StoredSide):
        read_plan(baseline.folders[0])  # with its checks, before the schedule is believed
        schedule = Schedule.load(baseline.folders[0] / "schedule.npz")
    needed = not isinstance(candidate, StoredSide) and schedule is None
    rate = load_options.default_rate(baseline, given, slo) if needed else None
    if rate is not None:
        say(f"rate: {rate:g}/s, 80 % of the baseline's simulated goodput", err=True)
    workload = load_options.workload_of(given, rate)
    if given["metric"] == "goodput":
        return _search(workload, slo, command), None
    probe = Replay(
        workload,
        slo,
        command,
        virtual=isinstance(baseline, VirtualSide) and isinstance(candidate, VirtualSide),
        warmup_share=WARMUP_SHARE if given["warmup"] is None else 0.0,
        say=load_options.say_finding,
        schedule=schedule,
    )
    return probe, workload.rate_per_s


def _search(workload: Any, slo: SLO | None, command: list[str]) -> Probe:
    import msgspec

    from loadtest.paired_search import GoodputSearch

    assert slo is not None
    if workload.rate_per_s is None:
        raise UsageError("a search needs a rate to start from", hint="give --rate", code="no_rate")
    if workload.requests is None and workload.duration_s is None:
        workload = msgspec.structs.replace(workload, requests=500)
    return GoodputSearch(workload, slo, workload.rate_per_s, command)


def _pairs(
    given: dict[str, Any], baseline: Side | StoredSide, candidate: Side | StoredSide, probe: Probe, directory: Path
) -> Pairs:
    from loadtest.pairs import Pairs

    return Pairs(baseline, candidate, probe, directory, given["order"], _told)


def _told(name: str, number: int, sample: Sample) -> None:
    """A line of progress after each run."""
    parts = [f"pair {number} {name}:", f"{sample.requests} requests", f"{sample.failed} failed"]
    if "attainment" in sample.values:
        parts.append(f"attainment {sample.values['attainment']:.1%}")
    if "goodput" in sample.values:
        parts.append(f"goodput {sample.values['goodput']:.3g}/s")
    unsound = sample.unsound
    say("  ".join(parts + [f"INVALID {finding.code}" for finding in unsound[:1]]), err=True)


def _judge(context: click.Context, pairs: Pairs, plan: Plan, rate: float | None) -> GateReport:
    import msgspec

    from loadtest import clock
    from loadtest.pairs import run_gate

    least, most = (pairs.expected_minutes(plan.looks[at]) for at in (0, -1))
    if most:
        say(f"cost: {least:.2g} to {most:.2g} server-minutes ({plan.looks[0]} to {plan.looks[-1]} pairs)", err=True)
    report = run_gate(
        pairs,
        plan,
        created_at=clock.utc_now().isoformat(timespec="seconds"),
        command=options.command_line(context),
        rate_per_s=rate,
        config=options.resolved(context),
    )
    decided = [*filter(None, [config_file.said(context)])]
    return msgspec.structs.replace(report, warnings=[*report.warnings, *decided])


def _plan(given: dict[str, Any], pairs: Pairs, rules: list[Rule], left_out: list[LeftOut]) -> Plan:
    from metrics.gate.noise import refusals
    from metrics.gate.report import Plan
    from reports.text_gate import refused_words

    floor = _stored_floor(given["noise"]) if given["noise"] else None
    looks = list(given["pairs"])
    both_stored = pairs.limit is not None and not pairs.expected_minutes(1)
    if both_stored and looks == [3, 5, 8, 12]:
        looks = [max(pairs.limit or 1, 1)]  # nothing can be added, so there is one look at all of them
    quick = looks == [1]
    if not quick and floor is not None and (refused := refusals(rules, floor)):
        raise UsageError(
            "the noise cannot carry these margins", hint="\n         ".join(map(refused_words, refused)), code="noise"
        )
    return Plan(
        rules=rules,
        looks=looks,
        on_inconclusive=given["on_inconclusive"],
        mode="one_pair" if quick else "ladder" if given["ladder"] else "pairs",
        floor=floor,
        left_out=left_out,
    )


def _stored_floor(path: Path) -> NoiseFloor:
    from metrics.gate.noise import SCHEMA, NoiseFloor
    from metrics.storage import read_document

    floor: NoiseFloor = read_document(path, NoiseFloor, "bad_noise")
    if floor.schema != SCHEMA:
        raise UsageError(f"{path} has schema {floor.schema!r}; this version reads {SCHEMA!r}", code="bad_noise")
    return floor


def _noise(given: dict[str, Any], baseline: Side | StoredSide, probe: Probe, rules: list[Rule], directory: Path) -> int:
    """Measure equal builds, store their spread, and say which margins it can carry."""
    from loadtest import clock
    from loadtest.cli import output
    from loadtest.errors import InvalidError
    from metrics.gate.comparable import reasons
    from metrics.gate.defaults import judged_rules
    from metrics.gate.noise import noise_floor, refusals
    from reports.text import console
    from reports.text_gate import render_noise

    pairs = _pairs(given, baseline, baseline, probe, directory)
    for _ in range(given["noise_floor"]):
        pairs.add()
        if found := reasons(pairs.pairs, judged_rules(rules, pairs.pairs)[0]):
            raise InvalidError(f"the noise floor is not valid: {found[0].message}", code=found[0].code)
    created = clock.utc_now().isoformat(timespec="seconds")
    floor = noise_floor(pairs.pairs, rules, server_minutes=pairs.server_s / 60, created_at=created)
    output.write_json(directory / NOISE, floor)
    if given["json"]:
        output.print_json(floor)
    else:
        render_noise(floor, refusals(rules, floor), console())
    say(f"noise floor: {directory / NOISE}", err=True)
    return ExitCode.OK


def _publish(given: dict[str, Any], report: GateReport, directory: Path) -> int:
    """gate.json and what else was asked for; the exit code."""
    from loadtest.cli import output
    from metrics.gate.exits import bisect_code, exit_code
    from reports.text import console
    from reports.text_gate import render_gate

    output.write_json(directory / GATE, report)
    output.draw_page(directory / GATE_PAGE, lambda: _page(report))
    _write_formats(given, report)
    if given["json"]:
        output.print_json(report)
    else:
        render_gate(report, console())
    say(f"gate: {directory / GATE}", err=True)
    if report.state == "partial":
        say("goodput: stopped by the user; a gate that was stopped decides nothing", err=True)
        return ExitCode.INTERRUPTED
    return bisect_code(report) if given["bisect"] else exit_code(report)


def _page(report: GateReport) -> str:
    from reports.page import render_html
    from reports.pages import gate_page

    return render_html(gate_page(report))


def _write_formats(given: dict[str, Any], report: GateReport) -> None:
    from reports.annotations import render_annotations
    from reports.junit import render_junit
    from reports.markdown import render_markdown
    from reports.openmetrics import render_openmetrics

    if given["junit"]:
        _write(given["junit"], render_junit(report))
    if given["openmetrics"]:
        _write(given["openmetrics"], render_openmetrics(report))
    if given["summary"]:
        _write(given["summary"], render_markdown(report), append=True)
    if given["annotations"]:
        say_commands(render_annotations(report))


def _write(path: Path, text: str, *, append: bool = False) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", code="output_unusable") from None
