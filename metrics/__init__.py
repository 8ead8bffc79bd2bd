"""Turn recorded rows into numbers: latency, attainment, goodput, validity."""

from __future__ import annotations

PROJECT = "slo-goodput"  # start-up checks it: another distribution may ship a package of the same name
