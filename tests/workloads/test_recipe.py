"""What --shape and --arrivals mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workloads.errors import WorkloadError
from workloads.recipe import PROCESSES, STEPS, Arrivals, duration_s, step
from workloads.trace import Trace

GIVEN = {
    "window": "window=2s+3s",
    "head": "head=4",
    "sample": "sample=5",
    "speed": "speed=2",
    "scale": "scale=3",
    "thin": "thin=0.5",
    "superpose": "superpose=2",
    "repeat": "repeat=3",
    "spread": "spread",
    "drop": "drop=12",
    "clip": "clip=8",
    "share": "share=20%",
    "conversations": "conversations",
}
ROWS = {"window": 3, "head": 4, "sample": 5, "thin": 5, "superpose": 19, "repeat": 30, "drop": 8}


def ten() -> Trace:
    return Trace("t", np.arange(10) * 10**9, np.arange(3, 13), np.full(10, 2))


@pytest.mark.parametrize("name", STEPS)
def test_every_step(name: str) -> None:
    """Each does what its function does; sharing and conversations need longer prompts and sessions."""
    done = step(GIVEN[name])
    if name == "share":
        trace = Trace("t", np.arange(100) * 10**9, np.full(100, 500), np.ones(100))
        assert ["shared_prefix"] == [w.split(":")[0] for w in done(trace, np.random.default_rng(1)).warnings]
    elif name == "conversations":
        with pytest.raises(WorkloadError, match="no sessions"):
            done(ten(), np.random.default_rng(1))
    else:
        assert ROWS.get(name, 10) == len(done(ten(), np.random.default_rng(1)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cilp=5",
        "clip",
        "clip=",
        "clip=5.5",
        "clip=-1",
        "spread=3",
        "speed=fast",
        "window=5",
        "window=5s+x",
        "repeat=٣",
    ],
)
def test_steps_that_are_none(text: str) -> None:
    """Each says what is wrong and how it is written."""
    with pytest.raises(WorkloadError) as caught:
        step(text)
    assert "shape" == caught.value.code
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["constant", "poisson", "gamma:cv=2", "on-off:on=2s,off=5s", "ramp:1..10", "steps:2@5s,0@1s"]
)
def test_processes(text: str) -> None:
    """Ten requests at other times, in the same order."""
    process = Arrivals.parse(text)
    assert process is not None
    made = process.applied(ten(), None if process.own_rate else 4.0, np.random.default_rng(1))
    assert ten().prompt_tokens.tolist() == made.prompt_tokens.tolist()
    assert f"arrivals: {text}, not recorded" in made.warnings


def test_a_profile_file(tmp_path: Path) -> None:
    """Rates by second, a header allowed; 10 a second for 10 s, then none for 10 s."""
    path = tmp_path / "day.csv"
    path.write_text("second,rate\n0,10\n10,0\n")
    process = Arrivals.parse(f"profile:{path}")
    assert process is not None
    trace = Trace("t", np.zeros(400), np.ones(400), np.ones(400))
    seconds = process.applied(trace, None, np.random.default_rng(1)).arrival_ns / 1e9
    assert ((seconds % 20) < 11).all()
    assert seconds[-1] > 60


@pytest.mark.parametrize(
    "text",
    [
        "gaussian",
        "poisson:5",
        "gamma",
        "gamma:cv=x",
        "gamma:cv=0",
        "on-off:on=5s",
        "ramp:5",
        "steps:5",
        "profile:/nowhere",
        "recorded:x",
    ],
)
def test_processes_that_are_none(text: str) -> None:
    """Refused in words, before or when they are applied."""

    def applied() -> Trace:
        process = Arrivals.parse(text)
        return ten() if process is None else process.applied(ten(), 1.0, np.random.default_rng(1))

    with pytest.raises(WorkloadError) as caught:
        applied()
    assert "arrivals" == caught.value.code


def test_rates_that_clash_or_lack() -> None:
    """A process with rates of its own takes no other; one without needs a rate from somewhere."""
    ramp, poisson = Arrivals.parse("ramp:1..2"), Arrivals.parse("poisson")
    assert ramp is not None
    assert poisson is not None
    assert Arrivals.parse("recorded") is None
    burst = Trace("t", np.zeros(3), np.ones(3), np.ones(3))
    for process, trace, rate in ((ramp, ten(), 5.0), (poisson, burst, None)):
        with pytest.raises(WorkloadError):
            process.applied(trace, rate, np.random.default_rng(1))


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("1.5m", 90), ("200ms", 0.2), ("1h", 3600), (".5s", 0.5)])
def test_durations(text: str, expected: float) -> None:
    """As everywhere in the program."""
    assert expected == pytest.approx(duration_s(text))


def test_every_process_is_described() -> None:
    """What can be parsed is listed for the user."""
    assert {"recorded", "constant", "poisson", "gamma", "on-off", "ramp", "steps", "profile"} == {
        text.partition(":")[0] for text in PROCESSES
    }
