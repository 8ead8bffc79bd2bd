"""Pages of what was made of many runs: a search, a comparison, a gate. From their structs to what a page shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from metrics.compare import Comparison, Difference
from metrics.decision import DecisionRow, decide
from metrics.gate.report import GateReport
from metrics.plan import Candidate, PlanReport
from metrics.search import SearchReport
from metrics.sweep import Sweep, sweep_of_search
from reports.advice import Box
from reports.numbers import NOTHING, count, digits, seconds
from reports.page import PageData, RunView

CODE = "reservation"


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
    )


def search_page(found: SearchReport, title: str = "goodput search") -> PageData:
    """The rows, the decision between them, and every run of each as a sweep."""
    labels = _distinct([f"{row.label} {row.value}".strip() for row in found.rows])
    rows = [
        DecisionRow(
            label=label,
            deployment=row.deployment,
            gpus=row.gpus,
            goodput_per_s=row.goodput,
            goodput_per_gpu=row.goodput_per_gpu,
            validity="invalid" if row.unsound else "valid",
            goodput_from="virtual clock" if found.clock == "virtual" else "live",
        )
        for label, row in zip(labels, found.rows, strict=True)
    ]
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
        boxes=[Box("warning", CODE, warning) for warning in found.warnings],
        headline=found.sentence or (decision.sentence if decision is not None else "Nothing was found."),
        subline=" · ".join(part for part in (found.slo, found.trace, f"{found.clock} clock") if part),
        command=shlex.join(found.command),
        facts=[
            ("mode", found.mode),
            ("targets", found.slo),
            ("trace", found.trace),
            ("seed", str(found.seed)),
            ("state", found.state),
            ("requests offered", count(requests)),
        ],
    )


def plan_page(found: PlanReport) -> PageData:
    """The arrangements under each demand, what each freedom adds, and where the ranking flips."""
    strict = next((row for row in found.rows if row.demand == "strict"), found.rows[-1])
    lead = "cannot be told from" if strict.tie else "is ahead of"
    second = strict.candidates[1].arrangement if len(strict.candidates) > 1 else "nothing else"
    kv = found.kv
    flips = [
        ("TPOT break-even", NOTHING if found.flip_tpot_s is None else seconds(found.flip_tpot_s)),
        ("what that means", found.flip_note),
        ("link break-even", NOTHING if found.link_gbps is None else f"{digits(found.link_gbps)} Gbit/s"),
        ("what that means", found.link_note),
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
        boxes=[Box("warning", CODE, warning) for warning in found.warnings],
        headline=f"For {strict.slo}, {strict.winner.arrangement} {lead} {second}: {_worth(strict.winner)}.",
        subline=" · ".join(
            [f"{found.gpus} GPUs of {', '.join(found.hardware)}", found.model, found.trace, f"{found.designs} designs"]
        ),
        command=shlex.join(found.command),
        facts=[("targets", found.slo), ("seed", str(found.seed)), *flips, *wire, ("rule of thumb", found.rule_note)],
    )


def _worth(best: Candidate) -> str:
    unit = "output tokens/s per GPU" if best.goodput_per_gpu is None else "requests/s per GPU"
    return f"{digits(best.worth)} {unit} with {best.deployment}"


def comparison_page(found: Comparison, runs: Sequence[RunView] = ()) -> PageData:
    """Effects and differences first, then the first run of each side on the same axes."""
    return PageData(
        title="goodput compare",
        comparison=found,
        runs=list(runs),
        subline=" · ".join(part for part in (found.trace, found.slo) if part),
    )


def gate_page(found: GateReport, runs: Sequence[RunView] = ()) -> PageData:
    """The verdict, the rules, and runs of both sides where they are at hand."""
    at = "" if found.rate_per_s is None else f"{digits(found.rate_per_s)}/s"
    return PageData(
        title="goodput gate",
        gate=found,
        runs=list(runs),
        subline=" · ".join(part for part in (found.trace, at, found.slo, f"{len(found.pairs)} pairs") if part),
        command=shlex.join(found.command),
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


def _distinct(labels: list[str]) -> list[str]:
    """Labels that tell rows apart."""
    return [f"{label} ({i})" if labels.count(label) > 1 else label for i, label in enumerate(labels, 1)]
