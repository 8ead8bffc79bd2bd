"""The load shape for `locust -f`: as many users as workers, until the schedule is drained."""

from __future__ import annotations

from locust import LoadTestShape
from locust.env import Environment
from locust.runners import MasterRunner

from loadtest.swarm.coordinator import coordinator_of


class ReplayShape(LoadTestShape):
    """A constant user count. Never derived from live workers: a frozen one that comes back would start anew."""

    def tick(self) -> tuple[int, float] | None:
        """(users, users per second) while the run goes on; None ends the test."""
        assert self.runner is not None
        coordinator = coordinator_of(self.runner.environment)
        if coordinator.over:
            return None
        users = coordinator.workers or planned_workers(self.runner.environment)
        return users, float(min(users, 100))


def planned_workers(environment: Environment) -> int:
    """Workers of a test about to start: those connected, never fewer than were asked to be expected."""
    if not isinstance(environment.runner, MasterRunner):
        return 1
    return max(environment.runner.worker_count, getattr(environment.parsed_options, "expect_workers", 1))
