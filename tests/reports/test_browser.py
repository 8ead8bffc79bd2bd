"""The page in a real browser: drawn, quiet, self-contained, readable at every width, in the dark and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PAGES = ["one_html", "demo_html"]
DUPLICATE_IDS = """() => {
  const seen = {};
  document.querySelectorAll('[id]').forEach(e => seen[e.id] = (seen[e.id] || 0) + 1);
  return Object.keys(seen).filter(id => seen[id] > 1);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; skipped with a reason where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, str]:
    """The sample pages as files."""
    folder: Path = tmp_path_factory.mktemp("pages")
    found = {}
    for page in [*PAGES, "search_html", "plan_html", "gate_html"]:
        path = folder / f"{page}.html"
        path.write_text(request.getfixturevalue(page), encoding="utf-8")
        found[page] = path.as_uri()
    return found


class Opened:
    """A page that was opened and drew its charts, with everything it said and asked for."""

    def __init__(self, browser: Any, url: str, *, width: int = 1360, script: bool = True, **context: Any) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, java_script_enabled=script, **context
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda asked: self.asked.append(asked.url))
        self.page.goto(url)
        if script:
            self.page.wait_for_selector("html[data-charts=drawn]", state="attached", timeout=60_000)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def colour(self, selector: str, property_: str) -> str:
        """A computed colour."""
        found: str = self.page.eval_on_selector(selector, f"e => getComputedStyle(e).{property_}")
        return found


AXE = Path(__file__).parents[2] / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
VIOLATIONS = """async () => (await axe.run()).violations
  .filter(v => v.impact === 'serious' || v.impact === 'critical')
  .map(v => v.id + ': ' + v.nodes[0].html)"""


@pytest.mark.parametrize(("page", "scheme"), [("one_html", "dark"), ("demo_html", "light"), ("gate_html", "light")])
def test_axe_finds_nothing_serious(browser: Any, urls: dict[str, str], page: str, scheme: str) -> None:
    """The accessibility checker of many auditors: contrast, names, roles, structure."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --prefix .venv/npm axe-core")
    with Opened(browser, urls[page], color_scheme=scheme) as opened:
        opened.page.add_script_tag(path=str(AXE))
        assert [] == opened.page.evaluate(VIOLATIONS)


@pytest.mark.parametrize("page", ["search_html", "plan_html", "gate_html"])
def test_pages_of_results_are_drawn_on_a_phone(browser: Any, urls: dict[str, str], page: str) -> None:
    """Every chart drawn, nothing said, no horizontal scroll at 380 px."""
    with Opened(browser, urls[page], width=380) as opened:
        drawn = opened.page.eval_on_selector_all(".chart", "all => all.map(e => e.dataset.drawn)")
        assert {"yes"} == set(drawn)
        assert [] == opened.said
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 380


@pytest.mark.parametrize("page", PAGES)
def test_every_chart_is_drawn_in_silence(browser: Any, urls: dict[str, str], page: str) -> None:
    """No console message, no request but the file itself, every chart drawn, ids still unique."""
    with Opened(browser, urls[page]) as opened:
        drawn = opened.page.eval_on_selector_all(".chart", "all => all.map(e => e.dataset.drawn)")
        assert len(drawn) >= 10
        assert {"yes"} == set(drawn)
        assert [] == opened.said
        assert [urls[page]] == [url for url in opened.asked if not url.startswith("data:")]
        assert [] == opened.page.evaluate(DUPLICATE_IDS)
        assert "NaN" not in opened.page.inner_text("body")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "script"), [(380, True), (1360, True), (380, False), (700, False)])
def test_no_horizontal_scroll(browser: Any, urls: dict[str, str], page: str, width: int, script: bool) -> None:
    """The page fits a phone and a desk, with its script and without."""
    with Opened(browser, urls[page], width=width, script=script) as opened:
        box = opened.page.locator("html").bounding_box()
        assert box["width"] <= width
        if script:
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_mode_reaches_page_and_charts(browser: Any, urls: dict[str, str]) -> None:
    """The same file is dark where the reader's system is, axes and marks included; the button turns it."""
    colours = {}
    for scheme in ("light", "dark"):
        with Opened(browser, urls["one_html"], color_scheme=scheme) as opened:
            label = "#chart-outcomes-1 .mark-text text"
            colours[scheme] = (opened.colour("body", "backgroundColor"), opened.colour(label, "fill"))
            opened.page.click(".theme")
            colours[f"{scheme} turned"] = (opened.colour("body", "backgroundColor"), opened.colour(label, "fill"))
    assert colours["light"] == colours["dark turned"]
    assert colours["dark"] == colours["light turned"]
    assert all(a != b for a, b in zip(colours["light"], colours["dark"], strict=True))


def test_paper_is_light_and_whole(browser: Any, urls: dict[str, str]) -> None:
    """Printed from a dark screen the page is dark ink on white, and can be made a PDF."""
    with Opened(browser, urls["demo_html"], color_scheme="dark") as opened:
        opened.page.emulate_media(media="print")
        assert "rgb(255, 255, 255)" == opened.colour("body", "backgroundColor")
        assert "rgb(22, 25, 29)" == opened.colour("body", "color")
        assert "none" == opened.colour(".theme", "display")
        assert opened.page.pdf(format="A4").startswith(b"%PDF")


def test_without_script_the_charts_are_there(browser: Any, urls: dict[str, str]) -> None:
    """Headline and drawn charts stand in a browser that runs nothing."""
    with Opened(browser, urls["demo_html"], script=False) as opened:
        assert opened.page.locator("h1").inner_text().startswith("Disaggregated wins")
        assert opened.page.locator(".chart svg").count() == opened.page.locator(".chart").count()


def test_a_tooltip_tells_the_numbers(browser: Any, urls: dict[str, str]) -> None:
    """Pointing at a bar shows what it counts."""
    with Opened(browser, urls["one_html"]) as opened:
        opened.page.locator("#chart-outcomes-1 .mark-rect path").first.hover()
        told = opened.page.locator("#vg-tooltip-element.visible").inner_text(timeout=10_000)
        assert "requests" in told
        assert "good" in told


def test_charts_and_tables_are_reached_by_keyboard(browser: Any, urls: dict[str, str]) -> None:
    """Every chart takes the focus and names itself; every table opens from the keyboard."""
    with Opened(browser, urls["one_html"]) as opened:
        charts = opened.page.locator(".chart[role=img][tabindex='0'][aria-label]")
        assert opened.page.locator(".chart").count() == charts.count()
        opened.page.locator("summary").first.focus()
        opened.page.keyboard.press("Enter")
        assert opened.page.locator("details[open] table").first.is_visible()
