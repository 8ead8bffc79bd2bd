"""The pictures of the documentation, from the page of a demo: the top of it, and single sections."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.targets import say

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH, TOP = 1200, 1130
MOST_BYTES = 300_000
SECTIONS = {"attainment": "attainment.png", "interference": "interference.png", "phases": "phases.png"}
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


def draw(demo: Path) -> int:
    """Write docs/images/*.png; 1 when one of them is heavier than a README should carry."""
    from playwright.sync_api import sync_playwright

    rows = json.loads((demo / "demo.json").read_bytes())["decision"]["rows"]
    unsound = [row["label"] for row in rows if row["validity"] == "invalid"]
    if unsound:
        raise SystemExit(f"screenshots: the runs of {', '.join(unsound)} are not sound; try again on a quieter machine")
    if CHROMIUM is None:
        raise SystemExit("screenshots: no Chromium on this machine")
    made: list[Path] = []
    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        page_copy = Path(shutil.copy(demo / "report.html", folder))
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": TOP}, color_scheme="light")
        page.goto(page_copy.as_uri())
        page.wait_for_selector("html[data-charts=drawn]", state="attached", timeout=120_000)
        made.append(IMAGES / "report.png")
        page.screenshot(path=made[-1], clip={"x": 0, "y": 0, "width": WIDTH, "height": TOP}, full_page=True)
        for section, name in SECTIONS.items():
            found = page.locator(f"section:has(> #{section}-title)")
            if found.count():
                made.append(IMAGES / name)
                found.screenshot(path=made[-1])
        browser.close()
    for path in made:
        say(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    return int(any(path.stat().st_size > MOST_BYTES for path in made))


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    sys.exit(draw(Path(sys.argv[1])))
