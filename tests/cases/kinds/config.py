"""Configuration cases: the ways to write a target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadtest.replay.endpoint import Endpoint


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every way to write the target leads to the same URL."""
    targets = json.loads((case_dir / case["files"][0]).read_text())["targets"]
    chat = {Endpoint.parse(target, api="chat").url for target in targets}
    if "chat_url" in expected:
        assert {expected["chat_url"]} == chat
    if expected.get("same_for_all"):
        assert 1 == len(chat)
    if "completions_url" in expected:
        assert {expected["completions_url"]} == {Endpoint.parse(t, api="completions").url for t in targets}
