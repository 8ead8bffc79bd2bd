"""One function per chart; each returns an Altair specification and nothing else."""

from __future__ import annotations
