"""What to do about what is off: why it matters, and the option that mends it. The figures come with the finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from metrics.compare import Comparison
from metrics.gate.report import GateReport
from metrics.summary import Summary
from metrics.validity import Finding
from reports.numbers import digits, plural, rate, target

if TYPE_CHECKING:
    from reports.page import RunView

GROWING: Final = 1.5  # in flight at the end of the arrivals / in their middle, from which on a server falls behind
ENOUGH_TO_GROW: Final = 8
ROOMY: Final = 0.7  # the targets could be this much tighter, so the rate could be higher

Level = Literal["invalid", "warning", "hint"]


@dataclass(frozen=True)
class Box:
    """One thing that is off: what and how many, why it matters, and what mends it; `mend` may name options.

    `code` is the finding's own, to look up; empty for what has none.
    """

    level: Level
    code: str
    told: str
    why: str = ""
    mend: str = ""


# Why it matters, and what mends it. `backticks` become code.
REMEDIES: Final[dict[str, tuple[str, str]]] = {
    "no_requests": ("Nothing was measured.", "Lengthen the run with `--duration`, or shorten `--warmup`."),
    "worker_lost": (
        "The load fell where the worker was lost, so the server looks better than it is.",
        "Look into worker-N.log in the run directory; give the machine more memory, or use fewer `--workers`.",
    ),
    "schedule_not_offered": (
        "Requests that are never sent cannot be late: attainment would be of an easier load.",
        "Lower `--rate`, add `--workers`, or allow more with `--max-lateness`.",
    ),
    "ttft_not_measurable": (
        "An answer in one piece has no first token, so a target on it can be neither met nor missed.",
        "Leave out `--no-stream`; look for a proxy that buffers; or set targets with `e2e=` only.",
    ),
    "tpot_not_measurable": (
        "Tokens that come in one read have no time between them, so a target on it can be neither met nor missed.",
        "Turn off buffering in the proxy (nginx: `proxy_buffering off`), aim `--target` at the server itself, or set "
        "targets with `ttft=` and `e2e=` only.",
    ),
    "unmeasurable": (
        "A limit that could not be held against an answer counts as not met, never as met.",
        "Look for a proxy that buffers and for servers that send several tokens at once; or set targets with `e2e=`.",
    ),
    "undecided": (
        "What was on its way when the run ended could still have become good or bad: it counts as neither.",
        "Let the run end by itself, or judge it by both bounds.",
    ),
    "limited_by_client": (
        "The client set these times, not the server: they say nothing about the server.",
        "Add `--workers`, or run the client on a quieter or larger machine; `--spin-us 200` sharpens single sends.",
    ),
    "failures": (
        "Failed requests stay in the denominator: each lowers attainment like a late one.",
        "See the errors under Method. For 429 or 503 lower `--rate`; for timeouts raise `--timeout` or look at the "
        "server's log.",
    ),
    "short_outputs": (
        "The server stopped before the length the trace asks for, so it had less work than the trace holds.",
        "Ask it to go on: `--extra-body ignore_eos=true` (vLLM, SGLang), or `min_tokens`.",
    ),
    "estimated_tokens": (
        "Without usage, tokens are counted by their events, and an event may carry several.",
        "Have the server send usage: it must honour `stream_options.include_usage`, also behind a gateway.",
    ),
    "buffered_stream": (
        "Tokens that arrive in bundles have no times of their own: TPOT and token gaps say little.",
        "Turn off buffering in the proxy (nginx: `proxy_buffering off`), or aim `--target` at the server itself.",
    ),
    "cold_start": (
        "Compilation or cache filling was part of the first answers; users meet it only after a restart.",
        "Leave it out with `--warmup 10s`.",
    ),
    "prompt_count_mismatch": (
        "Prompts are longer or shorter than the trace says: prefill did another amount of work.",
        "Use the completions API, where prompts are token ids, or check chat template and `--model`.",
    ),
    "address_not_loaded": (
        "A part of the deployment was idle: the figures are those of the others.",
        "Is that part up? Give its own address as `--target` to load it alone.",
    ),
    "prefix_cache": (
        "Prompts that are in the cache need no prefill.",
        "Leave `--salt` out (a fresh one per run makes fresh prompts), or turn the cache off in the server.",
    ),
    "unknown_text_key": (
        "If that text is not generated output, first tokens come too early and there are too many of them.",
        "Look at one answer (`curl -N`): if it is output, all is well; please report the key either way.",
    ),
    "usage_over_text": (
        "Tokens that nobody saw: hidden reasoning, special tokens, or text that goodput did not find.",
        "Look at one answer (`curl -N`); have the server stream its reasoning, or say its length in "
        "`completion_tokens_details`.",
    ),
    "usage_under_events": (
        "TPOT divides by the count in usage: one that is too low makes it too high.",
        "Look whether usage leaves reasoning out, and whether something on the way cuts tokens into smaller events.",
    ),
    "usage_contradiction": (
        "One of the counts is wrong, and it may be the one that TPOT and throughput are made of.",
        "Compare the usage of one answer (`curl`) with its text; look at the gateway that writes it.",
    ),
    "first_event_tokens": (
        "TPOT counts the tokens of the first event, and not the time they took.",
        "Read the token gaps beside TPOT, and compare only runs that begin alike.",
    ),
    "extrapolated_model": (
        "Beyond its measured range the performance model is a guess.",
        "Lower `--rate`, or read the figures as a direction only.",
    ),
    "not_open_loop": (
        "A cap on requests in flight slows the arrivals down exactly when the server is slow.",
        "Leave out `--max-in-flight`, or raise it until nothing waits.",
    ),
    "partial": ("The end of the workload is missing.", "Run it again, or judge it by what was due before the stop."),
}


def boxes(summary: Summary) -> list[Box]:
    """A box per kind of finding, the worst first, as the validity section has them."""
    made: dict[tuple[str, str], Box] = {}
    for finding in summary.validity.findings:
        found = _of_finding(finding)
        key = (found.level, found.code)
        made[key] = replace(made[key], told=f"{made[key].told} {found.told}") if key in made else found
    return list(made.values())


def said_once(each: Iterable[Sequence[Box]]) -> list[list[Box]]:
    """Boxes of several runs; why a finding matters and what mends it stands at the first of its kind only."""
    seen: set[str] = set()
    made = []
    for found in each:
        made.append([replace(box, why="", mend="") if box.code in seen else box for box in found])
        seen |= {box.code for box in found}
    return made


def _of_finding(finding: Finding) -> Box:
    why, mend = REMEDIES.get(finding.code, ("", ""))
    return Box(finding.level, finding.code, finding.message, why, mend)


def of_gate(found: GateReport | None) -> list[Box]:
    """Why a gate is invalid, what to know of it, and what would decide what is open."""
    if found is None:
        return []
    return [
        *(Box("invalid", r.code, f"{r.side}: {r.message}", *REMEDIES.get(r.code, ("", ""))) for r in found.invalid),
        *(Box("warning", "", warning) for warning in found.warnings),
        *(Box("hint", "", f"Left out: {rule.rule} ({rule.why}).") for rule in found.left_out),
        *(Box("hint", "", advice) for advice in found.advice),
    ]


def of_comparison(found: Comparison | None) -> list[Box]:
    """Why a comparison decides nothing."""
    if found is None:
        return []
    return [Box("invalid", r.code, f"{r.side}: {r.message}", *REMEDIES.get(r.code, ("", ""))) for r in found.invalid]


def hints(run: RunView) -> list[Box]:
    """What the figures themselves suggest doing next; nothing for an unsound run."""
    if run.summary.validity.verdict == "invalid":
        return []
    return [*_overload(run), *_headroom(run), *_few_samples(run.summary)]


def _overload(run: RunView) -> Iterator[Box]:
    """Requests in flight that still grow when the arrivals end."""
    line = run.bins.timeline
    if line is None:
        return
    due = [flying for flying, arrivals in zip(line.in_flight, line.arrivals, strict=True) if arrivals]
    if len(due) < ENOUGH_TO_GROW:
        return
    third = len(due) // 3
    middle, end = (sum(part) / len(part) for part in (due[third : 2 * third], due[-third:]))
    if middle >= 1 and end > GROWING * middle:
        yield Box(
            "hint",
            "still_growing",
            f"Requests in flight grew from {digits(middle)} in the middle third to {digits(end)} in the last.",
            "A load above capacity has no steady state: the longer it runs, the worse its times.",
            "Lower `--rate`; find the highest rate that holds with `goodput search`.",
        )


def _headroom(run: RunView) -> Iterator[Box]:
    found, attained = run.bins.tightness, run.summary.attainment
    if found is None or found.smallest is None or attained is None or not attained.meets:
        return
    if found.smallest < ROOMY:
        offered = run.summary.rates.offered_per_s
        at = "" if offered is None else f" at {rate(offered)}"
        yield Box(
            "hint",
            "room_to_spare",
            f"{target(found.target_share)} of requests are good with limits times {digits(found.smallest, 2)}{at}.",
            "The deployment can take more than it was given.",
            "Raise `--rate`, or let `goodput search` find how much it carries.",
        )


def _few_samples(summary: Summary) -> Iterator[Box]:
    names = {"ttft_s": "TTFT", "tpot_s": "TPOT"}
    few = {names[key]: stat for key in names if (stat := getattr(summary, key)) is not None and stat.few}
    if few:
        least = min(stat.n for stat in few.values())
        asked = {name for stat in few.values() for name in stat.few}
        yield Box(
            "hint",
            "few_samples",
            f"{' and '.join(sorted(asked))} of {' and '.join(few)} rest on {plural(least, 'answer')} only.",
            "A percentile means something once at least one sample is expected beyond it.",
            "Send more with `--requests` or `--duration`.",
        )
