"""A server's own count of one answer, under whatever names it says it, and what follows from it.

Names are compared without case, `_` and `-`, so `completion_tokens` and `completionTokens` are one. What is found:
docs/replay.md, "Who counts how".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

MAX_TOKENS = 2**31 - 1  # what a column holds; a count beyond it is damage
MAX_DEPTH = 4

_COUNTS = {
    "completion": ("completiontokens", "outputtokens", "candidatestokencount", "outputtokencount", "generatedtokens"),
    "prompt": ("prompttokens", "inputtokens", "prompttokencount", "inputtokencount"),
    "total": ("totaltokens", "totaltokencount"),
}
_USUAL = {"prompt_tokens", "completion_tokens", "total_tokens"}
_MEANINGS = {name: count for count, names in _COUNTS.items() for name in names}
# What a name about a cache says when it is not the number of prompt tokens found there.
_NO_HITS = ("miss", "cost", "price", "ratio", "rate", "time", "percent", "latency", "byte", "detail")
_WRITTEN = ("creat", "writ", "stor")
_APART = ("cachereadinputtokens", "cachecreationinputtokens")


@dataclass(slots=True)
class Usage:
    """Counts as last said, -1 (0 for the parts of others) where nothing was said."""

    completion: int = -1
    prompt: int = -1
    total: int = -1
    reasoning: int = 0
    cached: int = 0  # of the prompt, which the server did not compute again
    written: int = 0  # of the prompt, into the server's cache
    rejected: int = 0  # proposed by the caller, counted as output, in no answer
    cache_apart: bool = False  # by its names the prompt's count leaves the cached tokens out (Anthropic)

    @staticmethod
    def of(completion: int | None, prompt: int | None) -> Usage:
        """Only these two counts, None where one was not said."""
        return Usage(-1 if completion is None else completion, -1 if prompt is None else prompt)

    def update(self, said: Usage) -> None:
        """Take over what `said` says; damaged counts say nothing."""
        if 0 <= said.completion <= MAX_TOKENS:
            self.completion, self.total = said.completion, -1
        if 0 <= said.prompt <= MAX_TOKENS:
            self.prompt = said.prompt
        if 0 < said.total <= MAX_TOKENS:
            self.total = said.total
        if 0 < said.reasoning <= MAX_TOKENS:
            self.reasoning = said.reasoning
        if 0 < said.cached <= MAX_TOKENS:
            self.cached = said.cached
        if 0 < said.written <= MAX_TOKENS:
            self.written = said.written
        if 0 < said.rejected <= MAX_TOKENS:
            self.rejected = said.rejected
        self.cache_apart |= said.cache_apart

    def output_tokens(self, events: int) -> int:
        """Output tokens, reasoning among them, of an answer of so many token events; -1 where nothing was said."""
        return min(self.completion + self.reasoning, MAX_TOKENS) if self._reasoning_apart(events) else self.completion

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, those from the cache among them; -1 where nothing was said."""
        if self.prompt < 0 or not (self.cached or self.written):
            return self.prompt
        found = [prompt for prompt in self._prompts for output in self._outputs if prompt + output == self.total]
        if found:
            return min(found)
        return min(self._prompts[-1], MAX_TOKENS) if self.cache_apart or self.cached > self.prompt else self.prompt

    @property
    def contradicts_itself(self) -> bool:
        """Whether the total is the sum of the parts by no convention."""
        if self.total <= 0 or self.prompt < 0 or self.completion < 0 or self.total == self.prompt + self.completion:
            return False
        return not any(self.total - output in self._prompts for output in self._outputs)

    @property
    def _outputs(self) -> tuple[int, int]:
        return self.completion, self.completion + self.reasoning

    @property
    def _prompts(self) -> tuple[int, int, int]:
        return self.prompt, self.prompt + self.cached, self.prompt + self.cached + self.written

    def _reasoning_apart(self, events: int) -> bool:
        """Whether reasoning stands beside `completion` and not in it: the total says so, else what is possible does."""
        if self.completion < 0 or not self.reasoning:
            return False
        inside, apart = self._outputs
        if self.total > 0 and self.prompt >= 0:
            fits_inside, fits_apart = self.total - inside in self._prompts, self.total - apart in self._prompts
            if fits_inside != fits_apart:
                return fits_apart
        return self.reasoning > inside or abs(events - apart) < abs(events - inside)


def read_usage(counts: dict[str, object]) -> Usage:
    """What an object of counts says; numbers that are no counts say nothing."""
    if counts.keys() == _USUAL and all(type(count) is int for count in counts.values()):
        return Usage(counts["completion_tokens"], counts["prompt_tokens"], counts["total_tokens"])  # type: ignore[arg-type]
    usage = Usage()
    _collect(usage, counts, 0)
    return usage


def _collect(usage: Usage, counts: dict[str, object], depth: int) -> None:
    for name, value in counts.items():
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                _collect(usage, value, depth + 1)
            continue
        meaning = _meaning(name)
        count = integer(value) if meaning else None
        if count is None or count < 0:
            continue
        if meaning not in _COUNTS:
            setattr(usage, meaning, max(getattr(usage, meaning), count))  # told twice is not twice as many
            usage.cache_apart |= _fold(name) in _APART and "inputtokens" in map(_fold, counts)
        elif depth == 0 and getattr(usage, meaning) < 0:
            setattr(usage, meaning, count)


@lru_cache(maxsize=1024)
def _meaning(name: str) -> str:
    """The field of `Usage` that a count of this name fills, "" for none."""
    folded = _fold(name)
    if folded in _MEANINGS:
        return _MEANINGS[folded]
    if "cach" in folded:
        if any(word in folded for word in _NO_HITS):
            return ""
        if any(word in folded for word in _WRITTEN):
            return "written"
        return "cached" if any(word in folded for word in ("hit", "read", "cached")) else ""
    if "token" not in folded:
        return ""
    if any(word in folded for word in ("reasoning", "thought", "thinking")):
        return "reasoning"
    return "rejected" if "rejected" in folded else ""


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def integer(value: object) -> int | None:
    """A whole number, also one written as 2.0; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None
