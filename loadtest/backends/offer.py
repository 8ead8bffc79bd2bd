"""A schedule offered to a cluster on the virtual clock: rows at their instants, waiting turns after the one before."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf, isnan

from loadtest.backends.cluster import Cluster, PromptTooLong, QueueFull
from loadtest.backends.request import Request
from workloads.schedule import Schedule


class Offer:
    """`due_s` is when each row was due, known of waiting turns once they were; `refused` rows met a full queue.

    Rows that do not fit the model's context are not taken, and nothing is said of them.
    """

    def __init__(self, cluster: Cluster, schedule: Schedule, prefixes: Sequence[Sequence[int]]) -> None:
        self._cluster = cluster
        self._schedule = schedule
        self._prefixes = prefixes
        self._prompts, self._outputs = schedule.prompt_tokens.tolist(), schedule.max_tokens.tolist()
        self.due_s = schedule.scheduled_s.copy()
        self.refused: list[int] = []

    def serve(self) -> list[Request]:
        """Submit every row at its instant and run to the end; the requests taken, in the order of the rows."""
        requests = self._turns() if self._schedule.waits.any() else self._open_loop()
        self._cluster.advance(inf)
        return requests

    def _open_loop(self) -> list[Request]:
        arrivals = enumerate(self.due_s.tolist())
        return [request for row, due in arrivals if (request := self._submit(row, due)) is not None]

    def _turns(self) -> list[Request]:
        """What ends makes others due, so the cluster goes from one of its deadlines to the next."""
        cluster, requests = self._cluster, list[Request]()
        arrivals = [(due, row) for row, due in enumerate(self.due_s.tolist()) if not isnan(due)]
        heapify(arrivals)
        while arrivals or cluster.next_deadline() is not None:
            deadline = cluster.next_deadline()
            if deadline is not None and (not arrivals or deadline <= arrivals[0][0]):
                cluster.advance(deadline)
                for ended in cluster.ended():
                    self._next_turn(ended.request_id, ended.done, arrivals)
                continue
            due, row = heappop(arrivals)
            request = self._submit(row, due)
            if request is None:
                self._next_turn(row, due, arrivals)
            else:
                requests.append(request)
        return sorted(requests, key=lambda request: request.request_id)

    def _next_turn(self, row: int, ended_s: float, arrivals: list[tuple[float, int]]) -> None:
        later = int(self._schedule.next_turn[row])
        if later >= 0:
            self.due_s[later] = ended_s + self._schedule.think_s[later]
            heappush(arrivals, (float(self.due_s[later]), later))

    def _submit(self, row: int, due: float) -> Request | None:
        try:
            return self._cluster.submit(row, self._prompts[row], self._outputs[row], due, self._prefixes[row])
        except PromptTooLong:
            return None
        except QueueFull:
            self.refused.append(row)
            return None
