"""The secret of master and workers: made once, read strictly, never printed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.swarm.token import Token, is_loopback


def test_both_sides_derive_the_same_keys() -> None:
    """From the same text the same two pairs, from another one others; the sides differ from each other."""
    one, same, other = Token("a" * 16), Token("a" * 16), Token("b" * 16)
    assert (one.master, one.worker) == (same.master, same.worker)
    assert 4 == len({one.master, one.worker, other.master, other.worker})


def test_a_token_does_not_print() -> None:
    """In no traceback, log or report."""
    token = Token.fresh()
    assert token.value not in f"{token!r} {token}"
    assert len(token.value) >= 40


def test_a_master_makes_the_file_once(tmp_path: Path) -> None:
    """Readable by its user only; the next run, and the workers, read the same."""
    file = tmp_path / "token"
    made = Token.read_or_make(file)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert made.value == Token.read_or_make(file).value == Token.read(file).value


@pytest.mark.parametrize("content", [b"", b"short", b"two words of enough length", b"\xff" * 40, b"x" * 5000])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    """Nothing that could be guessed, and no other file taken by mistake; the content is not repeated."""
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="token file") as caught:
        Token.read(file)
    assert "short" not in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A worker makes none: it would be another than the master's."""
    with pytest.raises(UsageError, match="nowhere"):
        Token.read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="cannot be made"):
        Token.read_or_make(tmp_path / "no folder" / "token")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("*", False), ("", False), ("::", False), ("10.0.0.4", False), ("master", False)),
    ],
)
def test_only_loopback_is_loopback(host: str, expected: bool) -> None:
    """All interfaces, and any name that a resolver may turn, are not."""
    assert expected == is_loopback(host)
