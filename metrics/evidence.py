"""Where what came back contradicts the result: counts against text, against events, against each other and the plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metrics.findings import Finding, part, warning, what
from metrics.latency import Mask, is_ok, is_streamed, select
from metrics.records import EventTimes, Flag, RecordTable, Rows, requests_by_address
from metrics.runinfo import RunInfo

PROMPT_COUNT_ERROR = 0.01
START_TOKENS = 1  # that a server may put before token ids, the same for all prompts
PREFIX_CACHE_SHARE = 0.01  # of the prompt tokens: a start token that all prompts share is no finding
FEWER_THAN_EVENTS = 0.10  # a text cut anew on the way may have some more events than tokens
FEWER_THAN_EVENTS_TOKENS = 2
LEAST_PER_ADDRESS = 5  # requests, so that no round of them leaves one out by chance
FIRST_EVENT_EFFECT = 0.01  # of a TPOT


def contradictions(table: RecordTable, of: Mask, info: RunInfo) -> Iterator[Finding]:
    """Each piece of evidence that the client holds, over the rows in `of`."""
    rows = select(table.rows, of)
    yield from _unknown_text(rows, sorted({key for worker in table.workers for key in worker.unknown_text_keys}))
    yield from _usage(rows)
    if table.events is not None:
        yield from _first_event(table.rows, table.events, of)
    yield from _prompt_counts(rows, info)
    yield from _prefix_cache(rows, info)
    yield from _addresses(requests_by_address(table.workers))


def _unknown_text(rows: Rows, keys: list[str]) -> Iterator[Finding]:
    flagged = _flagged(rows, Flag.UNKNOWN_TEXT_KEY)
    if flagged.any():
        named = ", ".join(keys) or "keys that were not recorded"
        yield warning(
            "unknown_text_key",
            f"{part(flagged)} had text under {named}: counted as tokens, the key is unknown to goodput.",
            keys=named,
            **what(rows, flagged),
        )


def _addresses(requests: dict[str, int]) -> Iterator[Finding]:
    """Parts of the deployment that the load never reached, where there was enough of it to reach all."""
    idle = sorted(address for address, count in requests.items() if not count)
    total = sum(requests.values())
    if idle and total >= LEAST_PER_ADDRESS * len(requests):
        yield warning(
            "address_not_loaded",
            f"{len(idle)} of the target's {len(requests)} addresses got none of {total} requests: {', '.join(idle)}.",
            count=len(idle),
            addresses=len(requests),
            requests=total,
        )


def _usage(rows: Rows) -> Iterator[Finding]:
    """The server's count of output tokens against what it sent."""
    over = _flagged(rows, Flag.USAGE_OVER_TEXT)
    if over.any():
        said, events = (int(rows[name][over].sum()) for name in ("output_tokens", "token_events"))
        yield warning(
            "usage_over_text",
            f"{part(over)} have more tokens in usage than their text can hold ({said} in {events} token events): some "
            "were never streamed, or stood where goodput does not look. TPOT is over those that came.",
            said=said,
            events=events,
            **what(rows, over),
        )
    estimated = (rows["flags"] & Flag.TOKENS_ESTIMATED) != 0
    most = rows["output_tokens"] * (1 + FEWER_THAN_EVENTS) + FEWER_THAN_EVENTS_TOKENS
    under = is_ok(rows) & is_streamed(rows) & ~estimated & (rows["token_events"] > most)
    if under.any():
        said, events = (int(rows[name][under].sum()) for name in ("output_tokens", "token_events"))
        yield warning(
            "usage_under_events",
            f"{part(under)} have fewer tokens in usage than events with text ({said} in {events} token events): usage "
            "leaves some out, or a token was cut into several events. TPOT is over the tokens of usage.",
            said=said,
            events=events,
            **what(rows, under),
        )
    torn = _flagged(rows, Flag.USAGE_CONTRADICTION)
    if torn.any():
        yield warning(
            "usage_contradiction",
            f"{part(torn)} have a usage whose total_tokens is the sum of its parts by no provider's convention.",
            **what(rows, torn),
        )


def _first_event(rows: Rows, events: EventTimes, of: Mask) -> Iterator[Finding]:
    """TPOT divides by tokens - 1; where the first event carried k of them, the time is that of tokens - k."""
    several = np.flatnonzero(of & _flagged(rows, Flag.FIRST_EVENT_TOKENS))
    first = events.tokens[events.start[:-1][several]].astype(np.float64)
    streamed = (rows["output_tokens"] - rows["hidden_tokens"])[several]
    low = (first - 1) / np.maximum(streamed - 1, 1)
    if not len(low) or low.max() < FIRST_EVENT_EFFECT:
        return
    yield warning(
        "first_event_tokens",
        f"The first event of {len(several)} of {int(of.sum())} requests carried several tokens ({first.mean():.3g} in "
        f"the mean): their TPOT reads {np.median(low) * 100:.3g} % too low in the median, {low.max() * 100:.3g} % at "
        "most.",
        count=len(several),
        tokens_mean=float(first.mean()),
        too_low_median=float(np.median(low)),
        too_low_max=float(low.max()),
    )


def _prompt_counts(rows: Rows, info: RunInfo) -> Iterator[Finding]:
    told = is_ok(rows) & (rows["served_prompt_tokens"] >= 0)
    planned, served = (rows[name][told].astype(np.int64) for name in ("prompt_tokens", "served_prompt_tokens"))
    off = int(served.sum()) / max(int(planned.sum()), 1) - 1
    if planned.sum() and abs(off) > PROMPT_COUNT_ERROR:
        yield warning(
            "prompt_count_mismatch",
            f"The server counted {served.sum()} prompt tokens where {planned.sum()} were planned ({off:+.1%}).",
            planned=int(planned.sum()),
            served=int(served.sum()),
        )
        return
    extra = served - planned
    if info.server.get("prompt_form") != "ids" or not extra.any() or _start_token(extra):
        return
    wrong = extra != 0
    yield warning(
        "prompt_count_mismatch",
        f"{int(wrong.sum())} of {len(wrong)} prompts were sent as token ids and counted otherwise by the server, by "
        f"{int(extra.min()):+d} to {int(extra.max()):+d} tokens.",
        planned=int(planned.sum()),
        served=int(served.sum()),
        count=int(wrong.sum()),
    )


def _start_token(extra: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> bool:
    """All prompts have the same little more."""
    return bool((extra == extra[0]).all() and 0 < extra[0] <= START_TOKENS)


def _prefix_cache(rows: Rows, info: RunInfo) -> Iterator[Finding]:
    hits = info.server.get("prefix_cache_hits")
    planned = int(rows["prompt_tokens"].sum())
    if isinstance(hits, int | float) and hits > PREFIX_CACHE_SHARE * planned:
        yield warning(
            "prefix_cache",
            f"The server took {hits:g} of {planned} prompt tokens ({hits / max(planned, 1):.0%}) from its prefix "
            "cache: TTFT is better than it would be with fresh prompts.",
            hits=hits,
        )


def _flagged(rows: Rows, flag: Flag) -> Mask:
    return np.asarray(is_ok(rows) & ((rows["flags"] & flag) != 0))
