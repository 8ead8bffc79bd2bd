"""Pages of what was made of many runs: a search, a comparison, a gate. From their structs to what a page shows."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.compare import Comparison, Difference
from metrics.decision import DecisionRow, decide
from metrics.gate.report import GateReport
from metrics.names import shared_options
from metrics.plan import Candidate, PlanReport, PlanRow
from metrics.search import SearchReport
from metrics.sweep import Sweep, sweep_of_search
from reports import gate_words, search_words, words
from reports.advice import Box
from reports.method import shell_lines
from reports.numbers import NOTHING, count, digits, plural, rate, seconds
from reports.page import Bill, PageData, RunView


def runs_page(
    title: str, runs: Sequence[RunView], sweeps: Sequence[Sweep] = (), differences: Sequence[Difference] = ()
) -> PageData:
    """One run, or several on the same axes; runs of one deployment at several rates give it a goodput."""
    rows = [
        DecisionRow(
            label=found.label,
            deployment=found.deployment,
            gpus=found.gpus,
            goodput_per_s=found.goodput,
            goodput_per_gpu=None if found.goodput is None else found.goodput.per_gpu(found.gpus),
        )
        for found in sweeps
        if found.gpus
    ]
    return PageData(
        title=title,
        runs=list(runs),
        sweeps=list(sweeps),
        differences=list(differences),
        decision=decide(rows) if any(row.goodput_per_gpu is not None for row in rows) else None,
        bills=bills_of(runs),
    )


def bills_of(runs: Sequence[RunView]) -> list[Bill]:
    """What each run cost, of those that tell."""
    return [Bill(label=run.label, economy=run.summary.economy) for run in runs if run.summary.economy is not None]


def search_page(found: SearchReport, title: str = "goodput search") -> PageData:
    """The rows, the decision between them, and every run of each as a sweep."""
    labels, rows = search_words.labels(found), search_words.decision_rows(found)
    sweeps = [
        made
        for label, row in zip(labels, found.rows, strict=True)
        if (made := sweep_of_search(row, found.share or 0.9, label)) is not None
    ]
    decision = decide(rows) if any(row.goodput_per_gpu is not None for row in rows) else None
    requests = sum(attempt.requests for row in found.rows for attempt in row.attempts)
    return PageData(
        title=title,
        search=found,
        decision=decision,
        sweeps=sweeps if found.mode in ("search", "rates") else [],
        boxes=[Box("warning", "", warning) for warning in found.warnings],
        headline=search_words.headline(found),
        subline=" · ".join(part for part in (*_asked(found), found.trace, f"{found.clock} clock") if part),
        command=shell_lines(found.command),
        facts=[
            ("mode", found.mode),
            ("targets", found.slo),
            ("trace", found.trace),
            ("seed", str(found.seed)),
            ("state", found.state),
            *([("requests offered", count(requests))] if requests else []),
        ],
    )


def _asked(found: SearchReport) -> tuple[str, str]:
    """The objective, where the headline does not name it, and what all rows have in common."""
    told = search_words.objective(found) if len(found.rows) > 1 or found.mode == "slo-scale" else ""
    return told, shared_options([row.deployment for row in found.rows])


def plan_page(found: PlanReport) -> PageData:
    """The arrangements under each demand, what each freedom adds, and where the ranking flips."""
    strict = next((row for row in found.rows if row.demand == "strict"), found.rows[-1])
    kv = found.kv
    flip = "" if found.flip_tpot_s is None else f"{seconds(found.flip_tpot_s)}: two pools lead below it, one above"
    link = "" if found.link_gbps is None else f"{digits(found.link_gbps)} Gbit/s"
    flips = [
        ("limit on TPOT where the winner flips", " ".join(part for part in (flip, found.flip_note) if part)),
        ("KV link rate below which two pools lose", link or found.link_note or NOTHING),
    ]
    wire = []
    if kv is not None:
        wire = [
            ("KV cache of a token", f"{count(kv.bytes_per_token)} bytes"),
            ("KV cache of a prompt", f"{digits(kv.gigabytes_p50)} GB (p50), {digits(kv.gigabytes_p99)} GB (p99)"),
            (
                "on the wire",
                f"{seconds(kv.wire_s_p50)} (p50), {seconds(kv.wire_s_p99)} (p99) at {kv.link_gbps:g} Gbit/s",
            ),
        ]
    return PageData(
        title="goodput plan",
        plan=found,
        boxes=[Box("warning", "", f"{words.capital(warning)}.") for warning in found.warnings],
        headline=_verdict(strict),
        subline=" · ".join(
            [
                f"{plural(found.gpus, 'GPU')}, {' or '.join(found.hardware)}",
                found.model,
                found.trace,
                f"{found.designs} designs, simulated",
                f"best design: {strict.winner.deployment}",
            ]
        ),
        command=shell_lines(found.command),
        facts=[
            ("targets", found.slo),
            ("seed", str(found.seed)),
            *flips,
            *wire,
            ("rule of thumb", found.rule_note or "holds here"),
        ],
    )


def _verdict(row: PlanRow) -> str:
    """Who wins under the strict demand, with both figures, and whether they can be told apart."""
    asked = words.of_slo(row.slo)
    best, *others = row.candidates
    unit = "output tokens/s per GPU" if best.goodput_per_gpu is None else "requests/s per GPU"
    if not others:
        return f"With {asked}, {words.arrangement(best.arrangement)} serves {_sure(best)} {unit}."
    lead = "cannot be told from" if row.tie else "is ahead of"
    second = others[0]
    names = [words.arrangement(one.arrangement) for one in (best, second)]
    return f"With {asked}, {names[0]} {lead} {names[1]}: {_sure(best)} against {_sure(second)} {unit}."


def _sure(found: Candidate) -> str:
    return digits(found.worth) if found.goodput_per_gpu is None else search_words.estimate(found.goodput_per_gpu)


def comparison_page(found: Comparison, runs: Sequence[RunView] = ()) -> PageData:
    """Effects and differences first, then the first run of each side on the same axes."""
    return PageData(
        title="goodput compare",
        comparison=found,
        runs=list(runs),
        bills=bills_of(runs),
        subline=" · ".join(part for part in (*_compared(found), words.of_slo(found.slo) if found.slo else "") if part),
    )


def _compared(found: Comparison) -> tuple[str, str]:
    at = "" if found.rate_per_s is None else f"at {rate(found.rate_per_s)}"
    return " ".join(part for part in (found.trace, at) if part), plural(found.sides[0].runs, "run") + " of each side"


def gate_page(found: GateReport, runs: Sequence[RunView] = ()) -> PageData:
    """The verdict, the rules, and runs of both sides where they are at hand."""
    at = "" if found.rate_per_s is None else f"{digits(found.rate_per_s)}/s"
    told = gate_words.decisive(found), gate_words.sides(found)
    return PageData(
        title="goodput gate",
        gate=found,
        runs=list(runs),
        subline=" · ".join(
            part
            for part in (
                *told,
                found.trace,
                at,
                words.of_slo(found.slo) if found.slo else "",
                plural(len(found.pairs), "pair"),
            )
            if part
        ),
        command=shell_lines(found.command),
        facts=[
            ("baseline", found.baseline.deployment),
            ("candidate", found.candidate.deployment),
            ("trace", found.trace),
            ("trace hash", found.trace_hash),
            ("targets", found.slo),
            ("looks", ", ".join(map(str, found.looks))),
            ("started", found.created_at),
            *((f"version {name}", version) for name, version in sorted(found.versions.items())),
        ],
    )
