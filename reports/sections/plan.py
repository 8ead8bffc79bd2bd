"""A plan: the best design of each arrangement under each demand, what each freedom adds, and how many GPUs it takes."""

from __future__ import annotations

from metrics.decision import DecisionRow
from metrics.names import own_options, shared_options
from metrics.plan import Candidate, PlanReport, PlanRow
from reports import words
from reports.figures.gains import gains
from reports.figures.goodput import goodput as goodput_figure
from reports.numbers import NOTHING, digits, percent, rate
from reports.sections.rates import told
from reports.sections.section import WIDTHS, Panel, Section, panel
from reports.tables import Table


def plan_sections(found: PlanReport | None) -> list[Section]:
    """The table, the gain waterfall, and the sizing where a rate was wanted."""
    if found is None:
        return []
    made = [_designs(found), _gains(found), _sizing(found)]
    return [section for section in made if section is not None]


def _designs(found: PlanReport) -> Section:
    panels: list[Panel] = []
    shared = shared_options([c.deployment for row in found.rows for c in row.candidates])
    order = list(dict.fromkeys(words.arrangement(c.arrangement) for row in found.rows for c in row.candidates))
    known = [row for row in found.rows if any(c.goodput_per_gpu for c in row.candidates)]
    columns = min(2, max(len(known), 1))
    for row in known:
        rows = [
            DecisionRow(
                label=words.arrangement(c.arrangement),
                deployment=c.deployment,
                gpus=c.gpus,
                goodput_per_gpu=c.goodput_per_gpu,
            )
            for c in row.candidates
        ]
        tells = words.capital(_row_words(row))
        chart = goodput_figure(rows, order, description=tells)
        caption = f"{row.demand}: {words.of_slo(row.slo)}"
        panels.append(panel("plan", len(panels) + 1, chart, tells, caption=caption, width=WIDTHS[columns]))
    return Section(
        "plan",
        "Which arrangement for which demand",
        "Best first; where intervals overlap, the two cannot be told apart. Prices are per good request.",
        panels,
        Table(
            ["demand", "arrangement", "design", "GPUs", "requests/s/GPU", "tokens/s/GPU", "$/1,000 good", "Wh/good"],
            [_cells(row, candidate, shared) for row in found.rows for candidate in row.candidates],
            _rule_words(found),
        ),
        columns=columns,
        note=f"{found.designs} designs on {found.gpus} GPUs; {found.trace}; all with {shared or found.model}.",
        unfolded=True,
    )


def _rule_words(found: PlanReport) -> str:
    rule = "The rule of thumb (one pool for tokens, chunks for an SLO, two pools for a strict one)"
    return f"{rule} holds here." if found.rule_holds else f"{rule} does not hold here: {found.rule_note}."


def _row_words(row: PlanRow) -> str:
    first, *rest = row.candidates
    leader = words.arrangement(first.arrangement)
    if not rest or first.goodput_per_gpu is None or rest[0].goodput_per_gpu is None:
        return f"{leader} is best."
    second, other = rest[0], words.arrangement(rest[0].arrangement)
    if row.tie or second.worth <= 0:
        return f"{leader} cannot be told from {other}."
    return f"{leader} serves {digits(first.worth / second.worth)} times what {other} does."


def _cells(row: PlanRow, candidate: Candidate, shared: str) -> list[str]:
    found = candidate.goodput_per_gpu
    prices = (candidate.usd_per_1000_good, candidate.wh_per_good)
    return [
        row.demand,
        words.arrangement(candidate.arrangement),
        own_options(candidate.deployment, shared),
        str(candidate.gpus),
        NOTHING if found is None else told(found),
        digits(candidate.output_tokens_per_s_per_gpu),
        *(NOTHING if price is None else digits(price) for price in prices),
    ]


def _gains(found: PlanReport) -> Section | None:
    if not found.waterfall:
        return None
    shared = shared_options([step.deployment for step in found.waterfall])
    best = max(found.waterfall[1:], key=lambda step: step.gain, default=found.waterfall[0])
    tells = (
        f"The largest step is {best.name}: {digits(best.gain)} more per GPU."
        if best.gain > 0
        else "No freedom adds anything: the plain design is as good as it gets."
    )
    return Section(
        "gains",
        "What each freedom adds",
        "Bars build on one another: from the plain design to the best one, one freedom at a time.",
        [panel("gains", 1, gains(found.waterfall, description=tells), tells)],
        Table(
            ["allowed", "best design", "per GPU", "gain"],
            [
                [s.name, own_options(s.deployment, shared), digits(s.goodput_per_gpu), digits(s.gain)]
                for s in found.waterfall
            ],
        ),
        note="No interference: two pools whose KV transfer costs nothing. Own parallelism: any tensor degrees and any "
        "split. Own hardware: any kind of GPU in either pool. Minus transfer: over the real link.",
    )


def _sizing(found: PlanReport) -> Section | None:
    if not found.sizing:
        return None
    shared = shared_options([s.deployment for s in found.sizing])
    wanted = rate(found.wanted_rate_per_s)
    return Section(
        "sizing",
        f"GPUs for {wanted}",
        "The fewest of each arrangement that were found to carry the wanted rate.",
        [],
        Table(
            ["arrangement", "design", "GPUs", "$ per hour", "within targets"],
            [
                [
                    words.arrangement(s.arrangement),
                    own_options(s.deployment, shared),
                    str(s.gpus),
                    digits(s.usd_per_hour),
                    percent(s.attainment),
                ]
                for s in found.sizing
            ],
        ),
        unfolded=True,
    )
