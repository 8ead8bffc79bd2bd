"""A hostile or false master: no path and no variable's name of its choice is used by a remote worker."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.swarm.protocol import Assignment
from loadtest.swarm.remote_settings import RemoteSettings
from workloads.schedule import Schedule, plan
from workloads.trace import Trace


def assignment(tmp_path: Path, run: str = "r1", **changes: object) -> Assignment:
    """One request for a worker elsewhere, as a master that knows no better, or worse, may send it."""
    tokenizer = str(changes.pop("tokenizer", ""))
    trace = Trace("t", np.zeros(1, "i8"), np.full(1, 4), np.full(1, 2))
    file = tmp_path / "sent.npz"
    schedule = plan(trace, seed=0, salt="00")
    object.__setattr__(schedule, "tokenizer", tokenizer)
    schedule.save(file)
    endpoint = Endpoint.parse("http://h", api_key_env="HOME", api_key_file="/etc/passwd", ca_file="/etc/hostname")
    sent = Assignment(
        run, 0, 1, "/etc/passwd", str(tmp_path / "outside.bin"), endpoint, SenderOptions(), "hub", file.read_bytes()
    )
    return msgspec.structs.replace(sent, **changes)


def test_no_path_and_no_key_comes_from_the_master(tmp_path: Path) -> None:
    """Schedule and journal lie in a folder of ours; the key, the key file and the authority are ours or none."""
    home = tmp_path / "home"
    settled = RemoteSettings(home=home).settle(assignment(tmp_path))
    assert [home / "r1_worker-0"] == list(home.iterdir())
    assert str(home / "r1_worker-0" / "schedule.npz") == settled.schedule_path
    assert str(home / "r1_worker-0" / "records-0.bin") == settled.journal_path
    assert ("", "", "") == (settled.endpoint.api_key_env, settled.endpoint.api_key_file, settled.endpoint.ca_file)


def test_own_keys_are_used(tmp_path: Path) -> None:
    """Where the server wants one; without one of our own the worker says how to give it."""
    wanted = assignment(tmp_path, needs_key=True)
    settled = RemoteSettings(home=tmp_path / "a", api_key_env="MY_KEY", ca_file="my.pem").settle(wanted)
    assert ("MY_KEY", "", "my.pem") == (
        settled.endpoint.api_key_env,
        settled.endpoint.api_key_file,
        settled.endpoint.ca_file,
    )
    with pytest.raises(UsageError, match="API key"):
        RemoteSettings(home=tmp_path / "b").settle(wanted)


@pytest.mark.parametrize("run", ["../../x", "/etc/cron.d/x", "..", "a/../../b", "\n\x1b[2J", "", "r" * 4000, "~root"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, run: str) -> None:
    """The run's name makes one plain folder name, of a length that every disk takes."""
    home = tmp_path / "home"
    RemoteSettings(home=home).settle(assignment(tmp_path, run))
    (folder,) = home.iterdir()
    assert folder.name.endswith("_worker-0")
    assert not set(folder.name) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not folder.name.startswith(".")


def test_the_tokenizer_is_our_copy_of_the_masters(tmp_path: Path) -> None:
    """By its hash; the master's path is not read."""
    own = tmp_path / "tokenizer.json"
    own.write_text("{}")
    sha = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    wanted = assignment(tmp_path, tokenizer="/etc/shadow", tokenizer_sha256=sha)
    settled = RemoteSettings(home=tmp_path / "a", tokenizer=str(own)).settle(wanted)
    assert str(own) == Schedule.load(settled.schedule_path).tokenizer
    with pytest.raises(UsageError, match="words"):
        RemoteSettings(home=tmp_path / "b").settle(wanted)
    own.write_text("[]")
    with pytest.raises(UsageError, match="another tokenizer"):
        RemoteSettings(home=tmp_path / "c", tokenizer=str(own)).settle(wanted)
