"""Words that a model's own tokenizer counts as one token each, so that a text of n of them has exactly n tokens.

Needs the `tokenizers` package (the extra [tokenizers]) and the model's tokenizer.json; nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from workloads.errors import WorkloadError
from workloads.words import WORDS

ENOUGH_WORDS, LEAST_WORDS = 1024, 64
_TRIAL = 400  # words whose count is checked as a whole text
_LEAST_LETTERS = 3


@lru_cache(maxsize=4)
def words_of(path: str) -> tuple[str, ...]:
    """The words, the same list in every process; WorkloadError `tokenizer` when the file gives too few."""
    tokenizer = _loaded(path)
    fitting = [word for word in dict.fromkeys([*WORDS, *_vocabulary(tokenizer)]) if _is_one(tokenizer, word)]
    words = tuple(fitting[:ENOUGH_WORDS])
    trial = [words[(7 * i) % len(words)] for i in range(_TRIAL)] if words else []
    if len(words) < LEAST_WORDS or _count(tokenizer, " ".join(trial)) != _TRIAL:
        raise WorkloadError(
            f"The tokenizer {path} has {len(words)} words that stay one token each in a text, "
            f"{LEAST_WORDS} are needed.",
            code="tokenizer",
            hint="Leave --tokenizer out; prompts are then counted in words.",
        )
    return words


def file_hash(path: str) -> str:
    """SHA-256 of a tokenizer file; WorkloadError `file` when it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise WorkloadError(
            f"The tokenizer {path} cannot be read: {error.strerror or error}.",
            code="file",
            hint="Give the model's tokenizer.json.",
        ) from error


def count_tokens(path: str, text: str) -> int:
    """How many tokens a text has, special tokens left out."""
    return _count(_loaded(path), text)


@lru_cache(maxsize=4)
def _loaded(path: str) -> Any:
    file_hash(path)
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError as error:
        raise WorkloadError(
            "Text of an exact length needs the tokenizers package.",
            code="tokenizer",
            hint="pip install 'slo-goodput[tokenizers]'",
        ) from error
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception for a bad file
        raise WorkloadError(
            f"{path} is no tokenizer file: {error}.", code="tokenizer", hint="Give the model's tokenizer.json."
        ) from error


def _vocabulary(tokenizer: Any) -> Iterable[str]:
    """Plain words among the tokens, by id: the same for everybody who has the file."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    for piece, _ in sorted(vocabulary.items(), key=lambda item: item[1]):
        word = piece.lstrip("Ġ▁")
        if len(word) >= _LEAST_LETTERS and word.isascii() and word.isalpha() and word.islower():
            yield word


def _is_one(tokenizer: Any, word: str) -> bool:
    """One token at the start of a text and one after a space."""
    first: Sequence[int] = tokenizer.encode(word, add_special_tokens=False).ids
    return len(first) == 1 and _count(tokenizer, f"{word} {word}") == 2


def _count(tokenizer: Any, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)
