"""Text in, text out.

With a `tokenizer.json` in the model's folder its own tokens; else bytes: token 0-255 is that byte, and every other one
is shown as a word, so that no token of an answer is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from loadtest.backends.server.frames import WORDS
from loadtest.errors import UsageError

if TYPE_CHECKING:
    import tokenizers

_CONTEXT = 8  # tokens before a new one that decide how it is written
_UNFINISHED = "\ufffd"


class Tokenizer(Protocol):
    """Turns text into token ids, and a request's tokens back into text, one by one."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids; with those that every text begins or ends with unless they are in it already."""

    def writer(self) -> Callable[[int], str]:
        """A function that gives the text each further token adds, maybe none."""


class ByteTokenizer:
    """Bytes, for models with random weights."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:  # noqa: ARG002
        return list(text.encode())

    def writer(self) -> Callable[[int], str]:
        return lambda token: chr(token) if 32 <= token < 127 else WORDS[token % len(WORDS)]


class FileTokenizer:
    """A `tokenizer.json`."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise UsageError(
                f"{path} needs the package tokenizers", hint="pip install tokenizers", code="no_tokenizers"
            ) from None
        try:
            self._loaded: tokenizers.Tokenizer = Loaded.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise UsageError(f"{path} is no tokenizer: {error}", code="bad_tokenizer") from None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return list(self._loaded.encode(text, add_special_tokens=special).ids)

    def writer(self) -> Callable[[int], str]:
        return _Incremental(lambda ids: str(self._loaded.decode(list(ids)))).add


class _Incremental:
    """A token may be part of a character, and its text may depend on those before: decode a window, keep the rest."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._written = 0  # tokens whose text is out

    def add(self, token: int) -> str:
        self._ids.append(token)
        context = self._ids[: self._written]
        text = self._decode(self._ids)
        if text.endswith(_UNFINISHED):
            return ""
        new = text[len(self._decode(context)) :]
        self._ids = self._ids[-_CONTEXT:]
        self._written = len(self._ids)
        return new


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model's folder, bytes when it has none."""
    path = Path(model) / "tokenizer.json"
    return FileTokenizer(path) if path.exists() else ByteTokenizer()
