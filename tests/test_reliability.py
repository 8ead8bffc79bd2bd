"""The table of findings in docs/reliability.md: complete, and true about what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.soak import Counted, faults_of, targets

ROOT = Path(__file__).parent.parent
FINDINGS = range(1, 23)
_ROW = re.compile(r"\| (\d+): (.+) \| (.+) \| (.+) \|")


def rows() -> dict[int, tuple[str, str]]:
    """Mechanism and tests of each finding."""
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").partition("## Findings")[2]
    found = [match for match in map(_ROW.fullmatch, page.splitlines()) if match]
    assert len(found) == len({match[1] for match in found}), "a finding has two rows"
    return {int(match[1]): (match[3], match[4]) for match in found}


def test_each_finding_has_a_row() -> None:
    """In their order."""
    assert list(FINDINGS) == list(rows())


@pytest.mark.parametrize("finding", FINDINGS)
def test_what_a_row_names_is_there(finding: int) -> None:
    """At least one test file, by its path; every module by its name."""
    mechanism, tests = rows()[finding]
    paths = re.findall(r"`(tests/[\w/]+\.py)`", tests)
    assert paths
    assert [] == [path for path in paths if not (ROOT / path).is_file()]
    modules = {path.name for package in ("loadtest", "metrics", "reports", "workloads") for path in _code(package)}
    assert [] == [name for name in re.findall(r"`(\w+\.py)`", mechanism) if name not in modules]


def _code(package: str) -> list[Path]:
    return list((ROOT / package).rglob("*.py"))


def test_faults_of_a_soak_come_from_seed_and_number() -> None:
    """The same again; a death in every other run, and every fault within the load."""
    assert faults_of(3, 1, 60.0) == faults_of(3, 1, 60.0)
    assert faults_of(3, 1, 60.0) != faults_of(4, 1, 60.0)
    for run in range(1, 21):
        found = faults_of(run, 1, 60.0)
        assert run % 2 == sum(fault.kind == "kill" for fault in found)
        assert {"freeze", "full_disk"} <= {fault.kind for fault in found}
        assert all(9 <= fault.at_s <= 48 and fault.lasts_s <= 8 and fault.process in (-1, 0, 1, 2) for fault in found)
        assert [] == [fault for fault in found if fault.kind != "full_disk" and fault.process < 0]


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, []),
        ({"accounted": 9}, ["planned requests not accounted for"]),
        ({"twice": 1}, ["requests sent twice"]),
        ({"rows_lost": 1}, ["journalled rows lost"]),
        ({"ok": 0}, ["runs that answered nothing"]),
        ({"exit_code": 6}, ["runs with another exit code than 0 or 4"]),
        ({"grown_mib": 33.0}, ["growth of a master during a run"]),
        ({"descriptors": 1}, ["descriptors left"]),
        ({"processes": 1}, ["processes left"]),
    ],
)
def test_what_a_soak_takes_amiss(change: dict[str, float], missed: list[str]) -> None:
    """Each kind of loss by itself, in one of two runs."""
    good: dict[str, float] = {"run": 1, "planned": 10, "accounted": 10, "ok": 8, "exit_code": 4}
    counted = [Counted(**good), Counted(**{**good, **change})]  # type: ignore[arg-type]
    assert missed == [target.name for target in targets(counted) if not target.holds]
