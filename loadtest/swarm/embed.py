"""Locust as a library: one load run in this process, or in worker processes with a master here."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

import gevent
import locust.runners
from locust.env import Environment
from locust.exception import RPCError
from locust.runners import MasterRunner

from loadtest import clock
from loadtest.errors import InvalidError, UsageError
from loadtest.supervise import Server, python_module
from loadtest.swarm.coordinator import Coordinator, LoadPlan, LoadProgress
from loadtest.swarm.doorman import guard
from loadtest.swarm.replayer import Replayer
from loadtest.swarm.token import VARIABLE, Token
from loadtest.swarm.transport import use_token
from loadtest.swarm.users import ReplayUser

POLL_S = 0.1

OnProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True)
class LoadOutcome:
    """How a run ended; what happened to its requests is in the journals."""

    interrupted: bool = False
    stopped_at_s: float | None = None
    stop_reason: str = ""
    workers_lost: tuple[int, ...] = ()


def run_load(plan: LoadPlan, on_progress: OnProgress | None = None) -> LoadOutcome:
    """Offer the schedule in `plan.directory` and return when all is drained; raises InvalidError when it cannot start.

    SIGINT and SIGTERM stop the run early and in order; a second one raises KeyboardInterrupt.
    """
    quiet_locust()
    environment = Environment(user_classes=[ReplayUser])
    with ExitStack() as stack:
        pressed = stack.enter_context(interruption())
        children = _start_runner(environment, plan, stack)
        coordinator = Coordinator(environment)
        coordinator.begin(plan)
        environment.events.user_error.add_listener(lambda exception, **_: coordinator.fail(str(exception)))
        stack.callback(_quit, environment)
        _await_workers(environment, plan, children, pressed)
        assert environment.runner is not None
        gevent.spawn(environment.runner.start, plan.workers, float(min(plan.workers, 100)))
        _attend(coordinator, children, pressed, on_progress)
    if coordinator.error:
        raise InvalidError(coordinator.error, code="worker_failed")
    reason = coordinator.stop_reason
    return LoadOutcome(coordinator.interrupted, coordinator.stopped_at_s, reason, tuple(coordinator.lost))


def _start_runner(environment: Environment, plan: LoadPlan, stack: ExitStack) -> list[Server]:
    """The local runner with a replayer, or a master: of workers that join it, or of worker processes of its own."""
    if plan.bind is not None:
        use_token(plan.token)
        _create_master(environment, *plan.bind)
        return []
    if plan.workers == 1:
        environment.create_local_runner()
        Replayer(environment)
        return []
    token = Token.fresh()  # other users of this machine reach the port as well
    use_token(token)
    runner = environment.create_master_runner("127.0.0.1", 0)
    guard(runner)
    children = [_worker_process(plan, index, runner.server.port, token) for index in range(plan.workers)]
    for child in children:
        stack.callback(child.stop)
        child.launch()
    for child in children:
        child.wait_ready()
    return children


def _create_master(environment: Environment, host: str, port: int) -> None:
    try:
        guard(environment.create_master_runner("*" if host == "0.0.0.0" else host, port))
    except (SystemExit, RPCError):  # Locust leaves the program when the port is taken
        raise UsageError(
            f"a master cannot listen at {host}:{port}",
            hint="another program may listen there; choose with --master-bind HOST:PORT",
            code="master_port",
        ) from None


def _worker_process(plan: LoadPlan, index: int, port: int, token: Token) -> Server:
    argv = python_module("loadtest.swarm.worker", "127.0.0.1", str(port))
    log, environment = plan.directory / f"worker-{index}.log", {VARIABLE: token.value}
    return Server(argv, log=log, name=f"worker {index}", env=environment)


def _await_workers(
    environment: Environment, plan: LoadPlan, children: list[Server], pressed: Callable[[], bool]
) -> None:
    """All of them or none: a run offered by fewer workers would be another run."""
    runner = environment.runner
    if not isinstance(runner, MasterRunner):
        return
    give_up_ns = clock.monotonic_ns() + int(plan.wait_s * 1e9)
    while runner.worker_count < plan.workers and not pressed():
        for child in children:
            if child.exit_status is not None:
                raise child.died()
        if clock.monotonic_ns() > give_up_ns:
            where = f"their logs are in {plan.directory}" if children else "start goodput worker on each machine"
            raise InvalidError(
                f"only {runner.worker_count} of {plan.workers} workers came up within {plan.wait_s:g} s",
                hint=f"nothing was sent; {where}",
                code="workers_missing",
            )
        gevent.sleep(0.02)


def _attend(
    coordinator: Coordinator, children: list[Server], pressed: Callable[[], bool], on_progress: OnProgress | None
) -> None:
    """Wait for the end, looking after workers and the user's Ctrl-C."""
    while not coordinator.wait(POLL_S):
        if pressed():
            coordinator.interrupt()
        dead = [child for child in children if child.exit_status is not None]
        if dead and not coordinator.started:
            raise dead[0].died()
        coordinator.check({child.pid for child in dead})
        if on_progress is not None:
            on_progress(coordinator.progress())


def _quit(environment: Environment) -> None:
    runner = environment.runner
    assert runner is not None
    runner.quit()
    if isinstance(runner, MasterRunner):
        runner.server.close(linger=0)


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """A function that tells whether the user asked to stop.

    gevent lets Python's own signal handlers run a few times a second, so a flag is enough.
    """
    asked = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def quiet_locust() -> None:
    """Locust logs to the root logger and warns about CPU there; our validity section says it better."""
    logging.getLogger("locust").setLevel(logging.CRITICAL)
    locust.runners.CPU_WARNING_THRESHOLD = 1_000
