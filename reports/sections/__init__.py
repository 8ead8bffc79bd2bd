"""The sections of a page in reading order: each figure with what to look for, what it shows, and its table."""

from __future__ import annotations

from reports.figures import unchecked
from reports.page import PageData, RunView
from reports.sections.bills import bills_section
from reports.sections.decision import goodput_section
from reports.sections.gaps import interference_section, worst_section
from reports.sections.phases import hand_off_section, phases_section
from reports.sections.plan import plan_sections
from reports.sections.prediction import prediction_section
from reports.sections.rates import attainment_section, binding_section, interactivity_section, scale_section
from reports.sections.requests import outcomes_section, quadrants_section
from reports.sections.search import search_section
from reports.sections.section import Section, lightened
from reports.sections.server import server_section
from reports.sections.targets import lengths_section, tightness_section
from reports.sections.times import distributions_section, timeline_section
from reports.sections.versus import comparison_sections, gate_section

MOST_DRAWN = 4  # runs in one chart or side by side: more cannot be told apart


def sections(page: PageData) -> list[Section]:
    """All sections that have something to show."""
    runs = drawn(page)
    with unchecked():
        made = [
            gate_section(page.gate),
            *comparison_sections(page.comparison),
            *plan_sections(page.plan),
            search_section(page.search),
            goodput_section(page),
            attainment_section(page.sweeps),
            binding_section(page.sweeps),
            scale_section(page.sweeps),
            interactivity_section(page.sweeps),
            outcomes_section(page.runs),
            quadrants_section(runs),
            distributions_section(runs),
            timeline_section(runs),
            server_section(runs),
            phases_section(runs),
            hand_off_section(runs),
            interference_section(runs),
            worst_section(runs),
            tightness_section(runs),
            lengths_section(runs),
            bills_section(page.bills),
            prediction_section(runs),
        ]
    return lightened([section for section in made if section is not None], len(page.runs))


def drawn(page: PageData) -> list[RunView]:
    """The runs whose charts are drawn: four at most, the ends and those around goodput, or evenly spread."""
    runs = page.runs
    if len(runs) <= MOST_DRAWN:
        return list(runs)
    last = len(runs) - 1
    places = {0, last} | (set(_around_goodput(page)) or {round(last / 3), round(2 * last / 3)})
    return [runs[place] for place in sorted(places)]


def _around_goodput(page: PageData) -> list[int]:
    """The runs at the rates just below and just above the one goodput that was found."""
    rates = [run.summary.run.rate_per_s for run in page.runs]
    found = page.sweeps[0].goodput if len(page.sweeps) == 1 else None
    if found is None or any(rate is None for rate in rates):
        return []
    below = [place for place, rate in enumerate(rates) if rate is not None and rate <= found.rate]
    above = [place for place, rate in enumerate(rates) if rate is not None and rate > found.rate]
    return [*below[-1:], *above[:1]]
