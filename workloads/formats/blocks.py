"""How many tokens a prompt block has: said by the format or the user, and held against ids and prompt lengths.

A prompt of p tokens that names k blocks of b tokens each has (k - 1) b < p, or b was another number. Where the blocks
cover all of the prompt, p <= k b as well, and many rows leave next to one b.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.formats.times import ELSEWHERE
from workloads.reading import Decided
from workloads.trace import Trace

_ODD_ROWS = 0.05  # share of rows that may name too many
_LEAST_ROWS = 3  # with several ids each, before full cover is believed against a format
_SIZES = tuple(2**power for power in range(15))  # every server's blocks are powers of two


class Fit(NamedTuple):
    """The sizes from `low` to `high` tokens (None: no bound) that explain all rows."""

    low: int
    high: int | None
    several: int  # rows with more than one id

    @property
    def usual(self) -> int | None:
        """The only power of two among them."""
        sizes = [size for size in _SIZES if self.low <= size <= (self.high or 0)]
        return sizes[0] if len(sizes) == 1 else None

    def __str__(self) -> str:
        return f"{self.low} or more" if self.high is None else f"{self.low} to {self.high}"


def decided(path: Path, trace: Trace, size: int | None, by: Decided) -> tuple[int, Decided]:
    """The size of the trace's blocks; one that contradicts the ids, or that nothing tells, raises `block_tokens`."""
    assert trace.prefix is not None
    ids = np.diff(trace.prefix.start)
    rows = np.flatnonzero(ids)
    prompt, ids = trace.prompt_tokens[rows].astype(np.int64), ids[rows]
    fit = _fit(prompt, ids)
    if size is None:
        return _of_evidence(path, fit), "evidence"
    over = np.flatnonzero((ids - 1) * size >= prompt)
    if len(over) > _ODD_ROWS * len(rows):
        at = over[0]
        line = "" if trace.line is None else f"line {trace.line[rows[at]]}: "
        raise _contradicted(path, size, by, fit, f"{line}{ids[at]} ids for {prompt[at]} tokens")
    if by == "format" and fit is not None and fit.usual and fit.several >= _LEAST_ROWS and size < fit.low:
        raise _contradicted(path, size, by, fit, f"the ids of all {len(rows)} rows cover their prompts at {fit}")
    return size, by


def _fit(prompt: NDArray[np.int64], ids: NDArray[np.int64]) -> Fit | None:
    """The sizes at which every row's blocks cover its prompt: the last block cut, or (else) left out; None for none."""
    several = ids > 1
    count = int(several.sum())
    low = int((-(-prompt // ids)).max())
    high = int(((prompt[several] - 1) // (ids[several] - 1)).min()) if count else None
    if high is None or low <= high:
        return Fit(low, high, count)
    low, high = int((prompt // (ids + 1)).max()) + 1, int((prompt // ids).min())
    return Fit(low, high, count) if low <= high else None


def _of_evidence(path: Path, fit: Fit | None) -> int:
    if fit is not None and fit.usual:
        return fit.usual
    found = "no size explains all rows" if fit is None else f"{fit} tokens would do"
    raise WorkloadError(
        f"Nothing says how many tokens a prompt block of {path} has, and its ids do not tell: {found}.",
        code="block_tokens",
        hint=f"Say it: --block-tokens N. {ELSEWHERE}",
    )


def _contradicted(path: Path, size: int, by: Decided, fit: Fit | None, what: str) -> WorkloadError:
    option = f"--block-tokens {(fit.usual if fit is not None else None) or 'N'}"
    fitting = "" if fit is None else f", and {fit} tokens a block fit"
    return WorkloadError(
        f"{path} does not have prompt blocks of {size} tokens ({by}): {what}{fitting}.",
        code="block_tokens",
        hint=f"Say how many tokens a block has: {option}. {ELSEWHERE}",
    )
