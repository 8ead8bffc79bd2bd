"""How a run was made and how to make it again: definitions, settings, hashes, the exact command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from metrics.runinfo import RunInfo, Scalar
from metrics.summary import Summary
from reports import tables
from reports.numbers import NOTHING, count, plural, rate, seconds
from reports.tables import Table

if TYPE_CHECKING:
    from reports.page import RunView

ONE_LINE = 76  # a longer command gets a line per option

DEFINITIONS = [
    (
        "Time to first token (TTFT)",
        "First token event minus the instant the request was due, so a late client is in it; client lag is told apart.",
    ),
    (
        "Time per output token (TPOT)",
        "(last token event - first) / (output tokens - 1) of one request. Undefined for a single token: TTFT decides.",
    ),
    (
        "Token gap (ITL)",
        "Time between neighbouring token events, pooled over requests. TPOT is a mean and hides stalls; gaps do not.",
    ),
    (
        "Good request",
        "Answered in full, and within every target (slack 1 µs).",
    ),
    (
        "Attainment",
        "Good requests / all requests planned after warm-up; failures are in the denominator.",
    ),
    (
        "Goodput",
        "The highest request rate whose attainment reaches the target share, per GPU of all pools.",
    ),
    (
        "SLO throughput",
        "Good requests per second at one load, which other tools call goodput.",
    ),
]


@dataclass(frozen=True)
class Method:
    """How one run was made, and how to make it again."""

    label: str
    command: str
    facts: list[tuple[str, str]]
    settings: Table
    surroundings: list[tuple[str, str]]
    errors: Table | None
    summary_json: str
    warnings: list[str] = field(default_factory=list)


def methods(runs: Sequence[RunView]) -> list[Method]:
    """How each run was made; of several, first what is the same for all of them, then only what is not."""
    each = [method(run) for run in runs]
    if len(each) < 2:
        return each
    first = each[0]
    same = Method(
        label="The same for all runs",
        command="",
        facts=[fact for fact in first.facts if all(fact in one.facts for one in each)],
        settings=Table(
            first.settings.headers,
            [row for row in first.settings.rows if all(row in one.settings.rows for one in each)],
        ),
        surroundings=[fact for fact in first.surroundings if all(fact in one.surroundings for one in each)],
        errors=None,
        summary_json="",
        warnings=[told for told in first.warnings if all(told in one.warnings for one in each)],
    )
    return [same, *(_without(one, same) for one in each)]


def _without(one: Method, same: Method) -> Method:
    return replace(
        one,
        facts=[fact for fact in one.facts if fact not in same.facts],
        settings=Table(one.settings.headers, [row for row in one.settings.rows if row not in same.settings.rows]),
        surroundings=[fact for fact in one.surroundings if fact not in same.surroundings],
        warnings=[told for told in one.warnings if told not in same.warnings],
    )


def method(run: RunView) -> Method:
    """What was run, where, with which settings."""
    info = run.summary.run
    errors = [[e.outcome, e.text or NOTHING, count(e.count)] for e in run.summary.errors]
    return Method(
        label=run.label,
        command=command(info),
        facts=_facts(run.summary),
        settings=Table(
            ["setting", "value", "from"],
            [[name, _scalar(s.value), s.origin] for name, s in sorted(info.config.items())],
        ),
        surroundings=_surroundings(info),
        errors=Table(["outcome", "text", "requests"], errors) if errors else None,
        summary_json=msgspec.json.format(msgspec.json.encode(run.summary), indent=2).decode(),
        warnings=[*info.warnings, *_rejected(info)],
    )


def _surroundings(info: RunInfo) -> list[tuple[str, str]]:
    groups: dict[str, Mapping[str, Scalar]] = {
        "version": info.versions,
        "host": info.host,
        "server": info.server,
        "tag": info.tags,
    }
    return [(f"{group} {name}", _scalar(value)) for group, of in groups.items() for name, value in sorted(of.items())]


def _rejected(info: RunInfo) -> list[str]:
    return [f"{plural(n, 'row')} of the trace left out: {why.replace('_', ' ')}" for why, n in info.rejected.items()]


def command(info: RunInfo) -> str:
    """The exact command: what the user typed, with seed and salt pinned when they were drawn."""
    words = list(info.command)
    if not words:
        return ""
    for flag, value in (("--seed", str(info.seed)), ("--salt", info.salt)):
        given = any(word == flag or word.startswith(f"{flag}=") for word in words)
        if value and not given and "run" in words:
            words += [flag, value]
    return shell_lines(words)


def shell_lines(words: Sequence[str]) -> str:
    """A command to paste into a shell; a long one with a line per option."""
    line = shlex.join(words)
    if len(line) <= ONE_LINE:
        return line
    return "".join(f" \\\n    {shlex.quote(w)}" if w.startswith("--") else f" {shlex.quote(w)}" for w in words).lstrip()


def _facts(summary: Summary) -> list[tuple[str, str]]:
    info = summary.run
    facts = [
        ("deployment", info.deployment),
        ("target", info.target_url),
        ("model", info.model),
        ("endpoint", info.endpoint),
        ("GPUs", "" if info.gpus is None else str(info.gpus)),
        ("trace", info.trace_name),
        ("trace hash", info.trace_hash),
        ("schedule recipe", info.recipe_hash),
        ("seed", str(info.seed)),
        ("salt", info.salt),
        ("targets", info.slo),
        ("requests", _requests(summary)),
        ("offered rate", _rate(summary.rates.offered_per_s)),
        ("completed rate", _rate(summary.rates.completed_per_s)),
        ("SLO throughput", _rate(summary.rates.slo_throughput_per_s)),
        ("warm-up", seconds(info.warmup_s) if info.warmup_s else "none"),
        ("connections", tables.connections(summary.connections)),
        ("workers", str(info.workers)),
        ("started", info.created_at),
        ("state", info.state),
    ]
    return [(name, told) for name, told in facts if told]


def _requests(summary: Summary) -> str:
    asked = summary.requests
    outcomes = ", ".join(f"{n:,} {name}" for name, n in asked.by_outcome.items())
    warm = f"; {asked.in_warmup:,} in warm-up" if asked.in_warmup else ""
    return f"{asked.planned:,} planned: {outcomes}{warm}"


def _rate(value: float | None) -> str:
    return "" if value is None else rate(value)


def _scalar(value: Scalar | list[str]) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return NOTHING if value is None else str(value)
