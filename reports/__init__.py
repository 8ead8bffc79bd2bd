"""Turn numbers into pages: text for a terminal, one self-contained HTML file."""

from __future__ import annotations

PROJECT = "slo-goodput"  # start-up checks it: another distribution may ship a package of the same name
