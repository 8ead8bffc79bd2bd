"""What the scripts say when something is not as they need it; the happy path is CI's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def call(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script from a foreign directory."""
    return subprocess.run(
        [str(word) for word in words],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree that holds what scripts/install looks at, and no virtual environment."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/install", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def fake_python(path: Path, body: str) -> Path:
    """A program that stands where Python is looked for."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_install_names_the_python_it_needs(project: Path) -> None:
    """An old Python gets one sentence that says what was found and what to do."""
    old = fake_python(project / "old", 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi')
    done = call(project / "scripts" / "install", PYTHON=str(old))
    assert (1, "") == (done.returncode, done.stdout)
    assert "install: goodput needs Python 3.11 or newer, found Python 3.9.2" in done.stderr
    assert 1 == done.stderr.count("\n")


def test_install_names_the_package_that_debian_splits_off(project: Path) -> None:
    """Debian's Python comes without venv: say which package brings it."""
    bare = fake_python(project / "bare", '[ "$1" != -m ]')
    done = call(project / "scripts" / "install", PYTHON=str(bare))
    assert 1 == done.returncode
    assert "apt-get install python3-venv" in done.stderr


def test_install_refuses_an_unknown_extra(project: Path) -> None:
    """A typing mistake must not install something else."""
    done = call(project / "scripts" / "install", "tests")
    assert 2 == done.returncode
    assert "unknown extra 'tests'" in done.stderr
    assert not (project / ".venv").exists()


def test_install_does_nothing_the_second_time(project: Path) -> None:
    """The stamp holds while setup.cfg is what was installed, and not longer."""
    python = project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    fake_python(python, "exit 0")
    summed = 'cat "$0/setup.cfg" "$0/pyproject.toml" <(echo "$0") | cksum > "$0/.venv/.installed"'
    assert 0 == call("bash", "-c", summed, project).returncode
    again = call(project / "scripts" / "install")
    assert (0, "", "") == (again.returncode, again.stdout, again.stderr)
    with open(project / "setup.cfg", "a") as file:
        file.write("# changed\n")
    assert "installing goodput" in call(project / "scripts" / "install").stdout


def test_bench_lists_what_there_is() -> None:
    """Without a name, or with a wrong one, the benchmarks are listed with their purpose."""
    done = call(ROOT / "scripts" / "bench", "nothing")
    assert 2 == done.returncode
    assert "there is no benchmark 'nothing'" in done.stderr
    assert "  footprint: What the product costs" in done.stderr
    assert "steady_server" not in done.stderr
