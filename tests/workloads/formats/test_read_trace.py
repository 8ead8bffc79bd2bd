"""`read_trace`: every public format, every quirk, and what is wrong with the rest."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from workloads.errors import WorkloadError
from workloads.formats import FORMATS, read_trace
from workloads.trace import Rejected, Trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = ((5_000_000_000, 3, 4), (5_250_000_000, 5, 6), (6_000_000_000, 7, 8))
GOOD = "2023-11-16 18:15:20.0000000,100,7\n"


def span(row: tuple[int, int, int]) -> dict[str, object]:
    """An OTLP span with token usage; 64-bit integers are strings there."""
    time_ns, prompt, output = row
    usage = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output}
    attributes = [{"key": key, "value": {"intValue": str(value)}} for key, value in usage.items()]
    start = str(1_700_000_000_000_000_000 + time_ns)
    return {"startTimeUnixNano": start, "spanId": str(time_ns), "attributes": attributes}


def read(tmp_path: Path, text: str, **options: str) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(text.encode())
    return read_trace(path, **options)  # type: ignore[arg-type]


def code_of(tmp_path: Path, text: str, **options: str) -> str:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, text, **options)
    assert caught.value.message.endswith(".")
    return caught.value.code


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    """Comma, semicolon, tab and bar; an empty last cell is still a cell."""
    rows = HEADER + GOOD + "2023-11-16 18:15:21,5,\n"
    trace = read(tmp_path, rows.replace(",", separator))
    assert trace.prompt_tokens.tolist() == [100]
    assert trace.rejected == (Rejected(3, "number"),)


def test_header_spellings(tmp_path: Path) -> None:
    """Case, order, blanks, quotes and further columns of the header do not matter."""
    text = '"generatedtokens", NumImages ,timestamp,CONTEXTTOKENS\n"7",2,"2023-11-16 18:15:20","1500.0"\n'
    trace = read(tmp_path, text)
    assert ([1500], [7]) == (trace.prompt_tokens.tolist(), trace.output_tokens.tolist())


def test_lone_carriage_returns_and_blank_lines(tmp_path: Path) -> None:
    """Old line ends read like new ones, and blank lines keep their place in the count."""
    text = (HEADER + "\n" + GOOD + "\n" + "x,1,1\n").replace("\n", "\r")
    assert read(tmp_path, text).rejected == (Rejected(5, "timestamp"),)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2023-11-16 18:15:20", "columns"),
        ("2023-11-16 18:15:20,1", "columns"),
        ("2023-11-16 18:15:20,1,500,7", "columns"),
        ('2023-11-16 18:15:20,"1,500",7', "number"),
        ("2023-11-16 18:15:20,1_500,7", "number"),
        ("2023-11-16 18:15:20,1.5,7", "number"),
        ("2023-11-16 18:15:20,1e3,7", "number"),
        ("2023-11-16 18:15:20,٣,7", "number"),
        ("2023-11-16 18:15:20,inf,7", "number"),
        ("2023-11-16 18:15:20,99999999999999999999,7", "number"),
        ("2023-11-16 18:15:20,2147483648,7", "number"),
        ("2023-11-16 18:15:20,5,-1", "output_tokens<1"),
        ("2023-11-16 18:15:20,0,0", "prompt_tokens<1"),
        ("2016-12-31 23:59:60,5,7", "timestamp"),
        ("1700158520,5,7", "timestamp"),
        (",,", "timestamp"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "timestamp"),
    ],
)
def test_rejected_rows(tmp_path: Path, row: str, reason: str) -> None:
    """A row that cannot be replayed is listed with its line and one stable word; its neighbours are kept."""
    trace = read(tmp_path, HEADER + row + "\n" + GOOD)
    assert (1, (Rejected(2, reason),)) == (len(trace), trace.rejected)


def test_trailing_separators_are_harmless(tmp_path: Path) -> None:
    """Spreadsheets append empty cells."""
    assert len(read(tmp_path, HEADER + GOOD.strip() + ",,\n")) == 1


def test_zones_of_one_file_may_differ(tmp_path: Path) -> None:
    """Instants are compared, not wall clocks."""
    rows = "2024-05-10 02:00:01+02:00,1,1\n2024-05-10 00:00:00Z,2,2\n2024-05-10 00:00:02.5,3,3\n"
    trace = read(tmp_path, HEADER + rows)
    assert trace.arrival_ns.tolist() == [0, 1_000_000_000, 2_500_000_000]
    assert trace.prompt_tokens.tolist() == [2, 1, 3]
    assert trace.line is not None
    assert trace.line.tolist() == [3, 2, 4]


def test_origin(tmp_path: Path) -> None:
    """Two traces of one hour can be merged by their absolute times; relative ones have none."""
    assert read(tmp_path, HEADER + "bad,1,1\n1970-01-01 00:00:02.5,1,1\n").origin_ns == 2_500_000_000
    assert read(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n5.5,1,1\n").origin_ns is None


def test_clamp(tmp_path: Path) -> None:
    """Zero counts as one on request, and the trace says how often; a negative count stays wrong."""
    rows = "2023-11-16 18:15:20,0,0\n2023-11-16 18:15:21,5,0\n2023-11-16 18:15:22,-3,5\n"
    trace = read(tmp_path, HEADER + rows, zero_tokens="clamp")
    assert ([1, 5], [1, 1]) == (trace.prompt_tokens.tolist(), trace.output_tokens.tolist())
    assert trace.rejected == (Rejected(4, "prompt_tokens<1"),)
    assert trace.warnings == ("clamped: 2 rows with 0 tokens are replayed with 1",)


def test_the_same_trace_in_every_format(tmp_path: Path) -> None:
    """Azure, splitwise-sim, vidur, BurstGPT and Mooncake spellings of three rows have one content hash."""
    texts = {
        "azure-csv": HEADER + "2023-11-16 18:15:20,3,4\n2023-11-16 18:15:20.25,5,6\n2023-11-16 18:15:21,7,8\n",
        "splitwise-csv": "request_id,arrival_timestamp,prompt_size,token_size\n0,0.0,3,4\n1,0.25,5,6\n2,1,7,8\n",
        "vidur-csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n-1,3,4\n-0.75,5,6\n0.0,7,8\n",
        "burstgpt-csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,m,3,4,7,l\n5.25,m,5,6,11,l\n6,m,7,8,15,l\n5.5,m,7,0,7,l\n",
        "mooncake-jsonl": "".join(
            json.dumps({"timestamp": t, "input_length": p, "output_length": o}) + "\n"
            for t, p, o in ((0, 3, 4), (250, 5, 6), (1000.0, 7, 8.0))
        ),
        "qwen-jsonl": "".join(
            json.dumps({"chat_id": c, "timestamp": t, "input_length": p, "output_length": o}) + "\n"
            for c, t, p, o in ((0, 9, 3, 4), (1, 9.25, 5, 6), (2, 10, 7, 8))
        ),
        "goodput-csv": "arrival_ns,prompt_tokens,output_tokens\n0,3,4\n250000000,5,6\n1000000000,7,8\n",
        "csv": "start_time,prompt_tokens,completion_tokens\n7.5,3,4\n7.75,5,6\n8.5,7,8\n",
        "jsonl": "".join(
            json.dumps({"created": t, "usage": {"prompt_tokens": p, "completion_tokens": o}}) + "\n"
            for t, p, o in ((1_700_000_000, 3, 4), (1_700_000_000.25, 5, 6), (1_700_000_001, 7, 8))
        ),
        "otlp-json": json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(map(span, ROWS))}]}]}),
    }
    assert set(FORMATS) == {*texts, "lengths-csv"}
    sniffed = {name: read(tmp_path, text) for name, text in texts.items()}
    assert {name: read(tmp_path, text, format=name).content_hash for name, text in texts.items()} == {
        name: trace.content_hash for name, trace in sniffed.items()
    }
    sessionless = {name: trace.content_hash for name, trace in sniffed.items() if trace.session is None}
    assert (1, len(texts) - 1) == (len(set(sessionless.values())), len(sessionless))


def test_lengths_without_times(tmp_path: Path) -> None:
    """All rows at one instant, and a warning that arrivals have to be made; only when the file says it has totals."""
    header = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
    trace = read(tmp_path, header + "10,2,12,5\n0,5,5,0\n7,3,10,2.3\n")
    assert ([0, 0], [10, 7], [2, 3]) == tuple(
        column.tolist() for column in (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    )
    assert (Rejected(3, "prompt_tokens<1"),) == trace.rejected
    assert ["no_arrivals"] == [warning.split(":")[0] for warning in trace.warnings]
    short = "num_prefill_tokens,num_decode_tokens\n10,2\n"
    assert 1 == len(read(tmp_path, short, format="lengths-csv"))


def test_burstgpt_sessions(tmp_path: Path) -> None:
    """Equal session ids are one session, whatever they look like; an empty one is none."""
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    rows = "5,a7,0,m,1,1,2,l\n6,,0,m,1,1,2,l\n7,b8,0,m,1,1,2,l\n8,a7,0,m,1,1,2,l\n"
    trace = read(tmp_path, header + rows)
    assert trace.session is not None
    assert trace.session.tolist() == [0, -1, 1, 0]


def test_qwen_chats(tmp_path: Path) -> None:
    """A chat's turns form one session; times are seconds and prefix blocks 16 tokens."""
    rows = [
        {"chat_id": 10, "parent_chat_id": -1, "timestamp": 1, "turn": 1, "hash_ids": [1]},
        {"chat_id": 11, "parent_chat_id": 10, "timestamp": 2.5, "turn": 2, "hash_ids": [1, 2]},
        {"chat_id": 12, "parent_chat_id": 11, "timestamp": 4, "turn": 3},
        {"chat_id": 13, "parent_chat_id": -1, "timestamp": 5, "turn": 1},
        {"chat_id": 14, "parent_chat_id": 3, "timestamp": 6, "turn": 2},
    ]
    text = "\n".join(json.dumps({**row, "input_length": 20, "output_length": 1, "type": "text"}) for row in rows)
    trace = read(tmp_path, text)
    assert trace.arrival_ns.tolist() == [0, 1_500_000_000, 3_000_000_000, 4_000_000_000, 5_000_000_000]
    assert trace.session is not None
    assert trace.turn is not None
    assert trace.prefix is not None
    assert ([10, 10, 10, 13, 3], [1, 2, 3, 1, 2]) == (trace.session.tolist(), trace.turn.tolist())
    assert (16, [[1], [1, 2], [], [], []]) == (trace.prefix.block_tokens, [trace.prefix.row(i) for i in range(5)])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1, 2]", "json"),
        ("7", "json"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}', "json"),
        ("[" * 100_000, "json"),
        ('{"timestamp": 1, "input_length": 1}', "columns"),
        ('{"timestamp": null, "input_length": 1, "output_length": 1}', "timestamp"),
        ('{"timestamp": true, "input_length": 1, "output_length": 1}', "timestamp"),
        ('{"timestamp": 1e99, "input_length": 1, "output_length": 1}', "timestamp"),
        ('{"timestamp": "yesterday", "input_length": 1, "output_length": 1}', "timestamp"),
        ('{"timestamp": 1, "input_length": 1.5, "output_length": 1}', "number"),
        ('{"timestamp": 1, "input_length": 1e999999, "output_length": 1}', "number"),
        ('{"timestamp": 1, "input_length": "1", "output_length": 1}', "number"),
        ('{"timestamp": 1, "input_length": true, "output_length": 1}', "number"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 99999999999999999999999}', "number"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 0}', "output_tokens<1"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 5}', "hash_ids"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}', "hash_ids"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [99999999999999999999]}', "hash_ids"),
    ],
)
def test_rejected_json_lines(tmp_path: Path, line: str, reason: str) -> None:
    """What is no object, lacks a key or holds the wrong kind of value is listed, its neighbours are kept."""
    trace = read(tmp_path, '{"timestamp": 0, "input_length": 5, "output_length": 2}\n' + line)
    assert (1, (Rejected(2, reason),)) == (len(trace), trace.rejected)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_trace"),
        ("\n \n", "empty_trace"),
        ("\ufeff", "empty_trace"),
        (HEADER, "empty_trace"),
        (HEADER + "x,y,z\n", "empty_trace"),
        ("{}\n", "missing_column"),
        ('{"timestamp": 0, "input_length": 5}\n', "missing_column"),
        ("num_prefill_tokens,num_decode_tokens\n1,2\n", "missing_column"),
        ('{"resourceSpans": []}\n', "missing_column"),
        ('{"time": "2024-05-10T00:00:00Z", "usage": {"prompt_tokens": 1}}\n', "missing_column"),
        ("a,b,c\n1,2,3\n", "unknown_format"),
        (GOOD, "unknown_format"),
        ("<html>\n", "unknown_format"),
        ('[{"timestamp": "' + "x" * 200_000 + '"}]', "unknown_format"),
        (HEADER.strip() + ",TimeStamp\n" + GOOD, "duplicate_column"),
    ],
)
def test_unusable_files(tmp_path: Path, text: str, code: str) -> None:
    """No request can come of it: one sentence and a stable code."""
    assert code == code_of(tmp_path, text)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    """The sentence names what lacks and what is there."""
    with pytest.raises(
        WorkloadError, match=r"lacks the columns ContextTokens, GeneratedTokens .* has the columns TIME"
    ):
        read(tmp_path, "TIMESTAMP,Foo\n1,2\n")


def test_a_stated_format_wins(tmp_path: Path) -> None:
    """With --format the header is judged by that format, and an unknown one is refused."""
    assert code_of(tmp_path, HEADER + GOOD, format="vidur-csv") == "missing_column"
    assert code_of(tmp_path, HEADER + GOOD, format="parquet") == "unknown_format"


def test_gzip(tmp_path: Path) -> None:
    """A compressed trace equals the plain one."""
    (tmp_path / "t.gz").write_bytes(gzip.compress((HEADER + GOOD).encode()))
    assert read(tmp_path, HEADER + GOOD).content_hash == read_trace(tmp_path / "t.gz").content_hash
