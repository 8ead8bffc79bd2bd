"""Designs for a workload and an SLO, searched on the simulator."""

from __future__ import annotations
