"""A search for goodput: every deployment or value that was tried, with what was found and what ended it."""

from __future__ import annotations

from metrics.search import SearchReport, SearchRow
from reports.figures.rates import LIMITS
from reports.numbers import NOTHING, count, digits, percent, rate
from reports.search_words import ranked
from reports.sections.rates import told
from reports.sections.section import Section
from reports.tables import Table

LOOK_FOR = {
    "search": "Goodput with its 95 % interval, from all runs of a row pooled in one curve.",
    "rates": "The highest passing rate below the first failing one; never a rate that was not tried.",
    "concurrency": "Requests in flight instead of a rate: what a closed loop of users would see.",
    "slo-scale": "The least factor on all limits at which the target share holds at the given rate.",
    "saturation": "What is delivered when there is always more to do, without any objective.",
}

_RATE = {mode: "users in flight" if mode == "concurrency" else "requests/s" for mode in LOOK_FOR}


def search_section(found: SearchReport | None) -> Section | None:
    """A table of the rows, best marked."""
    if found is None or not found.rows:
        return None
    rows = ranked(found)
    columns = {
        "deployment": [_name(row, label) for label, row in rows],
        "GPUs": [NOTHING if row.gpus is None else str(row.gpus) for _, row in rows],
        _RATE[found.mode]: [_found(row) for _, row in rows],
        "per GPU": ["" if row.goodput_per_gpu is None else told(row.goodput_per_gpu) for _, row in rows],
        "factor on the limits": [_scale(row) for _, row in rows],
        "binds (share within it)": [_missed(row) for _, row in rows],
        "each limit alone": [_limits(row) for _, row in rows],
        "requests/s, saturated": ["" if found.mode == "search" else _saturated(row) for _, row in rows],
        "output tokens/s, saturated": [_tokens(row) for _, row in rows],
        "runs": [count(len(row.attempts)) if row.attempts else "" for _, row in rows],
        "ended by": [row.stopped for _, row in rows],
        "not sound": [", ".join(row.unsound) for _, row in rows],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    return Section(
        "search",
        "What was found",
        LOOK_FOR[found.mode],
        [],
        Table(list(shown), [list(cells) for cells in zip(*shown.values(), strict=True)]),
        note=f"{found.clock.capitalize()} clock; {found.trace}; seed {found.seed}.",
        unfolded=True,
    )


def _name(row: SearchRow, label: str) -> str:
    return f"\N{BLACK STAR} {label}" if row.best else label


def _found(row: SearchRow) -> str:
    if row.goodput is not None:
        return told(row.goodput)
    if row.sweep is not None:
        if row.sweep.bracket is not None:
            return f"{digits(row.sweep.bracket[0])} passes, {digits(row.sweep.bracket[1])} fails"
        return NOTHING if row.sweep.rate is None else f"{row.sweep.bound.replace('_', ' ')} {digits(row.sweep.rate)}"
    return ""


def _saturated(row: SearchRow) -> str:
    return "" if row.saturation is None else digits(row.saturation.requests_per_s)


def _tokens(row: SearchRow) -> str:
    if row.saturation is None:
        return ""
    per_gpu = row.saturation.output_tokens_per_s_per_gpu
    each = "" if per_gpu is None else f" ({digits(per_gpu)} per GPU)"
    return digits(row.saturation.output_tokens_per_s) + each


def _scale(row: SearchRow) -> str:
    found = row.slo_scale
    if found is None:
        return ""
    if found.scale is None:
        return f"none helps at {rate(found.rate_per_s)}"
    ends = "" if found.low is None or found.high is None else f" ({digits(found.low)} to {digits(found.high)})"
    return f"{digits(found.scale)}{ends} at {rate(found.rate_per_s)}"


def _missed(row: SearchRow) -> str:
    if row.binding is None:
        return ""
    share = row.marginals.get(row.binding)
    name = LIMITS.get(row.binding, row.binding.replace("_", " "))
    return name if share is None else f"{name}: {percent(share)}"


def _limits(row: SearchRow) -> str:
    return ", ".join(f"{name} {digits(value)}" for name, value in row.limit_rates.items())
