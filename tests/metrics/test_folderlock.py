"""Who may write into a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metrics import folderlock, rundir
from metrics.errors import MetricsError

ROOT = Path(__file__).parents[2]
HOLD = "import sys; from pathlib import Path; from metrics import rundir; {}; sys.stdout.flush(); sys.stdin.readline()"


@contextmanager
def somebody_else(folder: Path) -> Iterator[None]:
    """A lock by another open file, which to the kernel is another owner."""
    descriptor = os.open(folder / folderlock.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, b"77 on elsewhere\n")
    try:
        yield
    finally:
        os.close(descriptor)


def other_process(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD.format(code)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_held_folder_is_refused_by_name(tmp_path: Path) -> None:
    """The sentence says who has it; when that one is gone the folder is free, whatever file it left."""
    with somebody_else(tmp_path), pytest.raises(MetricsError, match="process 77 on elsewhere") as caught:
        rundir.create(tmp_path)
    assert "output_in_use" == caught.value.code
    assert (tmp_path / folderlock.LOCK).exists()
    rundir.create(tmp_path)
    rundir.release(tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_one_process_may_ask_again(tmp_path: Path) -> None:
    """Also for folders inside its own, which need no lock, and after its lock file was cleared away."""
    rundir.create(tmp_path / "a")
    rundir.create(tmp_path / "a")
    rundir.create(tmp_path / "a" / "b")
    assert [] == list((tmp_path / "a" / "b").iterdir())
    (tmp_path / "a" / "b").rmdir()
    (tmp_path / "a" / folderlock.LOCK).unlink()
    rundir.create(tmp_path / "a")
    assert (tmp_path / "a" / folderlock.LOCK).exists()
    rundir.release(tmp_path / "a")
    rundir.release(tmp_path / "a")


def test_a_lock_file_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    """A folder from a stranger may hold a link: what it names is not emptied."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / folderlock.LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(MetricsError, match="cannot write"):
        folderlock.hold(tmp_path / "run")
    assert "mine" == (tmp_path / "precious").read_text()


@pytest.mark.parametrize(
    ("owner", "free"),
    [
        (f"{os.getppid()} on {platform.node()}", False),
        (f"{2**22 + 5} on {platform.node()}", True),
        ("1 on elsewhere", True),
        ("", True),
        ("x", True),
    ],
)
def test_without_locks_the_named_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str, free: bool
) -> None:
    """On a file system without flock a living process of this machine keeps its folder, anybody else does not."""
    (tmp_path / folderlock.LOCK).write_text(owner)

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    if free:
        rundir.create(tmp_path)
        rundir.release(tmp_path)
    else:
        with pytest.raises(MetricsError, match="is in use"):
            rundir.create(tmp_path)


def test_three_processes_at_one_instant_get_three_folders(tmp_path: Path) -> None:
    """By the name that none of them chose; and the folder that all of them ask for is one's alone, until it dies."""
    base = tmp_path / "runs" / "2026-01-31T12-00-00_x"
    line = f"print(rundir.create_numbered(Path({str(base)!r})).name)"
    processes = [other_process(line) for _ in range(3)]
    try:
        names = sorted((process.stdout.readline().strip()) for process in processes)  # type: ignore[union-attr]
        assert [base.name, f"{base.name}-2", f"{base.name}-3"] == names
        with pytest.raises(MetricsError, match="in use"):
            rundir.create(base)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    rundir.create(base)
    rundir.release(base)


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """And no number makes it better."""
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(MetricsError) as caught:
        rundir.create_numbered(tmp_path / "runs" / "x")
    assert "output_exists" == caught.value.code
