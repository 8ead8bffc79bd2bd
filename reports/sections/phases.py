"""Phases: where the time of an answer goes, and where the hand-off of the KV cache is felt."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.phases import HandOff, Phases
from reports import words
from reports.figures import phases as figures
from reports.numbers import NOTHING, count, percent, seconds
from reports.page import RunView
from reports.palette import PHASES
from reports.sections.section import WIDTHS, Panel, Section, Swatch, abreast, named, panel
from reports.tables import Table

TOLD_BY = {
    "engine": "The server itself reported its phases.",
    "client": "The server reports no phases, so these are the waits a client can see.",
}


def phases_section(runs: Sequence[RunView]) -> Section | None:
    """Stacked phases at p50, p90 and p99 of TTFT and of the whole answer; waterfalls where there is one run."""
    known = [(run.label, run.bins.phases) for run in runs if run.bins.phases is not None]
    known = [(label, found) for label, found in known if found.told_by == known[0][1].told_by]
    if not known:
        return None
    columns = abreast(max(len(known), 2)) if len(runs) > 1 else 1
    panels = [*_stacked(runs, known, "first", columns), *_stacked(runs, known, "answer", columns)]
    if len(runs) == 1:
        found = known[0][1]
        longest = max(sum(request.phase_s) for request in found.waterfalls)
        tells = _waterfall_words(found)
        chart = figures.waterfalls(found.names, found.waterfalls, longest, description=tells)
        panels.append(panel("phases", len(panels) + 1, chart, tells, caption="One median and one p99 request"))
    return Section(
        "phases",
        "Where the time goes",
        "The widest part before the first token is what to work on. Client lag must be too thin to see.",
        panels,
        Table(["run", "what", "at", *known[0][1].names, "sum"], _rows(known)),
        key=[
            Swatch(name, PHASES[i], square=True)
            for i, name in enumerate(known[0][1].names)
            if any(level.phase_s[i] > 0 for _, found in known for level in (*found.first, *found.answer))
        ],
        columns=columns,
        note=TOLD_BY[known[0][1].told_by],
    )


def _stacked(runs: Sequence[RunView], known: Sequence[tuple[str, Phases]], what: str, columns: int) -> list[Panel]:
    """A chart per run, all on one axis."""
    title = {"first": "Until the first token, by TTFT", "answer": "The whole answer, by end-to-end time"}[what]
    longest = max(level.total_s for _, found in known for level in getattr(found, what))
    begun = 0 if what == "first" else len(known)
    made = []
    for i, (label, found) in enumerate(known, begun + 1):
        tells = _level_words(found, what)
        chart = figures.levels(found.names, getattr(found, what), longest, description=tells)
        caption = f"{label}: {title[0].lower()}{title[1:]}" if named(runs, label) else title
        made.append(panel("phases", i, chart, tells, caption=caption, width=WIDTHS[columns]))
    return made


def _level_words(found: Phases, what: str) -> str:
    """The largest part of the slow end."""
    level = getattr(found, what)[-1]
    share, name, part = max(
        (part / level.total_s if level.total_s > 0 else 0.0, name, part)
        for name, part in zip(found.names, level.phase_s, strict=True)
    )
    return f"At p99 {seconds(level.total_s)}, of which {name} {seconds(part)} ({percent(share)})."


def _waterfall_words(found: Phases) -> str:
    told = [
        f"{request.name} request {request.request_id} (prompt {count(request.prompt_tokens)}, output "
        f"{count(request.output_tokens)} tokens) took {seconds(sum(request.phase_s))}"
        for request in found.waterfalls
    ]
    return words.capital("; ".join(told)) + "."


def _rows(known: Sequence[tuple[str, Phases]]) -> list[list[str]]:
    return [
        [label, what, f"p{level.share * 100:g}", *(seconds(part) for part in level.phase_s), seconds(level.total_s)]
        for label, found in known
        for what, levels in (("first token", found.first), ("whole answer", found.answer))
        for level in levels
    ]


def hand_off_section(runs: Sequence[RunView]) -> Section | None:
    """Where the KV hand-off of disaggregated runs sits; None when no run has one."""
    told = [(run.label, None if run.bins.phases is None else run.bins.phases.hand_off) for run in runs]
    known = [(label, found) for label, found in told if found is not None]
    if not known:
        return None
    longest = max(value for _, found in known for value in _times(found) if value is not None)
    panels = []
    for i, (label, found) in enumerate(known, 1):
        tells = hand_off_words(found)
        chart = figures.hand_off(found, longest, description=tells)
        panels.append(panel("handoff", i, chart, tells, caption=named(runs, label)))
    return Section(
        "handoff",
        "Where the KV hand-off sits",
        "The cache moves from the prefill to the decode worker; somebody waits for it, in TTFT or before token two.",
        panels,
        Table(
            ["run", "transfer p50", "transfer p99", "second token p50", "second token p99", "later gaps", "held back"],
            [[label, *(NOTHING if t is None else seconds(t) for t in _times(found))] for label, found in known],
        ),
    )


def _times(found: HandOff) -> list[float | None]:
    return [
        found.transfer_p50_s,
        found.transfer_p99_s,
        found.second_gap_p50_s,
        found.second_gap_p99_s,
        found.later_gap_p50_s,
        found.held_p50_s,
    ]


def hand_off_words(found: HandOff) -> str:
    """Where it is felt, and how much of that the engine calls transfer."""
    told = []
    if found.place == "second token" and found.second_gap_p50_s is not None and found.later_gap_p50_s is not None:
        told.append(
            f"It shows before the second token: half of the answers wait {seconds(found.second_gap_p50_s)} or more "
            f"there, where later tokens come every {seconds(found.later_gap_p50_s)}"
        )
    else:
        told.append("It is part of the time to first token; the second token comes like the later ones")
    if found.held_p50_s is not None:
        told.append(f"headers came late, and {seconds(found.held_p50_s)} passed from headers to first token")
    if found.transfer_p50_s is not None:
        told.append(
            f"the engine itself counts {seconds(found.transfer_p50_s)} of transfer at the median, "
            f"{seconds(found.transfer_p99_s)} at p99, waiting for room in the decode pool included"
        )
    return "; ".join(told) + "."
