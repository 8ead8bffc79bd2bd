"""The launch files of a design, read back with the parser that starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.deployment import Deployment
from loadtest.plan.emit import EMULATED, VLLM, launch_files
from loadtest.replay.options import SenderOptions
from loadtest.sides import BundledSide, EndpointOptions, LaunchedSide, Side, launched
from loadtest.target import LoadSettings

MIXTRAL = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
CHUNKED = "emulated:chunked,model=llama2-70b,hardware=h100,tp=4,instances=2,max_num_batched_tokens=512"
COLOCATED = "emulated:colocated,model=llama2-70b,hardware=a100,tp=8,max_num_batched_tokens=2048"
TWO_POOLS = "emulated:disaggregated,model=llama2-70b,prefill=2,decode=1,prefill_tp=2,decode_tp=4"
DESIGNS = (CHUNKED, COLOCATED, "emulated:colocated_prefill_first", TWO_POOLS)


def side(folder: Path, text: str, name: str, **values: str) -> Side:
    """The side that an emitted file describes."""
    for file, content in launch_files(Deployment.parse(text), 'goodput plan: "quoted"').items():
        (folder / file).write_text(content, encoding="utf-8")
    return launched(folder / name, values, LoadSettings(SenderOptions()), EndpointOptions())


def vllm(folder: Path, text: str, **values: str) -> LaunchedSide:
    found = side(folder, text, VLLM, **values)
    assert isinstance(found, LaunchedSide)
    return found


def option(command: list[str], flag: str) -> str:
    """The word after a flag that stands there once."""
    assert 1 == command.count(flag)
    return command[command.index(flag) + 1]


@pytest.mark.parametrize("text", DESIGNS, ids=lambda text: text.partition(",")[0].partition(":")[2])
def test_the_emulated_file_is_the_design(tmp_path: Path, text: str) -> None:
    """Nothing is lost on the way through the file."""
    found = side(tmp_path, text, EMULATED)
    assert isinstance(found, BundledSide)
    assert Deployment.parse(text) == found.deployment


def test_chunks_and_equal_instances_are_vllms_own(tmp_path: Path) -> None:
    """Degree, instances, budget and batch slots of the design; 8 GPUs."""
    file = vllm(tmp_path, CHUNKED).file
    flags = ("--tensor-parallel-size", "--data-parallel-size", "--max-num-batched-tokens", "--max-num-seqs")
    assert ["4", "2", "512", "256"] == [option(file.command, flag) for flag in flags]
    assert "--enable-chunked-prefill" in file.command
    assert 8 == file.gpus


def test_experts_in_several_instances_are_not_what_vllm_does(tmp_path: Path) -> None:
    """The file says so: its ranks share the expert layers."""
    config = tmp_path / "moe" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(MIXTRAL))
    text = f"emulated:chunked,model={config},hardware=h200,tp=1,instances="
    one, two = (launch_files(Deployment.parse(f"{text}{count}"), "")[VLLM] for count in (1, 2))
    assert ("mixture of experts" in one, "mixture of experts" in two) == (False, True)
    assert "moe" == vllm(tmp_path, f"{text}2").file.set["name"]


def test_whole_prompts_want_a_budget_of_the_whole_context(tmp_path: Path) -> None:
    """vLLM refuses a smaller one without chunks."""
    file = vllm(tmp_path, COLOCATED).file
    assert "16384" == option(file.command, "--max-num-batched-tokens")
    assert "--no-enable-chunked-prefill" in file.command
    assert "--data-parallel-size" not in file.command


def test_two_pools_stand_behind_a_router(tmp_path: Path) -> None:
    """A process per instance, each with GPUs and ports of its own, producers and consumers."""
    file = vllm(tmp_path, TWO_POOLS).file
    assert ["prefill1", "prefill2", "decode1"] == [part.name for part in file.before]
    assert ["0,1", "2,3", "4,5,6,7"] == [part.env["CUDA_VISIBLE_DEVICES"] for part in file.before]
    assert ["2", "2", "4"] == [option(part.command, "--tensor-parallel-size") for part in file.before]
    roles = ["kv_producer" in option(part.command, "--kv-transfer-config") for part in file.before]
    assert [True, True, False] == roles
    assert (2, 1, 8) == (file.command.count("--prefill"), file.command.count("--decode"), file.gpus)
    assert {"prefill1", "prefill2", "decode1"} == file.metrics.keys()
    assert 3 == len({part.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] for part in file.before})


def test_there_is_no_vllm_that_puts_prompts_first() -> None:
    """So there is no file that pretends to be one."""
    assert {EMULATED} == launch_files(Deployment.parse("emulated:colocated_prefill_first"), "").keys()


def test_the_model_is_the_users_to_set(tmp_path: Path) -> None:
    """By default the one that was planned, by its name on Hugging Face or its folder."""
    assert "meta-llama/Llama-2-70b-hf" == vllm(tmp_path, CHUNKED).file.set["model"]
    assert "/models/mine" == vllm(tmp_path, CHUNKED, model="/models/mine").file.set["model"]
