"""The sections of a page in reading order: each figure with what to look for, what it shows, and its table."""

from __future__ import annotations

from altair.utils.schemapi import debug_mode

from reports.page import PageData
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
from reports.sections.targets import lengths_section, tightness_section
from reports.sections.times import distributions_section, timeline_section
from reports.sections.versus import comparison_sections, gate_section


def sections(page: PageData) -> list[Section]:
    """All sections that have something to show."""
    # Altair would check every part of every chart against its schema; our tests do that, users need not wait for it.
    with debug_mode(False):
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
            bills_section(page.bills),
            outcomes_section(page.runs),
            quadrants_section(page.runs),
            distributions_section(page.runs),
            timeline_section(page.runs),
            phases_section(page.runs),
            hand_off_section(page.runs),
            interference_section(page.runs),
            worst_section(page.runs),
            tightness_section(page.runs),
            lengths_section(page.runs),
            prediction_section(page.runs),
        ]
    return lightened([section for section in made if section is not None], len(page.runs))
