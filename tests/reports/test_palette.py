"""Colours that can be read and told apart."""

from __future__ import annotations

import itertools

import pytest

from reports import palette

TEXT = ["ink", "soft", "accent", "valid", "warning", "invalid"]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK])
@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("ground", ["card", "paper"])
def test_text_has_contrast(theme: dict[str, str], name: str, ground: str) -> None:
    """4.5:1 for all text, in both themes."""
    assert contrast(theme[name], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK])
def test_shares_can_be_read_on_their_bars(theme: dict[str, str]) -> None:
    """The per cent in a segment has 4.5:1 on the segment's colour."""
    grounds = {"on": ("good", "slow", "both", "unmeasurable", "failed"), "on-bright": ("late", "end")}
    assert [] == [(t, p) for t, parts in grounds.items() for p in parts if contrast(theme[t], theme[p]) < 4.5]


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK])
def test_marks_stand_out_from_the_card(theme: dict[str, str]) -> None:
    """Graphics need 3:1, except the amber whose segments carry dark text and a name."""
    marks = ["s1", "s2", "s3", "good", "slow", "both", "unmeasurable", "failed", "target"]
    assert [] == [name for name in marks if contrast(theme[name], theme["card"]) < 3]


def test_both_themes_define_the_same_names() -> None:
    """A colour missing in one theme would be black there."""
    assert list(palette.LIGHT) == list(palette.DARK)


def test_sixteen_runs_differ_in_colour_or_dash() -> None:
    """Never told apart by colour alone, and never alike."""
    styles = [(palette.series_colour(i), tuple(palette.series_dash(i))) for i in range(16)]
    assert len(styles) == len(set(styles))
    assert all(a[1] != b[1] for a, b in itertools.pairwise(styles))
