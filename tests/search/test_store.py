"""A search that was interrupted goes on where it was, and ends with the same answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.search import Counted, Search, VirtualRuns, store
from loadtest.search.job import SearchJob, Variant
from loadtest.sides import VirtualSide
from metrics.objective import parse_objective
from metrics.search import SearchReport
from metrics.slo import SLO

SLO_ = SLO(ttft_s=1.0, tpot_s=0.045)
CHUNKED = Deployment.parse("emulated:chunked")


class Counting(VirtualRuns):
    """Runs that remember which of them were made."""

    made: list[int]

    def __call__(self, rate_per_s: float, number: int) -> Counted:
        self.made = [*getattr(self, "made", []), number]
        return super().__call__(rate_per_s, number)


def test_a_resumed_search_makes_only_the_missing_runs_and_finds_the_same() -> None:
    """Cut anywhere: same rates, same estimate."""
    whole = Search(VirtualRuns(CHUNKED, "azure-conv", SLO_), 0.9).run(1.5, 6)
    for kept in (1, 4, len(whole.attempts)):
        runs = Counting(CHUNKED, "azure-conv", SLO_)
        again = Search(store.Resumed(runs, whole.attempts[:kept]), 0.9).run(1.5, 6)
        assert whole == again
        assert list(range(kept, len(whole.attempts))) == getattr(runs, "made", [])


def test_a_stored_search_does_not_go_on_with_other_options() -> None:
    """Its rates tell."""
    whole = Search(VirtualRuns(CHUNKED, "azure-conv", SLO_), 0.9).run(1.5, 6)
    with pytest.raises(UsageError, match=r"was at 1.5 requests/s, not 1.2"):
        Search(store.Resumed(VirtualRuns(CHUNKED, "azure-conv", SLO_), whole.attempts), 0.9).run(1.2, 6)


def job(directory: Path, slo: str = "ttft=1s,tpot=45ms", seed: int = 0) -> SearchJob:
    return SearchJob(
        mode="search",
        trace="azure-conv",
        objective=parse_objective(slo),
        directory=directory,
        command=["goodput", "search"],
        seed=seed,
        least_requests=100,
    )


def variants() -> list[Variant]:
    return [Variant(text, VirtualSide(text, CHUNKED), CHUNKED, 8) for text in ("one", "two")]


def test_search_json_holds_the_whole_report(tmp_path: Path) -> None:
    """And reads back as it was."""
    report = job(tmp_path).run(variants())
    assert ("complete", "virtual", 2) == (report.state, report.clock, len(report.rows))
    assert report == store.read(tmp_path)
    assert report.rows[0].goodput == report.rows[1].goodput  # the same arrivals for both


def test_a_job_resumes_only_its_own_search(tmp_path: Path) -> None:
    """Another SLO or seed is another search."""
    before = job(tmp_path).run(variants())
    assert before == job(tmp_path).run(variants(), before)
    with pytest.raises(UsageError, match="the stored search has slo"):
        job(tmp_path, "ttft=2s").run(variants(), before)
    with pytest.raises(UsageError, match="the stored search has seed 0, not 1"):
        job(tmp_path, seed=1).run(variants(), before)


@pytest.mark.parametrize("content", [b"", b"{}", b"not json"])
def test_a_folder_without_a_search_is_refused(tmp_path: Path, content: bytes) -> None:
    """With its name."""
    (tmp_path / store.FILE).write_bytes(content)
    with pytest.raises(UsageError, match="holds no search"):
        store.read(tmp_path)


def test_the_report_has_a_published_schema() -> None:
    """Every nested struct can be described."""
    assert "SearchRow" in msgspec.json.schema(SearchReport)["$defs"]
