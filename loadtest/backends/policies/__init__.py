"""Scheduling policies, a page each: what goes into the next iteration of an instance.

A policy is any object with `compose(batch)`. It decides only through the `Batch` it is handed, keeps no time and no
request, and is asked once per iteration, whenever a prompt waits or is under way (with decodes alone there is nothing
to decide). The deployment key `policy=package.module:Class` loads one of your own as `Class(max_num_batched_tokens)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from loadtest.backends.policies.chunked import Chunked
from loadtest.backends.policies.colocated import Colocated
from loadtest.backends.policies.colocated_prefill_first import ColocatedPrefillFirst
from loadtest.errors import UsageError

if TYPE_CHECKING:
    from loadtest.backends.batch import Batch

__all__ = ["Chunked", "Colocated", "ColocatedPrefillFirst", "Policy", "load_policy"]


class Policy(Protocol):
    """Composes an iteration out of what an instance has to do."""

    def compose(self, batch: Batch) -> None:
        """Schedule decodes and prompt tokens on `batch`."""


def load_policy(path: str, budget: int) -> Policy:
    """A policy of one's own, named `package.module:Class`; UsageError when there is no such thing."""
    module_name, _, class_name = path.partition(":")
    try:
        policy: Policy = getattr(import_module(module_name), class_name)(budget)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UsageError(
            f"policy {path!r} cannot be loaded: {error}",
            hint="write policy=package.module:Class, a module that is installed or whose folder is on PYTHONPATH; the "
            "class takes max_num_batched_tokens",
            code="bad_policy",
        ) from error
    if not callable(getattr(policy, "compose", None)):
        raise UsageError(f"policy {path!r} has no compose(batch)", code="bad_policy")
    return policy
