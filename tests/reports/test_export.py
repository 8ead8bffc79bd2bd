"""Exports: for spreadsheets, programs, monitors, issues, and people used to other tools."""

from __future__ import annotations

import csv
import io
import json

from metrics.bins import SHARES, Curve
from metrics.peers import peers
from metrics.requests import COLUMNS, request_rows
from metrics.summary import summarise
from reports import export, sparks
from reports.block import WIDTH, render_block
from reports.openmetrics import render_runs
from reports.peers import render_peers
from tests.reports import samples

RUN = samples.run(requests=60, failures=0.2)
SUMMARY = summarise(RUN, samples.TARGETS)


def test_csv_has_a_row_per_request_and_reads_back() -> None:
    """A header, the run's label, empty cells for what is unknown."""
    text = "".join(export.csv_lines([("a", request_rows(RUN, samples.TARGETS))]))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert 60 == len(rows)
    assert ["run", *COLUMNS] == list(rows[0])
    assert {"a"} == {row["run"] for row in rows}
    assert "" in {row["ttft_s"] for row in rows}


def test_a_servers_text_is_no_formula() -> None:
    """A spreadsheet would run what begins with an equals sign."""
    made = samples.run(requests=5, failures=1.0)
    made.table.errors[0] = "=cmd()"
    text = "".join(export.csv_lines([("a", request_rows(made, None))]))
    assert "'=cmd()" in text


def test_jsonl_is_strict_json_with_the_same_columns() -> None:
    """An object per line; null, never NaN."""
    lines = list(export.jsonl_lines([("a", request_rows(RUN, samples.TARGETS))]))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert {("run", *COLUMNS)} == {tuple(row) for row in rows}


def test_openmetrics_of_runs_ends_as_it_must() -> None:
    """Gauges with their type, labels escaped, `# EOF` last."""
    text = render_runs([('a "quoted"', SUMMARY)])
    assert text.endswith("# EOF\n")
    assert 'goodput_run_ttft_seconds{run="a \\"quoted\\"",quantile="0.5"}' in text
    names = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    typed = [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert set(names) == set(typed)


def test_a_figure_stands_alone() -> None:
    """Title, colours instead of the page's variables, and the key a page would have written."""
    page = samples.single_page(requests=40)
    made = dict(export.figures(page, "svg"))
    picture = made["phases-1.svg"].decode()
    assert "var(--" not in picture
    assert "Where the time goes" in picture
    assert "client lag" in picture
    assert len(made) >= 14


def test_a_figure_as_png_is_a_png() -> None:
    """One is enough: they are all made alike."""
    _, content = next(export.figures(samples.single_page(requests=20), "png"))
    assert content.startswith(b"\x89PNG")


def test_the_block_is_ascii_of_one_width() -> None:
    """It is pasted where nobody knows the font."""
    block = render_block(SUMMARY)
    assert block.isascii()
    assert {WIDTH} >= {len(line) for line in block.splitlines() if line.endswith("=")}
    assert max(map(len, block.splitlines())) <= WIDTH
    assert "attainment" in block


def test_peers_are_printed_in_their_own_shapes() -> None:
    """The block of vLLM everybody knows, and why the numbers differ."""
    text = render_peers(peers(RUN, samples.TARGETS), SUMMARY)
    assert "============ Serving Benchmark Result ============" in text
    assert "Mean TPOT (ms):" in text
    assert "Inter Token Latency (ms)" in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_spark_is_as_high_as_its_part_of_the_largest() -> None:
    """Nothing is a blank, something never is."""
    assert " ▁▄█" == sparks.spark([0.0, 0.001, 0.5, 1.0])
    assert "  " == sparks.spark([0.0, 0.0])


def test_resampling_keeps_the_mean() -> None:
    """Neighbours are averaged, short series stay as they are."""
    assert [1.5, 3.5] == sparks.resampled([1, 2, 3, 4], 2)
    assert [1.0, 2.0] == sparks.resampled([1, 2], 9)


def test_a_histogram_of_a_uniform_curve_is_flat() -> None:
    """Equal steps hold equal shares, and all of them together all values."""
    heights, low, high = sparks.histogram(Curve(100, [1.0 + share for share in SHARES]), 10)
    assert (1.0, 2.0) == (low, high)
    assert abs(sum(heights) - 1) < 1e-9
    assert max(heights) - min(heights) < 1e-6
    assert 5 == sparks.place(1.5, low, high, 10)
    assert sparks.place(3.0, low, high, 10) is None
