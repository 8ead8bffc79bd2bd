"""A trace as pictures: text of a fixed width, one self-contained page."""

from __future__ import annotations

from reports.trace import Bars, TraceView, plot_text, render_trace

VIEW = TraceView(
    name="<b>t</b>",
    headline="3 requests",
    subline="short",
    facts=[("rows", "3")],
    findings=["rejected: <script>alert(1)</script>"],
    bars=[
        Bars(title="Arrivals per 1 s", unit="s", edges=[0, 1, 2, 3], counts=[1, 0, 4]),
        Bars(title="Prompt tokens", unit="tokens", edges=[1, 10, 100], counts=[3, 1], log=True),
    ],
)


def test_text() -> None:
    """The highest bar is full, an empty bin is blank, the axis names both ends."""
    lines = plot_text(VIEW).splitlines()
    assert "Arrivals per 1 s (highest 4)" == lines[0]
    assert ("█" * 24).rjust(72) == lines[1]
    assert ("▄" * 24 + " " * 24 + "█" * 24) == lines[5]
    assert "0 s" + "3 s".rjust(69) == lines[8]


def test_many_bins_become_few_columns() -> None:
    """More bins than columns are averaged."""
    bars = Bars(title="t", unit="s", edges=list(range(1001)), counts=[2] * 500 + [1] * 500)
    lines = plot_text(TraceView(name="", headline="", subline="", facts=[], findings=[], bars=[bars])).splitlines()
    assert "█" * 36 == lines[1]
    assert "█" * 72 == lines[4]


def test_page() -> None:
    """Escaped, drawn, the same bytes again, nothing fetched."""
    page = render_trace(VIEW)
    assert page == render_trace(VIEW)
    assert 2 == page.count("<svg")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<b>t</b>" not in page
