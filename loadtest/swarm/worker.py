"""A worker process: `python -P -m loadtest.swarm.worker HOST PORT` joins the master there."""

from __future__ import annotations

import logging
import os
import sys

from locust.env import Environment

from loadtest.supervise import announce_ready, die_with_parent
from loadtest.swarm.replayer import Replayer
from loadtest.swarm.token import VARIABLE, Token
from loadtest.swarm.transport import use_token
from loadtest.swarm.users import ReplayUser


def main(host: str, port: int) -> None:
    """Serve one master until it says quit or dies."""
    die_with_parent()
    use_token(Token(os.environ.pop(VARIABLE)))
    logging.basicConfig(level=logging.WARNING)
    announce_ready()
    environment = Environment(user_classes=[ReplayUser])
    runner = environment.create_worker_runner(host, port)
    Replayer(environment)
    runner.greenlet.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
