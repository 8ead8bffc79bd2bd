"""What importing the swarm does to a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = "import os, socket, sys; import loadtest.swarm.embed; print(socket.socket.__module__, {0!r} in os.environ)"


def test_sockets_stay_as_they_are() -> None:
    """Nothing is patched, and the variable that keeps Locust from patching is not left to children."""
    env = {key: value for key, value in os.environ.items() if key != "LOCUST_SKIP_MONKEY_PATCH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM.format("LOCUST_SKIP_MONKEY_PATCH")],
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ("socket False\n", "") == (done.stdout, done.stderr)
