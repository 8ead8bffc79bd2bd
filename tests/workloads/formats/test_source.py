"""Lines of any text file, and clear errors for what is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from workloads.errors import WorkloadError
from workloads.formats import source


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_any_line_end(tmp_path: Path, end: bytes) -> None:
    """LF, CRLF and a lone CR end a line; blank lines count but are not given; the last line needs no end."""
    path = written(tmp_path, end.join([b"\xef\xbb\xbfa", b"", b" \t", b"b\xe2\x80\xa8c"]))
    assert [(1, "a"), (4, "b\u2028c")] == list(source.lines(path))


def test_lines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a block of reading ends makes no difference."""
    path = written(tmp_path, b"ab\r\n\r\ncdef\r\ng")
    for size in range(1, 15):
        monkeypatch.setattr(source, "_BLOCK", size)
        assert [(1, "ab"), (3, "cdef"), (4, "g")] == list(source.lines(path))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PowerShell and spreadsheets write it, in gzip too, wherever a block of reading ends."""
    text = "a\r\n\u2028\U0001f600b\n".encode(encoding)
    for size in (3, 8, 1 << 19):
        monkeypatch.setattr(source, "_BLOCK", max(size, 4))
        for content in (text, gzip.compress(text)):
            assert [(1, "a"), (2, "\u2028\U0001f600b")] == list(source.lines(written(tmp_path, content)))


def test_gzip_is_told_by_content(tmp_path: Path) -> None:
    """A gzip file is unpacked whatever its name."""
    assert [(1, "a"), (2, "b")] == list(source.lines(written(tmp_path, gzip.compress(b"a\nb"))))


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    """Unpacking stops at the limit."""
    with pytest.raises(WorkloadError) as caught:
        list(source.lines(written(tmp_path, gzip.compress(b"x\n" * 500_000)), max_bytes=100_000))
    assert caught.value.code == "too_large"


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than any trace's ends the reading."""
    monkeypatch.setattr(source, "MAX_LINE", 10)
    with pytest.raises(WorkloadError) as caught:
        list(source.lines(written(tmp_path, b"a\n" + b"x" * 100)))
    assert caught.value.code == "too_large"
    assert "line 2" in caught.value.message


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"TIMESTAMP,\xe9\n", "encoding"),
        (b"\xff\xfeT\x00\x00\xd8", "encoding"),
        (b"PK\x03\x04 and more", "encoding"),
        (b"BZh9", "encoding"),
        (b"PAR1", "encoding"),
        (gzip.compress(b"a,b\n" * 1000, mtime=0)[:-12], "gzip"),
        (b"\x1f\x8bnonsense", "gzip"),
    ],
)
def test_what_is_no_text(tmp_path: Path, content: bytes, code: str) -> None:
    """Other encodings and damaged gzip files are named as such."""
    with pytest.raises(WorkloadError) as caught:
        list(source.lines(written(tmp_path, content)))
    assert code == caught.value.code
    assert str(tmp_path) in caught.value.message


def test_no_file(tmp_path: Path) -> None:
    """A missing file and a folder are errors of the user, not tracebacks."""
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(WorkloadError) as caught:
            list(source.lines(path))
        assert caught.value.code == "file"
