"""A file that grows on a disk that comes and goes."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics.appender import Appender, write_at


class Disk:
    """Stands for os.pwrite: takes at most `room` bytes more, then answers with `error`."""

    def __init__(self, patch: pytest.MonkeyPatch, room: int, error: int = errno.ENOSPC) -> None:
        self.room, self.error = room, error
        self._pwrite = os.pwrite
        patch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        if self.room <= 0 and len(data):
            raise OSError(self.error, os.strerror(self.error))
        written = self._pwrite(descriptor, data[: self.room], offset)
        self.room -= written
        return written


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process may grow beyond that: a fault of the kernel's own, for any user."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_what_the_disk_did_not_take_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Nothing is raised, the error is told while it lasts, and afterwards the file is whole."""
    disk = Disk(monkeypatch, room=4, error=error)
    file = Appender(tmp_path / "f")
    file.add(b"abcdef")
    assert not file.flush()
    assert (b"abcd", 2) == ((tmp_path / "f").read_bytes(), file.waiting_bytes)
    assert error == getattr(file.error, "errno", 0)
    file.add(b"gh")
    assert not file.flush()
    disk.room = 100
    assert file.flush()
    assert (b"abcdefgh", None) == ((tmp_path / "f").read_bytes(), file.error)
    file.close()


def test_the_kernels_own_limit(tmp_path: Path) -> None:
    """A write that crosses the limit is cut short, the next one fails, and both are made good."""
    file = Appender(tmp_path / "f")
    file.add(bytes(range(200)))
    with files_end_at(120):
        assert not file.flush()
        assert not file.flush()
    assert (120, 80) == ((tmp_path / "f").stat().st_size, file.waiting_bytes)
    assert file.flush()
    assert bytes(range(200)) == (tmp_path / "f").read_bytes()
    file.close()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 9)), max_size=20))
def test_the_file_is_always_a_beginning_of_what_was_added(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[bytes, int]]
) -> None:
    """However the room comes and goes, byte by byte."""
    path = tmp_path_factory.mktemp("disk") / "f"
    added = b""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch, room=0)
        file = Appender(path)
        for data, room in script:
            disk.room = room
            file.add(data)
            added += data
            file.flush()
            assert added.startswith(path.read_bytes())
            assert len(added) == path.stat().st_size + file.waiting_bytes
        disk.room = 1000
        assert file.flush()
    file.close()
    assert added == path.read_bytes()


def test_a_flush_is_bounded(tmp_path: Path) -> None:
    """What waited for long is handed over in pieces, so that no loop stands still."""
    file = Appender(tmp_path / "f")
    file.add(b"abcdef")
    assert not file.flush(most=4)
    assert (None, b"abcd") == (file.error, (tmp_path / "f").read_bytes())
    assert file.flush(most=4)
    file.close()


def test_a_write_of_nothing_is_an_error_and_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some network file systems answer."""
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    taken, error = write_at(0, b"abc", 0)
    assert (0, errno.ENOSPC) == (taken, getattr(error, "errno", 0))
