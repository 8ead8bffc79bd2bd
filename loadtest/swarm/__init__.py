"""Locust around the sender: the only package that may import locust."""

from __future__ import annotations

import importlib
import os

PATIENCE_HEARTBEATS = 30  # a second each

_VARIABLE = "LOCUST_SKIP_MONKEY_PATCH"


def _import_locust_unpatched() -> None:
    """Importing locust patches the standard library's sockets unless a variable says not to.

    The sender needs no patched socket, and the process it runs in also supervises servers and writes files. Under
    `locust -f` Locust has been imported, and has patched, long before; that works too. The variable is taken back,
    so that a Locust the user starts from here does what it always does.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        importlib.import_module("locust")
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _be_patient() -> None:
    """Locust gives a worker up after 3 s and ends the test when it was the last: liveness is the coordinator's."""
    setattr(importlib.import_module("locust.runners"), "HEARTBEAT_LIVENESS", PATIENCE_HEARTBEATS)  # noqa: B010


_import_locust_unpatched()
_be_patient()
