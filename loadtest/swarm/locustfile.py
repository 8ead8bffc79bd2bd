"""A plain locustfile: `locust -f <this file> --host http://127.0.0.1:8000 --headless` and everything Locust offers.

Works alone, with --processes N, with --master and --worker, with --csv and --html, and with the web page. Each test
leaves a run directory; `goodput report DIR` draws it. Master and web page listen on this machine only, until told
otherwise; other machines are let in by the same --token-file on both sides.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.errors import ExitCode, GoodputError, UsageError
from loadtest.swarm.coordinator import Coordinator, coordinator_of, watch
from loadtest.swarm.doorman import guard
from loadtest.swarm.replayer import Replayer
from loadtest.swarm.session import Session
from loadtest.swarm.shape import ReplayShape, planned_workers
from loadtest.swarm.token import Token, is_loopback
from loadtest.swarm.transport import use_token
from loadtest.swarm.users import ReplayUser
from loadtest.swarm.webpage import extend_page
from metrics.errors import MetricsError
from workloads.errors import WorkloadError

__all__ = ["ReplayShape", "ReplayUser"]

_log = logging.getLogger("goodput")
_sessions: dict[int, Session] = {}


@events.init_command_line_parser.add_listener
def add_arguments(parser: Any, **_: object) -> None:
    """Our options beside Locust's; they show up on the web page and reach the workers."""
    group = parser.add_argument_group("goodput")
    group.add_argument("--trace", default="azure-conv", help="built-in workload or trace file")
    group.add_argument("--rate", type=float, default=None, help="scale time to this many requests per second")
    group.add_argument("--duration", type=float, default=None, metavar="SECONDS", help="length of the run")
    group.add_argument("--requests", type=int, default=None, help="at most so many requests")
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--slo", default="", help="recorded for the report, e.g. ttft=200ms,tpot=50ms")
    group.add_argument("--model", default="", help="model to ask for")
    # Not on the page: whoever reaches it must not choose a path. Only the parser itself, not a group, can hide them.
    parser.add_argument("--out", default="", help="run directory", include_in_web_ui=False)
    parser.add_argument(
        "--token-file", type=_token_file, default="", help="secret of master and workers", include_in_web_ui=False
    )
    parser.set_defaults(master_bind_host="127.0.0.1", web_host="127.0.0.1")


def _token_file(text: str) -> str:
    """Seal the sockets that Locust makes right after it has read its options."""
    try:
        use_token(Token.read(Path(text)) if text else None)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    return text


@events.init.add_listener
def on_init(environment: Environment, **_: object) -> None:
    """A replayer where requests are sent, a coordinator where the test is controlled."""
    runner, options = environment.runner, environment.parsed_options
    if options is not None and getattr(options, "enable_rebalancing", False):
        sys.stderr.write("goodput: --enable-rebalancing would replay a part of the schedule twice\n")
        sys.exit(ExitCode.USAGE)
    if isinstance(runner, MasterRunner):
        if options is not None and not is_loopback(options.master_bind_host) and not options.token_file:
            sys.stderr.write("goodput: --master-bind-host lets others in: add --token-file FILE on both sides\n")
            sys.exit(ExitCode.USAGE)
        guard(runner)
    else:
        Replayer(environment)
    if not isinstance(runner, WorkerRunner):
        if options is not None and getattr(options, "headless", False):
            # Locust listens to TERM only once a run by a shape is over: until then it is a Ctrl-C.
            gevent.signal_handler(signal.SIGTERM, os.kill, os.getpid(), signal.SIGINT)
        Coordinator(environment)
        environment.events.test_start.add_listener(on_test_start)
        environment.events.test_stopping.add_listener(on_test_stopping)
        environment.events.test_stop.add_listener(on_test_stop)
        extend_page(environment)


def on_test_start(environment: Environment, **_: object) -> None:
    """Plan the run and open its directory; the users that start now will claim their shards."""
    coordinator = coordinator_of(environment)
    try:
        session = Session.open(environment.host or "", environment.parsed_options, planned_workers(environment))
    except (GoodputError, WorkloadError, MetricsError) as error:
        coordinator.fail(error.message)
        _give_up(environment, error)
        return
    _sessions[id(environment)] = session
    coordinator.begin(session.plan)
    gevent.spawn(watch, coordinator)


def on_test_stopping(environment: Environment, **_: object) -> None:
    """By the shape when all is drained; earlier when the user stops the test."""
    coordinator_of(environment).interrupt()


def on_test_stop(environment: Environment, **_: object) -> None:
    """Write what happened."""
    session = _sessions.pop(id(environment), None)
    if session is None:
        return
    coordinator = coordinator_of(environment)
    watch(coordinator)
    code = session.close(coordinator)
    environment.process_exit_code = code
    _log.warning("run directory: %s (exit code %d)", session.plan.directory, code)


def _give_up(environment: Environment, error: GoodputError | WorkloadError | MetricsError) -> None:
    environment.process_exit_code = getattr(error, "exit_code", ExitCode.USAGE)
    sys.stderr.write(f"goodput: {error.message}\n")
