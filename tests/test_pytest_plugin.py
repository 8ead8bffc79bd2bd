"""The pytest plugin: fixture, marker, and that it leaves the user's interpreter alone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from loadtest import pytest_plugin
from loadtest.pytest_plugin import Goodput, Measured

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's project with the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makefile(".ini", pytest="[pytest]\naddopts = -p loadtest.pytest_plugin --strict-markers\n")
    return pytester


def test_importing_it_loads_neither_locust_nor_gevent() -> None:
    """Nothing may be patched in a process that runs the user's tests."""
    code = "import sys, loadtest.pytest_plugin; print([m for m in ('gevent', 'locust', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert "[]" == done.stdout.strip()


def test_the_entry_point_and_the_module_are_one_plugin() -> None:
    """Otherwise `-p loadtest.pytest_plugin` would register it twice."""
    text = (ROOT / "setup.cfg").read_text()
    assert "pytest11 =\n    loadtest.pytest_plugin = loadtest.pytest_plugin\n" in text


def test_options_become_a_command_line() -> None:
    """Underscores are dashes, lists repeat, True is a flag, None and False are left out."""
    words = pytest_plugin._words({"max_lateness": "5s", "rule": ["a", "b"], "virtual": True, "seed": None, "x": False})
    assert ["--max-lateness", "5s", "--rule", "a", "--rule", "b", "--virtual"] == words


def test_the_marker_asks_for_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets become --slo and a requirement on attainment; further requirements join it."""
    asked: list[dict[str, object]] = []

    def call(_self: Goodput, _command: str, options: dict[str, object], _check: bool) -> Measured:
        asked.append(options)
        return Measured(0, {}, tmp_path)

    monkeypatch.setattr(Goodput, "_call", call)
    Goodput(tmp_path, "ttft=1s,share=95%", ["failed < 1%"], "fail").run(target="u", require="ttft.p99 < 2s")
    Goodput(tmp_path, "ttft=1s", (), "fail").run(target="u")
    Goodput(tmp_path, "", (), "fail").run(target="u")
    assert ["attainment > 95%", "failed < 1%", "ttft.p99 < 2s"] == asked[0]["require"]
    assert ("ttft=1s", ["attainment > 90%"]) == (asked[1]["slo"], asked[1]["require"])
    assert ([], None) == (asked[2]["require"], asked[2].get("slo"))


@pytest.mark.parametrize(
    ("meaning", "outcome"), [("fail", pytest.fail.Exception), ("skip", pytest.skip.Exception), ("pass", None)]
)
def test_an_open_gate_is_what_the_marker_says(
    tmp_path: Path, meaning: str, outcome: type[BaseException] | None
) -> None:
    """A failure unless it may be skipped or passed; the sentence of the gate is the reason."""
    judged = Goodput(tmp_path, "", (), meaning)
    found = Measured(3, {"sentence": "The data cannot decide."}, tmp_path)
    with pytest.raises(outcome, match="The data cannot decide") if outcome is not None else nullcontext():
        judged._judge("gate", found)


def test_a_gate_in_a_test(inner: pytest.Pytester) -> None:
    """A gate that fails with the reason, and one that cannot be made; both by a child process."""
    inner.makepyfile("""
        import pytest
        SAME = "emulated:chunked,model=demo-8b"

        @pytest.mark.slo("ttft=500ms,tpot=20ms")
        def test_worse(goodput):
            worse = SAME + ",max_num_batched_tokens=128"
            goodput.gate(baseline=SAME, candidate=worse, virtual=True, rate=4, requests=30, pairs=3)

        def test_wrong(goodput):
            goodput.gate(baseline=SAME, candidate="emulated:chunkd", virtual=True, rate=4)
    """)
    result = inner.runpytest_subprocess("-q", "-rf")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*goodput gate failed: The candidate is worse than allowed: *ttft.p90*"])
    result.stdout.fnmatch_lines(["*chunkd*did you mean*"])


def test_an_objective_in_a_test(inner: pytest.Pytester) -> None:
    """The marker's share is reached, the further requirement is not: measured only, the test sees both."""
    inner.makepyfile("""
        import json
        import pytest

        @pytest.mark.slo("ttft=3s,tpot=500ms,share=80%", require=["ttft.p50 < 1ms"])
        def test_missed(goodput, tmp_path):
            rows = [f"{i * 0.05:.2f},64,3" for i in range(30)]
            trace = tmp_path / "t.csv"
            trace.write_text("\\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\\n")
            found = goodput.run(check=False, backend="emulated:chunked,model=demo-8b", virtual=True, trace=trace)
            assert (1.0, "valid", 1) == (found.attainment, found.verdict, found.exit_code)
            results = json.loads((found.directory / "requirements.json").read_text())
            assert [r["verdict"] for r in results] == ["PASS", "FAIL"]
    """)
    inner.runpytest_subprocess("-q", "-rf").assert_outcomes(passed=1)
