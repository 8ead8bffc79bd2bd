"""Launch files of a design, so that what was planned can be measured: the emulated deployment, and vLLM's arguments.

vLLM schedules in chunks, or whole prompts beside the running decodes; prompts before decodes it does no longer, so such
a design has no vLLM file. What the arguments mean is in docs/real-servers.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadtest.backends.perfmodel import MODELS
from loadtest.backends.spec import ClusterSpec, Pool, resolve
from loadtest.deployment import Deployment, PoolSize

EMULATED, VLLM = "emulated.toml", "vllm.toml"
HUGGING_FACE: Final = {
    "llama2-70b": "meta-llama/Llama-2-70b-hf",
    "bloom-176b": "bigscience/bloom",
    "opt-13b-distserve": "facebook/opt-13b",
    "opt-13b-vllm": "facebook/opt-13b",
    "opt-66b-distserve": "facebook/opt-66b",
    "opt-66b-vllm": "facebook/opt-66b",
}
OFFLINE: Final = {"VLLM_NO_USAGE_STATS": "1"}


def launch_files(deployment: Deployment, about: str) -> dict[str, str]:
    """Texts of the launch files of a design, by name; `about` is one line that says what it was planned for."""
    found = {EMULATED: _lines(f"# {about}", f"deployment = {_text(str(deployment))}")}
    spec = resolve(deployment)
    if deployment.arrangement in ("chunked", "colocated"):
        found[VLLM] = _lines(*_head(deployment, about), *_single(deployment, spec), *_settings(spec))
    elif deployment.arrangement == "disaggregated":
        found[VLLM] = _lines(*_head(deployment, about), *_pair(deployment, spec), *_settings(spec))
    return found


def _head(deployment: Deployment, about: str) -> Iterator[str]:
    machines = " + ".join(f"{pool.instances} x {pool.tp} {pool.hardware}" for pool in deployment.pools)
    yield f"# {about}"
    yield f"# vLLM for {deployment}: {machines}."
    yield "# Not run in this form by our tests; written as examples/vllm-*.toml are. All processes start on this"
    yield "# machine: for more GPUs than it has, start them where they belong and measure the URL."


def _single(deployment: Deployment, spec: ClusterSpec) -> Iterator[str]:
    """One pool: vLLM's own data parallelism balances between equal instances."""
    size, pool = deployment.pools[0], spec.pools[0]
    words = [*_serve(size, pool), "--port", "{port}"]
    if size.instances > 1:
        words += ["--data-parallel-size", str(size.instances)]
    if deployment.arrangement == "chunked":
        words += ["--enable-chunked-prefill", "--max-num-batched-tokens", _budget(deployment)]
    else:  # whole prompts: vLLM then wants room for the longest one
        budget = max(int(_budget(deployment)), spec.max_model_len)
        words += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(budget)]
    if size.instances > 1 and pool.perf.model.shape.active_parameters < pool.perf.model.parameters:
        yield "# A mixture of experts: vLLM's data-parallel ranks run in step and share the expert layers, the planned"
        yield "# instances are independent. Measure one, or start them apart behind a router of your own."
    yield from _command(words)
    yield f'ready = "/health"\ngpus = {size.gpus}'
    yield f"env = {_table(OFFLINE)}"
    yield '\n[metrics]\nserver = "/metrics"'


def _pair(deployment: Deployment, spec: ClusterSpec) -> Iterator[str]:
    """Two pools behind a router, each instance a process on GPUs of its own."""
    names = [f"{size.role}{number}" for size in deployment.pools for number in range(1, size.instances + 1)]
    words = ["vllm-router", "--host", "127.0.0.1", "--port", "{port}", "--vllm-pd-disaggregation"]
    for name in names:
        words += [f"--{name.rstrip('0123456789')}", f"http://127.0.0.1:{{{name}_port}}"]
    words += ["--policy", "round_robin", "--kv-connector", "nixl", "--prometheus-host", "127.0.0.1"]
    yield from _command([*words, "--prometheus-port", "{router_metrics_port}"])
    yield f'ready = "/health"\ngpus = {deployment.gpus}'
    first = 0
    for size, pool in zip(deployment.pools, spec.pools, strict=True):
        for number in range(1, size.instances + 1):
            words = [*_serve(size, pool), "--max-num-batched-tokens", _budget(deployment, size.role)]
            yield from _instance(f"{size.role}{number}", size.role, words, range(first, first + size.tp))
            first += size.tp
    yield "\n[metrics]"
    yield from (f'{name} = "http://127.0.0.1:{{{name}_port}}/metrics"' for name in names)


def _instance(name: str, role: str, words: list[str], gpus: range) -> Iterator[str]:
    kv_role = "kv_producer" if role == "prefill" else "kv_consumer"
    transfer = {"kv_connector": "NixlConnector", "kv_role": kv_role, "kv_buffer_device": "{buffer}"}
    env = {
        **OFFLINE,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": f"{{{name}_side_port}}",
    }
    yield f'\n[[before]]\nname = "{name}"'
    yield from _command([*words, "--port", f"{{{name}_port}}", "--kv-transfer-config", json.dumps(transfer)])
    yield f'ready = "http://127.0.0.1:{{{name}_port}}/health"\nenv = {_table(env)}'


def _serve(size: PoolSize, pool: Pool) -> list[str]:
    """What every instance is started with."""
    words = ["vllm", "serve", "{model}", "--served-model-name", "{name}", "--host", "127.0.0.1", "--dtype", "{dtype}"]
    words += ["--tensor-parallel-size", str(size.tp), "--max-model-len", "{max_model_len}"]
    return [*words, "--max-num-seqs", str(pool.limits.max_num_seqs), "--no-enable-prefix-caching"]


def _settings(spec: ClusterSpec) -> Iterator[str]:
    """What is likely to be another on the user's machine: `--set model=...`."""
    name = spec.model if spec.model in MODELS else Path(spec.model).parent.resolve().name
    model = HUGGING_FACE.get(spec.model, spec.model if spec.model in MODELS else str(Path(spec.model).parent))
    yield f'\n[set]\nmodel = {_text(model)}\nname = {_text(name)}\ndtype = "auto"\nmax_model_len = {spec.max_model_len}'
    if len(spec.pools) > 1:
        yield 'buffer = "cuda"'


def _budget(deployment: Deployment, role: str = "") -> str:
    return str(deployment.of_pool("max_num_batched_tokens", role))


def _command(words: list[str]) -> Iterator[str]:
    """An argument list, a few words a line."""
    yield "command = ["
    row: list[str] = []
    for word in map(_text, words):
        if row and len(", ".join([*row, word])) > 110:
            yield f"    {', '.join(row)},"
            row = []
        row.append(word)
    yield f"    {', '.join(row)},\n]"


def _table(values: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{key} = {_text(value)}" for key, value in values.items()) + " }"


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are among TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
