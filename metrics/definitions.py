"""The same run by other tools' definitions, so that two results can be laid side by side.

Which tool divides by what was read from its source and its output (docs/gate.md, Compare); only what our rows hold is
recomputed. Tokens are the server's own count wherever a tool would tokenise the text again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.latency import Seconds, counted, is_ok, is_streamed, tpot_s, ttft_from_sent_s, ttft_s
from metrics.records import Rows
from metrics.rundir import Run
from metrics.stats import Stat, describe


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity as some tools define it; seconds, or tokens for `output tokens`."""

    quantity: str
    formula: str
    used_by: str
    stat: Stat | None


def _after_sent(column: str) -> Callable[[Rows], Seconds]:
    return lambda rows: np.asarray(rows[column] - rows["sent_s"])


def _to_the_end(rows: Rows) -> Seconds:
    return _per(rows["done_s"] - rows["first_token_s"], rows["output_tokens"] - 1)


def _over_all_tokens(rows: Rows) -> Seconds:
    return _per(rows["last_token_s"] - rows["first_token_s"], rows["output_tokens"])


def _with_ttft(rows: Rows) -> Seconds:
    return _per(rows["done_s"] - rows["sent_s"], rows["output_tokens"])


def _per(seconds: Seconds, tokens: NDArray[np.int32]) -> Seconds:
    return np.asarray(seconds / np.where(tokens > 0, tokens, np.nan))


def _tokens(column: str) -> Callable[[Rows], Seconds]:
    return lambda rows: rows[column].astype(np.float64)


DEFINITIONS: Final = (
    ("TTFT", "first token - scheduled", "goodput", ttft_s),
    ("TTFT", "first token - sent", "AIPerf, GuideLLM, vLLM (whose chat counts a role chunk)", ttft_from_sent_s),
    ("TTFT", "headers - sent", "Locust's response time of a streamed answer", _after_sent("headers_s")),
    ("TPOT", "(last token - first) / (tokens - 1)", "goodput, DistServe's evaluation", tpot_s),
    ("TPOT", "(end of answer - first token) / (tokens - 1)", "vLLM, SGLang, AIPerf (as ITL)", _to_the_end),
    ("TPOT", "(last token - first) / tokens", "DistServe's simulator", _over_all_tokens),
    ("TPOT", "(end of answer - sent) / tokens", "GuideLLM (TPOT), LLMPerf (inter-token latency)", _with_ttft),
    ("output tokens", "usage of the server, else token events", "goodput, GuideLLM", _tokens("output_tokens")),
    ("output tokens", "token events", "LLMPerf (chunks)", _tokens("token_events")),
    ("output tokens", "what was asked for", "SGLang without usage", _tokens("max_tokens")),
)


def by_definition(run: Run) -> list[Definition]:
    """Every definition over the streamed answers of a run that came through after warm-up."""
    rows = run.table.rows
    mine = rows[counted(rows, run.info.stopped_at_s) & is_ok(rows) & is_streamed(rows)]
    return [
        Definition(quantity=quantity, formula=formula, used_by=used_by, stat=describe(values(mine)))
        for quantity, formula, used_by, values in DEFINITIONS
    ]
