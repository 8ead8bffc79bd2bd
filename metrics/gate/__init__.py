"""The regression gate: rules, pairs of runs, looks, the noise floor, and the verdict; pure functions (docs/gate.md)."""

from __future__ import annotations
