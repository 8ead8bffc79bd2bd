"""What a search found, in one sentence with its numbers: for the page and for the terminal."""

from __future__ import annotations

from contextlib import suppress

from metrics.decision import DecisionRow, decide
from metrics.errors import MetricsError
from metrics.goodput import GoodputEstimate
from metrics.names import distinct, short_names
from metrics.search import SearchReport, SearchRow
from metrics.slo import SLO
from reports import words
from reports.numbers import count, digits, rate


def labels(found: SearchReport) -> list[str]:
    """A short name for each row: the value of the swept flag, or what tells its deployment from the others."""
    if found.swept:
        return distinct([f"{found.swept}={row.value}" for row in found.rows])
    return distinct(short_names([row.label for row in found.rows]))


def decision_rows(found: SearchReport) -> list[DecisionRow]:
    """The rows as a decision takes them, under their short names."""
    return [
        DecisionRow(
            label=label,
            deployment=row.deployment,
            gpus=row.gpus,
            goodput_per_s=row.goodput,
            goodput_per_gpu=row.goodput_per_gpu,
            validity="invalid" if row.unsound else "valid",
            goodput_from="virtual clock" if found.clock == "virtual" else "live",
        )
        for label, row in zip(labels(found), found.rows, strict=True)
    ]


def ranked(found: SearchReport) -> list[tuple[str, SearchRow]]:
    """The rows under their short names: deployments best first, the values of a sweep as they were given."""
    named = list(zip(labels(found), found.rows, strict=True))
    if found.mode != "search" or found.swept:
        return named
    places = {row.label: place for place, row in enumerate(decide(decision_rows(found)).rows)}
    return sorted(named, key=lambda one: places[one[0]])


def headline(found: SearchReport) -> str:
    """The answer with its numbers; of several deployments who wins, by how much and how sure that is."""
    if not found.rows:
        return "Nothing was measured."
    if len(found.rows) == 1:
        return words.capital(_alone(found, found.rows[0], labels(found)[0]))
    if found.mode == "search" and not found.swept:
        decision = decide(decision_rows(found))
        return decision.sentence + words.leader(decision)
    if found.sentence:
        best = next((row for row in found.rows if row.best), None)
        known = None if best is None else best.goodput_per_gpu or best.goodput
        per_gpu = " per GPU" if best is not None and best.goodput_per_gpu is not None else ""
        said = f"{found.swept}: {found.sentence}" if found.swept else found.sentence
        return said + ("" if known is None else f" It serves {estimate(known)} requests/s{per_gpu}.")
    told = [_short(found, row) for row in found.rows]
    return words.capital("; ".join(f"{label} {text}" for label, text in zip(labels(found), told, strict=True))) + "."


def objective(found: SearchReport) -> str:
    """`TTFT ≤ 1 s and TPOT ≤ 45 ms for 90 %`; a family of limits as it was written, nothing without any."""
    if found.slo in ("", "none"):
        return ""
    return words.of_slo(found.slo)


def _alone(found: SearchReport, row: SearchRow, label: str) -> str:
    within = f" within {asked}" if (asked := objective(found)) else ""
    if row.goodput is not None and row.goodput.bound == "below":
        lowest = f"{digits(row.goodput.rate)} requests/s, the lowest rate tried"
        return f"{label} does not keep {asked or 'the objectives'}: fewer do even at {lowest}."
    if found.mode == "slo-scale":
        return f"{label}: {_short(found, row)}"
    return f"{label} {_short(found, row)}{within}."


def _short(found: SearchReport, row: SearchRow) -> str:
    """What one row says, as the rest of a sentence that begins with its name."""
    if found.mode == "saturation":
        return _saturated(row)
    if found.mode == "slo-scale":
        return _scaled(found, row)
    if row.goodput is not None:
        per_gpu = f", {digits(row.goodput_per_gpu.rate)} per GPU," if row.goodput_per_gpu is not None else ""
        return f"serves {estimate(row.goodput)} requests/s{per_gpu}"
    if row.sweep is None:
        return "gave no answer"
    unit = "concurrent users" if found.mode == "concurrency" else "requests/s"
    if row.sweep.bracket is not None:
        passes, fails = (digits(end, trim=True) for end in row.sweep.bracket)
        return f"serves {passes} {unit}, but not {fails},"
    if row.sweep.rate is None:
        return f"holds at no number of {unit} that was tried"
    end = row.sweep.below_rate if row.sweep.bound == "below" else row.sweep.rate  # nothing passed: its rate is 0
    return f"serves {row.sweep.bound.replace('_', ' ')} {digits(end or 0.0, trim=True)} {unit}"


def estimate(found: GoodputEstimate) -> str:
    """`4.82 (4.55 to 5.10)`, or which end it is beyond."""
    if found.bound != "estimate":
        return f"{found.bound.replace('_', ' ')} {digits(found.rate)}"
    sure = f" ({digits(found.low)} to {digits(found.high)})" if found.low and found.high else ""
    return f"{digits(found.rate)}{sure}"


def _saturated(row: SearchRow) -> str:
    full = row.saturation
    if full is None:
        return "was not measured"
    per_gpu = full.output_tokens_per_s_per_gpu
    each = f", {digits(per_gpu)} per GPU" if per_gpu is not None else ""
    return (
        f"delivers {count(round(full.output_tokens_per_s))} output tokens/s when saturated{each} "
        f"({digits(full.requests_per_s)} requests/s)"
    )


def _scaled(found: SearchReport, row: SearchRow) -> str:
    scale = row.slo_scale
    if scale is None:
        return "was not measured."
    if scale.scale is None:
        return f"at {rate(scale.rate_per_s)} no limits are wide enough, because too many requests failed."
    sure = f" (95 % interval {digits(scale.low)} to {digits(scale.high)})" if scale.low and scale.high else ""
    verb, verdict = ("may", "there is room") if scale.scale < 1 else ("must", "what was asked is too tight")
    told = (
        f"at {rate(scale.rate_per_s)} the limits {verb} be {digits(scale.scale)} times what was asked{sure}: {verdict}"
    )
    with suppress(MetricsError):
        limits = SLO.parse(found.slo).limits
        return f"{told}, {words.targets({k: float(f'{v * scale.scale:.3g}') for k, v in limits.items()})}."
    return f"{told}."
