"""A worker on a machine of its own: joins a master elsewhere, replays one shard, keeps its journal and delivers it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import locust.runners
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtest import clock
from loadtest.errors import GoodputError, Interrupted, InvalidError, TargetError, UsageError
from loadtest.swarm import protocol
from loadtest.swarm.embed import interruption, quiet_locust
from loadtest.swarm.remote_settings import RemoteSettings
from loadtest.swarm.replayer import Replayer
from loadtest.swarm.token import Token, is_loopback
from loadtest.swarm.transport import knock, use_token
from loadtest.swarm.users import ReplayUser

POLL_S = 0.1
SAY_AGAIN_NS = 1_000_000_000
MASTER_SILENCE_NS = 15_000_000_000  # a network may be gone for several seconds, and TCP takes its time to find out
OWN_FREEZE_NS = 2_000_000_000
CLOSE_LIMIT_NS = 10_000_000_000


def join(host: str, port: int, settings: RemoteSettings, token_file: Path | None, wait_s: float) -> Path:
    """Take part in one run of the master at `host`; the folder below `settings.home` that holds the journal.

    Raises TargetError when there is no master (any more), InvalidError when the run took place without this
    worker or its shard failed, Interrupted when this worker was stopped, UsageError for a master elsewhere without
    a token: whoever answers there would decide what is sent from here.
    """
    if token_file is None and not is_loopback(host):
        raise UsageError(
            f"a master on another machine ({host}) must prove itself",
            hint="give the file that its goodput run --master --token-file made with --token-file",
            code="token_file",
        )
    quiet_locust()
    with interruption() as pressed:
        use_token(None if token_file is None else _await_token(token_file, wait_s, pressed))
        _await_master(host, port, wait_s, pressed)
        environment = Environment(user_classes=[ReplayUser])
        runner = _connect(environment, host, port, wait_s)
        replayer = Replayer(environment, remote=settings, place=f"{protocol.place_id()} {runner.client_id}")
        vigil = Vigil(environment)
        _attend(runner, replayer, vigil, pressed)
        _close(runner, replayer)
        _raise_if_bad(replayer, host, port, pressed())
    assert replayer.folder is not None
    return replayer.folder


class Vigil:
    """When the master was heard of last; our own freezes do not count as its silence."""

    def __init__(self, environment: Environment) -> None:
        self._heard_ns = self._looked_ns = clock.monotonic_ns()
        environment.events.heartbeat_received.add_listener(self._heard)

    def _heard(self, **_: object) -> None:
        self._heard_ns = clock.monotonic_ns()

    def silent(self) -> bool:
        """True after MASTER_SILENCE_NS without a word; call often."""
        now_ns = clock.monotonic_ns()
        if now_ns - self._looked_ns > OWN_FREEZE_NS:
            self._heard_ns = now_ns
        self._looked_ns = now_ns
        return now_ns - self._heard_ns > MASTER_SILENCE_NS


def _await_token(file: Path, wait_s: float, pressed: Callable[[], bool]) -> Token:
    """Until the file is there: the master that makes it may start later, beside a folder that both see."""
    give_up_ns = clock.monotonic_ns() + int(wait_s * 1e9)
    while not file.exists() and clock.monotonic_ns() < give_up_ns and not pressed():
        clock.sleep(POLL_S)
    return Token.read(file)


def _await_master(host: str, port: int, wait_s: float, pressed: Callable[[], bool]) -> None:
    """Until somebody listens there: workers are often started before their master."""
    give_up_ns = clock.monotonic_ns() + int(wait_s * 1e9)
    while not pressed():
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError as error:
            if clock.monotonic_ns() > give_up_ns:
                raise TargetError(
                    f"no master listens at {host}:{port}: {error}",
                    hint="start goodput run --master there, or wait longer with --wait",
                    code="no_master",
                ) from None
            clock.sleep(POLL_S)
        else:
            if knock(host, port):
                return
            raise _no_master(host, port)
    raise Interrupted("stopped before a master was found")


def _connect(environment: Environment, host: str, port: int, wait_s: float) -> WorkerRunner:
    locust.runners.CONNECT_TIMEOUT, locust.runners.CONNECT_RETRY_COUNT = 1, max(int(wait_s), 1)
    try:
        return environment.create_worker_runner(host, port)
    except ConnectionError:
        raise _no_master(host, port) from None


def _no_master(host: str, port: int) -> TargetError:
    return TargetError(
        f"what listens at {host}:{port} does not answer as a master with our token would",
        hint="check the port, and that both sides have the same --token-file, or neither has one",
        code="no_master",
    )


def _attend(runner: WorkerRunner, replayer: Replayer, vigil: Vigil, pressed: Callable[[], bool]) -> None:
    """Until the master says quit, is gone, or the user of this machine has stopped the worker."""
    again_ns = clock.monotonic_ns()
    while not runner.greenlet.join(POLL_S):
        if vigil.silent():
            replayer.interrupt(deserted=True)
            return
        if pressed():
            replayer.interrupt()
            if not replayer.busy:
                return
        if clock.monotonic_ns() > again_ns:
            replayer.say_again()
            again_ns = clock.monotonic_ns() + SAY_AGAIN_NS


def _close(runner: WorkerRunner, replayer: Replayer) -> None:
    """Let the journal be closed, tell Locust's master, and leave no message behind that would hold the process."""
    import gevent

    give_up_ns = clock.monotonic_ns() + CLOSE_LIMIT_NS
    while replayer.busy and clock.monotonic_ns() < give_up_ns:
        gevent.sleep(POLL_S)
    if not replayer.deserted:
        replayer.say_again()
        runner.environment.events.quitting.fire(environment=runner.environment, reverse=True)
    runner.greenlet.kill(block=True, timeout=1)
    runner.client.close(linger=0 if replayer.deserted else 2_000)


def _raise_if_bad(replayer: Replayer, host: str, port: int, stopped: bool) -> None:
    folder, beat = replayer.folder, replayer.last_beat
    kept = f"its journal is in {folder}: goodput report RUN --merge {folder} takes it in" if folder else ""
    if stopped:
        raise Interrupted("this worker was stopped; what it had not sent is missing from the run", hint=kept)
    if replayer.deserted:
        raise TargetError(
            f"the master at {host}:{port} was not heard of for {MASTER_SILENCE_NS // 1_000_000_000} s, so this worker "
            "stopped sending",
            hint=kept,
            code="master_lost",
        )
    if beat is not None and beat.error:
        raise InvalidError(beat.error, code="worker_failed")
    if folder is None or beat is None or not beat.done:
        raise _without_us()


def _without_us() -> GoodputError:
    return InvalidError(
        "the run ended without this worker: it came too late, was one more than expected, or too few others came",
        hint="nothing was sent from here",
        code="not_needed",
    )
