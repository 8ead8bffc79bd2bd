"""Pairs of samples for tests of the gate: values per run, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metrics.gate.sample import Sample


def samples(**columns: Sequence[float]) -> list[Sample]:
    """A sample per position; `ttft_p90=[...]` becomes the key ttft.p90."""
    names = {name.replace("_p", ".p") if "_p" in name and name[-2:].isdigit() else name: name for name in columns}
    count = len(next(iter(columns.values())))
    return [Sample(values={key: columns[name][i] for key, name in names.items()}) for i in range(count)]


def paired(baseline: dict[str, Sequence[float]], candidate: dict[str, Sequence[float]]) -> list[tuple[Sample, Sample]]:
    """Run i of one side with run i of the other."""
    return list(zip(samples(**baseline), samples(**candidate), strict=True))


def identified(sample: Sample, **facts: Any) -> Sample:
    """The sample with other facts."""
    import msgspec

    return msgspec.structs.replace(sample, **facts)
