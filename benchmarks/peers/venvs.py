"""A virtual environment per tool, in a cache folder that the user names: never in the checkout, never shared."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.peer import Peer

INSTALL_LIMIT_S = 1800


class UnavailableError(Exception):
    """A tool cannot be had here; the message says why."""


def interpreter(peer: Peer, cache: Path) -> Path:
    """The Python of a tool that is installed in `cache`; raises UnavailableError when it is not."""
    python = Path(sys.executable) if peer.here else cache / peer.name / "bin" / "python"
    if not python.exists():
        raise UnavailableError("not installed (see --install)")
    return python


def install(peer: Peer, cache: Path) -> Path:
    """Make the environment if it is not there; raises UnavailableError with pip's last line when that fails."""
    folder = cache / peer.name
    if peer.here:
        return Path(sys.executable)
    if (folder / "bin" / "python").exists():
        return folder / "bin" / "python"
    base = _base_python(peer.python)
    words = ["--no-deps"] if peer.no_deps else []
    try:
        _run([base, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *words, "--requirement", str(peer.requirements)])
    except UnavailableError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder / "bin" / "python"


def _base_python(least: tuple[int, int]) -> str:
    """This Python, or a newer one on the path, that is at least `least`."""
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 4):
        name = f"python{least[0]}.{minor}"
        works = shutil.which(name) and not subprocess.run([name, "--version"], capture_output=True).returncode
        if works:
            return name
    raise UnavailableError(f"it needs Python {least[0]}.{least[1]} and there is none on the path")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"installing it took more than {INSTALL_LIMIT_S // 60} minutes") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnavailableError(f"installing it failed: {last}")
