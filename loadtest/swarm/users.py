"""The Locust user: one per worker, the token that lets the worker's replayer claim a shard."""

from __future__ import annotations

from locust import User, task

from loadtest.swarm.replayer import replayer_of


class ReplayUser(User):
    """Claims this worker's shard, then lives until the test stops, so that the user count never changes.

    Killing this greenlet does not stop the sender: the replayer owns it. Locust may move users between
    workers when one was frozen; a request must not be sent twice, or lost, for that.
    """

    @task
    def replay(self) -> None:
        """Claim and wait."""
        replayer = replayer_of(self.environment)
        replayer.claim()
        replayer.stopping.wait()
