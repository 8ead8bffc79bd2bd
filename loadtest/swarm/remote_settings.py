"""What a worker on another machine decides for itself: no path and no variable's name comes from its master."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec

from loadtest.errors import UsageError
from loadtest.replay.endpoint import Endpoint
from loadtest.swarm.protocol import Assignment
from metrics import rundir
from workloads.schedule import Schedule
from workloads.tokenizer import file_hash

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 150


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `goodput worker`: where it keeps its journal, and its own files and keys."""

    home: Path = Path("runs")
    api_key_env: str = ""
    api_key_file: str = ""
    ca_file: str = ""
    tokenizer: str = ""

    def settle(self, assignment: Assignment) -> Assignment:
        """The assignment with its schedule in a folder of ours, our files and our keys; UsageError when one lacks."""
        name = _NOT_IN_NAMES.sub("-", assignment.run)[-LONGEST_NAME:].lstrip(".-") or "run"
        folder = rundir.create(self.home / f"{name}_worker-{assignment.worker}").resolve()
        path = folder / rundir.SCHEDULE
        path.write_bytes(assignment.schedule)
        rundir.read_plan(folder)  # what a master sends is not believed before it is looked at
        self._with_own_tokenizer(path, assignment.tokenizer_sha256)
        return msgspec.structs.replace(
            assignment,
            schedule_path=str(path),
            journal_path=str(rundir.journal_path(folder, assignment.worker)),
            endpoint=self._with_own_keys(assignment.endpoint, assignment.needs_key),
        )

    def _with_own_keys(self, endpoint: Endpoint, needs_key: bool) -> Endpoint:
        if needs_key and not (self.api_key_env or self.api_key_file):
            raise UsageError(
                "the server wants an API key, which a master does not send",
                hint="start goodput worker with --api-key-env NAME or --api-key-file FILE",
            )
        return msgspec.structs.replace(
            endpoint, api_key_env=self.api_key_env, api_key_file=self.api_key_file, ca_file=self.ca_file
        )

    def _with_own_tokenizer(self, path: Path, wanted_sha256: str) -> None:
        schedule = Schedule.load(path)
        if not schedule.tokenizer:
            return
        if not self.tokenizer:
            raise UsageError(
                "the run's texts are made of a tokenizer's words",
                hint="start goodput worker with --tokenizer FILE, a copy of the master's",
            )
        if file_hash(self.tokenizer) != wanted_sha256:
            raise UsageError(
                f"{self.tokenizer} is another tokenizer than the master's", hint="copy the master's tokenizer.json here"
            )
        replace(schedule, tokenizer=self.tokenizer).save(path)
