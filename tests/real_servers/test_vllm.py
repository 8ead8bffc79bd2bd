"""vLLM from its own wheel, one instance and a disaggregated pair: our counts against its counters; nothing is left."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from loadtest.cli.main import run as goodput
from metrics import rundir
from metrics.records import Outcome

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("GOODPUT_REAL_SERVERS", ROOT / ".real-servers"))
BIN, MODEL = HOME / "vllm" / "bin", HOME / "tiny-hf"

pytestmark = [pytest.mark.real_server, pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]


def needs(program: str, stage: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not ((BIN / program).exists() and MODEL.exists()),
        reason=f"vLLM is not installed here: scripts/real-servers {stage} --install",
    )


@pytest.mark.parametrize(
    "arrangement",
    [
        pytest.param("chunked", marks=needs("vllm", "vllm")),
        pytest.param("disaggregated", marks=needs("vllm-router", "vllm-disagg")),
    ],
)
def test_vllm_is_launched_loaded_and_stopped(tmp_path: Path, arrangement: str) -> None:
    """Every request answered in full; prompt and output tokens are those of the server's own pages."""
    row = '{{"timestamp": {}, "input_length": {}, "output_length": 12}}\n'
    (tmp_path / "trace.jsonl").write_text("".join(row.format(400 * i, 40 + 150 * i) for i in range(4)))
    words = ["--set", f"bin={BIN}/", "--set", f"model={MODEL}", "--trace", str(tmp_path / "trace.jsonl")]
    words += ["--max-in-flight", "1", "--timeout", "200s"]  # two instances that poll on a busy machine take their time
    file = ROOT / "examples" / f"vllm-{arrangement}.toml"
    assert goodput(["launch", str(file), *words, "--out", str(tmp_path / "run")]) in (0, 4)  # 4 on a busy machine
    run = rundir.load(tmp_path / "run")
    assert [Outcome.OK] * 4 == run.table.rows["outcome"].tolist()
    assert [12] * 4 == run.table.rows["output_tokens"].tolist()
    told = {
        line["quantity"]: line["servers"]
        for line in msgspec.json.decode((tmp_path / "run" / "server.json").read_bytes())
    }
    pool = "prefill" if arrangement == "disaggregated" else "server"
    assert sum(40 + 150 * i for i in range(4)) == told["prompt tokens"][pool]
