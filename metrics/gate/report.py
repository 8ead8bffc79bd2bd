"""The document of a gate: verdict, rules, reasons, every pair, and what it cost (`gate.json`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from metrics.gate.comparable import Pair, Reason, reasons
from metrics.gate.defaults import LeftOut, judged_rules
from metrics.gate.looks import FEWEST_PAIRS, RuleResult, Verdict, evaluate, finite, overall
from metrics.gate.noise import NoiseFloor, evaluate_one_pair, pairs_needed
from metrics.gate.rules import Rule
from metrics.gate.sample import Sample, per_gpu
from metrics.runinfo import Setting

SCHEMA: Final = "goodput.gate/1"

OnInconclusive = Literal["fail", "warn", "pass"]
Mode = Literal["pairs", "one_pair", "ladder"]


class SideFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One side: how it was given, and what it turned out to be."""

    label: str
    deployment: str
    model: str
    gpus: int | None


class PairRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pair: each rule's value on both sides; null where it was not measured or without bound."""

    number: int
    order: str  # AB or BA: which side ran first
    baseline: dict[str, float | None]
    candidate: dict[str, float | None]
    baseline_run: str = ""  # run directory, relative to the gate's
    candidate_run: str = ""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Minutes a server was held: what was expected at the first and at the last look, and what it took."""

    expected_least: float | None = None
    expected_most: float | None = None
    server_minutes: float = 0.0


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a page, a table or a pipeline says about one gate."""

    schema: str = SCHEMA
    state: Literal["complete", "partial"] = "complete"  # partial: stopped by the user, and so never a verdict
    verdict: Verdict
    sentence: str
    mode: Mode
    on_inconclusive: OnInconclusive
    rules: list[RuleResult]
    invalid: list[Reason]
    warnings: list[str]
    advice: list[str]
    left_out: list[LeftOut] = []  # default rules that this workload cannot measure
    baseline: SideFacts
    candidate: SideFacts
    trace: str
    trace_hash: str
    slo: str
    rate_per_s: float | None
    looks: list[int]
    pairs: list[PairRecord]
    cost: Cost
    created_at: str = ""
    command: list[str] = []
    config: dict[str, Setting] = {}  # what was asked for, each option with its origin, as in run.json
    versions: dict[str, str] = {}

    @property
    def red(self) -> bool:
        """Whether a build that obeys this gate stops here."""
        return self.verdict in ("FAIL", "INVALID") or (
            self.verdict == "INCONCLUSIVE" and self.on_inconclusive == "fail"
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate was asked for."""

    rules: list[Rule]
    looks: list[int]
    on_inconclusive: OnInconclusive = "fail"
    mode: Mode = "pairs"
    floor: NoiseFloor | None = None
    left_out: list[LeftOut] = []


def results_of(plan: Plan, rules: Sequence[Rule], pairs: Sequence[Pair]) -> list[RuleResult]:
    """Each rule's result after these pairs, by pairs or, with one pair in quick mode, against the noise floor."""
    if plan.mode == "one_pair" and pairs:
        return evaluate_one_pair(rules, pairs[0], plan.floor)
    return evaluate(rules, pairs, plan.looks)


def decide(
    plan: Plan, pairs: Sequence[Pair], records: list[PairRecord], notes: Sequence[str] = (), **about: Any
) -> GateReport:
    """The report on these pairs; INVALID comes before any other verdict. `notes` join the warnings."""
    asked, unmeasured = judged_rules(plan.rules, pairs)
    invalid = reasons(pairs, asked)
    if not pairs:
        invalid = [Reason(code="no_runs", side="both", message="There is no pair of runs to judge.")]
    # The guard against failures has no place where a run has no share of failures of its own, as in a search.
    rules = [rule for rule in asked if not rule.implied or any(rule.key in b.values for _, b in pairs)]
    results = results_of(plan, rules, pairs)
    verdict: Verdict = "INVALID" if invalid else overall(results)
    base, cand = pairs[0] if pairs else (Sample(), Sample())
    facts: dict[str, Any] = {
        "baseline": _facts(base),
        "candidate": _facts(cand),
        "trace": base.trace_name,
        "trace_hash": base.trace,
        "slo": base.slo,
        "rate_per_s": None,
        "cost": Cost(),
        "versions": cand.versions,
    }
    return GateReport(
        verdict=verdict,
        sentence=_sentence(verdict, results, invalid),
        mode=plan.mode,
        on_inconclusive=plan.on_inconclusive,
        rules=results,
        invalid=invalid,
        warnings=[*_warnings(pairs, results), *notes],
        advice=_advice(plan, rules, results) if verdict == "INCONCLUSIVE" else [],
        left_out=[*plan.left_out, *unmeasured],
        looks=plan.looks,
        pairs=records,
        **{**facts, **about},
    )


def stopped(report: GateReport) -> GateReport:
    """The report of a gate that the user stopped: what was measured stays, but it decides nothing."""
    count = len(report.pairs)
    return msgspec.structs.replace(
        report,
        state="partial",
        verdict="INCONCLUSIVE",
        invalid=[],
        advice=[],
        sentence=f"Stopped by the user after {count} whole pair{'' if count == 1 else 's'} of runs.",
    )


def record_of(pair: Pair, number: int, order: str, rules: Sequence[Rule], **runs: str) -> PairRecord:
    """One pair's values under the rules' keys."""
    keys = list(dict.fromkeys(rule.key for rule in rules))
    baseline, candidate = (
        {key: finite(sample.values[key]) if key in sample.values else None for key in keys} for sample in pair
    )
    return PairRecord(number=number, order=order, baseline=baseline, candidate=candidate, **runs)


def gate_schema() -> dict[str, Any]:
    """The JSON schema of gate.json."""
    return msgspec.json.schema(GateReport)


def _facts(sample: Sample) -> SideFacts:
    return SideFacts(label=sample.deployment, deployment=sample.deployment, model=sample.model, gpus=sample.gpus)


def _sentence(verdict: Verdict, results: Sequence[RuleResult], invalid: Sequence[Reason]) -> str:
    hard = [result for result in results if not result.warn]
    if verdict == "INVALID":
        return f"The comparison is not valid: {invalid[0].message}"
    if verdict == "FAIL":
        failed = [result.rule for result in hard if result.verdict == "FAIL"]
        return f"The candidate is worse than allowed: {', '.join(failed)}."
    if verdict == "INCONCLUSIVE":
        undecided = [result.rule for result in hard if result.verdict == "INCONCLUSIVE"]
        return f"The data cannot decide {', '.join(undecided)}."
    return f"The candidate keeps all {len(hard)} rules."


def _warnings(pairs: Sequence[Pair], results: Sequence[RuleResult]) -> list[str]:
    """What a reader must know although the measurement is sound; each once."""
    found: dict[tuple[str, str], str] = {}
    for pair in pairs:
        for side, sample in zip(("baseline", "candidate"), pair, strict=True):
            for finding in sample.findings:
                if finding.level == "warning":
                    found.setdefault((side, finding.code), f"{side}: {finding.message}")
    warnings = list(found.values())
    few = {key for pair in pairs for sample in pair for key in sample.few} & {result.metric for result in results}
    if few:
        warnings.append(f"too few requests per run behind {', '.join(sorted(few))}")
    if pairs and not any(sample.values.get("attainment", 1.0) for sample, _ in pairs):
        warnings.append("no request of the baseline met the SLO: attainment cannot drop, whatever the candidate does")
    if any(per_gpu(*pair) for pair in pairs):
        warnings.append("the sides have different numbers of GPUs: rates are compared per GPU")
    warnings += [f"{r.rule}: {r.verdict.lower()}" for r in results if r.warn and r.verdict != "PASS"]
    return warnings


def _advice(plan: Plan, rules: Sequence[Rule], results: Sequence[RuleResult]) -> list[str]:
    """What would decide an undecided rule."""
    advice = []
    for rule, result in zip(rules, results, strict=True):
        if result.verdict != "INCONCLUSIVE" or rule.warn:
            continue
        if plan.mode == "one_pair" and result.interval == "none":
            advice.append(f"{rule.text}: {result.note}; measure it once with --noise-floor 8, or run pairs")
        elif result.sigma and rule.change and result.pairs >= FEWEST_PAIRS:
            needed = pairs_needed(rule.margin, result.sigma)
            count = f"about {needed} pairs" if needed else "more pairs than is sensible"
            wider = abs(rule.shown(2 * result.sigma))
            unit = f"{wider * 100:.2g}{'pp' if rule.kind == 'share' else '%'}"
            advice.append(f"{rule.text}: with this noise it takes {count}, longer runs, or a margin of {unit}")
    return advice
