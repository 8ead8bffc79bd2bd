"""What to send, and when: traces, generators, prompts, schedules."""

from __future__ import annotations

PROJECT = "slo-goodput"  # start-up checks it: another distribution may ship a package of the same name
