"""What is loaded, as one line of text: a bundled backend with its options, or a URL.

    emulated:chunked,model=llama2-70b,hardware=h100,tp=8,instances=2,max_num_batched_tokens=512
    emulated:disaggregated,prefill=1,decode=1,kv_link=ib400
    http://127.0.0.1:8000

The same text is used by every command, in TOML and in run.json; `str(Deployment.parse(text))` is its canonical
form (options in the order of the table below, defaults left out when they were left out).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from loadtest.backends.perfmodel import load_model, load_perf_model
from loadtest.errors import UsageError
from loadtest.weburl import split_url

Value = str | int | float

ARRANGEMENTS: Final = ("colocated", "colocated_prefill_first", "chunked", "disaggregated")
BACKENDS: Final = ("emulated", "torch")


def _at_least(low: int) -> Callable[[str], Value]:
    def parse(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError(f"at least {low}")
        return value

    parse.__doc__ = f"a whole number, at least {low}"
    return parse


def _positive(text: str) -> float:
    """a number above 0"""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError("above 0")
    return value


def _not_negative(text: str) -> float:
    """a number, 0 or more"""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("0 or more")
    return value


def _share(text: str) -> float:
    """a number above 0 and at most 1"""
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError("above 0 and at most 1")
    return value


def _watermark(text: str) -> float:
    """a number from 0 to below 1"""
    value = float(text)
    if not 0 <= value < 1:
        raise ValueError("from 0 to below 1")
    return value


def _one_of(*choices: str) -> Callable[[str], Value]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    parse.__doc__ = "one of " + ", ".join(choices)
    return parse


def _one_number(number: int) -> Callable[[str], Value]:
    def parse(text: str) -> int:
        if int(text) != number:
            raise ValueError
        return number

    parse.__doc__ = str(number)
    return parse


def _name(text: str) -> str:
    """a name"""
    if not text:
        raise ValueError
    return text


LINKS: Final = ("ib200", "ib400", "nvlink", "100GbE", "25GbE")


class Option(NamedTuple):
    """How a value is read, what it is when left out (None: derived), and which arrangements take it."""

    read: Callable[[str], Value]
    default: Value | None
    only: str = ""  # "disaggregated", "pooled" (all but disaggregated) or any


# In canonical order. Names are vLLM's where vLLM has one.
_OPTIONS: Final[dict[str, Option]] = {
    "model": Option(_name, "llama2-70b"),
    "hardware": Option(_name, "h100"),
    "tp": Option(_at_least(1), None),  # the model's own
    "instances": Option(_at_least(1), 1, "pooled"),
    "prefill": Option(_at_least(1), 1, "disaggregated"),
    "decode": Option(_at_least(1), 1, "disaggregated"),
    "pp": Option(_at_least(1), 1),
    "power_cap_w": Option(_positive, None),  # no cap
    "gpu_hour_usd": Option(_not_negative, None),  # the hardware's
    "kv_link": Option(_one_of(*LINKS), None, "disaggregated"),  # the prefill hardware's
    "kv_link_gbps": Option(_positive, None, "disaggregated"),  # the link's
    "kv_link_latency_us": Option(_not_negative, None, "disaggregated"),  # the prefill hardware's
    "kv_contention": Option(_one_of("port", "fabric", "none"), "port", "disaggregated"),
    "kv_transfer": Option(_one_of("serial", "layerwise", "hybrid"), "hybrid", "disaggregated"),
    "first_token": Option(_one_of("prefill", "decode"), "prefill", "disaggregated"),
    "mixed_pool": Option(_one_of("off", "on"), "off", "disaggregated"),
    "mixed_prompt_tokens": Option(_at_least(0), 8192, "disaggregated"),
    "mixed_decode_tokens": Option(_at_least(0), 2048, "disaggregated"),
    "max_num_batched_tokens": Option(_at_least(1), 2048),
    "max_num_seqs": Option(_at_least(1), None),  # 256, or the token budget if that is less
    "long_prefill_token_threshold": Option(_at_least(0), 0, "pooled"),
    "block_size": Option(_at_least(1), 16),
    "num_gpu_blocks": Option(_at_least(1), None),  # what fits into memory
    "watermark": Option(_watermark, 0.01),
    "gpu_memory_utilization": Option(_share, 0.9),
    "kv_policy": Option(_one_of("on_demand", "reserve_output"), "on_demand"),
    "max_model_len": Option(_at_least(2), 16384),
    "max_queue": Option(_at_least(1), None),  # no limit
    "router": Option(_one_of("jsq", "round_robin", "random"), "jsq"),
    "policy": Option(_name, None),  # the arrangement's
    "prefix_cache": Option(_one_of("off", "on"), "off"),
    "prefix_block_tokens": Option(_at_least(1), 512),
}

# What a pool of a disaggregated deployment may have of its own; left out, it has what the deployment has.
POOL_OPTIONS: Final = (
    *("hardware", "tp", "pp", "power_cap_w", "gpu_hour_usd"),
    *("max_num_batched_tokens", "max_num_seqs", "policy"),
)
OPTIONS: Final = _OPTIONS | {
    f"{role}_{key}": Option(_OPTIONS[key].read, None, "disaggregated")
    for key in POOL_OPTIONS
    for role in ("prefill", "decode")
}

# The reference engine's own (docs/engine.md): what it computes with is there to be measured, not described.
TORCH_OPTIONS: Final[dict[str, Option]] = {
    "model": Option(_name, "tiny"),
    "device": Option(_one_of("cpu", "cuda"), "cpu"),
    "dtype": Option(_one_of("float32", "bfloat16", "float16"), None),  # float32 on cpu, bfloat16 on cuda
    "threads": Option(_at_least(1), None),  # of each worker: its share of the cores
    "instances": OPTIONS["instances"],
    "prefill": Option(_one_number(1), 1, "disaggregated"),
    "decode": Option(_one_number(1), 1, "disaggregated"),
    "kv_link": Option(_one_of("shm", "tcp"), None, "disaggregated"),  # shm on cpu, tcp on cuda
    "kv_link_gbps": Option(_not_negative, 0.0, "disaggregated"),  # 0: as fast as it goes
    "kv_link_latency_us": Option(_not_negative, 0.0, "disaggregated"),
    "kv_transfer": OPTIONS["kv_transfer"],
    "layerwise_min_tokens": Option(_at_least(1), 512, "disaggregated"),
    "kv_lease_s": Option(_positive, 3.0, "disaggregated"),
    "on_worker_failure": Option(_one_of("fail", "recompute"), "fail"),
    "max_num_batched_tokens": OPTIONS["max_num_batched_tokens"],
    "max_num_seqs": OPTIONS["max_num_seqs"],
    "long_prefill_token_threshold": OPTIONS["long_prefill_token_threshold"],
    "block_size": OPTIONS["block_size"],
    "num_gpu_blocks": OPTIONS["num_gpu_blocks"],
    "max_model_len": Option(_at_least(2), None),  # the model's, at most 16384
    "max_queue": OPTIONS["max_queue"],
    "weights_seed": Option(_at_least(0), 0),
}
_TABLES: Final = {"emulated": OPTIONS, "torch": TORCH_OPTIONS}


def options_of(arrangement: str, backend: str = "emulated") -> dict[str, Option]:
    """The options an arrangement of a backend takes, in canonical order."""
    kind = "disaggregated" if arrangement == "disaggregated" else "pooled"
    return {key: option for key, option in _TABLES[backend].items() if option.only in ("", kind)}


class PoolSize(NamedTuple):
    """A pool of equal instances; `role` is prefill, decode, or empty for one that does both."""

    role: str
    instances: int
    tp: int
    hardware: str
    pp: int = 1

    @property
    def gpus(self) -> int:
        """Of all its instances."""
        return self.instances * self.tp * self.pp


@dataclass(frozen=True)
class Deployment:
    """One thing to load; equal when the canonical text is equal. Only the options that were written are kept."""

    backend: str
    arrangement: str = ""
    options: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    url: str | None = None

    @classmethod
    def parse(cls, text: str) -> Deployment:
        """Read the text form; a UsageError names what is wrong and the nearest thing that exists."""
        text = text.strip()
        if text.startswith(("http://", "https://")):
            return cls("url", url=_checked_url(text))
        backend, colon, rest = text.partition(":")
        if not colon or backend not in BACKENDS:
            raise UsageError(
                f"deployment {text!r} is neither a URL nor a bundled backend{_nearest(backend, BACKENDS)}",
                hint="write http://HOST:PORT or emulated:ARRANGEMENT[,key=value...]",
                code="bad_deployment",
            )
        arrangement, *parts = rest.split(",")
        if arrangement not in ARRANGEMENTS:
            raise UsageError(
                f"deployment {text!r} has no known arrangement{_nearest(arrangement, ARRANGEMENTS)}",
                hint=f"arrangements: {', '.join(ARRANGEMENTS)}",
                code="bad_deployment",
            )
        deployment = cls(backend, arrangement, MappingProxyType(_parse_options(text, backend, arrangement, parts)))
        if backend == "emulated":
            for pool in deployment.pools:  # a model or a machine that does not exist is the text's fault
                load_perf_model(str(deployment["model"]), pool.hardware, pool.tp)
        return deployment

    def __str__(self) -> str:
        if self.url is not None:
            return self.url
        return ",".join([f"{self.backend}:{self.arrangement}", *(f"{k}={_show(v)}" for k, v in self.options.items())])

    def __getitem__(self, key: str) -> Value:
        """An option's value, its default when it was left out; KeyError when it has neither."""
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: str) -> Value | None:
        """An option's value or its default; None when that is derived from other things."""
        table = _TABLES.get(self.backend, OPTIONS)
        return self.options.get(key, table[key].default if key in table else None)

    @property
    def pools(self) -> tuple[PoolSize, ...]:
        """The pools of instances, a prefill pool first; none for a URL."""
        if self.url is not None:
            return ()
        roles = ("prefill", "decode") if self.arrangement == "disaggregated" else ("",)
        return tuple(
            PoolSize(
                role,
                int(self[role or "instances"]),
                int(self.of_pool("tp", role) or self._default_tp()),
                str(self.of_pool("hardware", role) or self.get("device")),
                int(self.of_pool("pp", role) or 1),
            )
            for role in roles
        )

    def of_pool(self, key: str, role: str) -> Value | None:
        """An option of the pool with that role: its own, or the deployment's; None when that is derived."""
        own = self.options.get(f"{role}_{key}") if role else None
        return self.get(key) if own is None else own

    @property
    def gpus(self) -> int | None:
        """GPUs of all pools together; None for a URL, whose GPUs only the user knows."""
        return None if self.url is not None else sum(pool.gpus for pool in self.pools)

    @property
    def label(self) -> str:
        """A short name for tables and folders: `chunked x2`, `disaggregated 1P+1D`, a URL's host."""
        if self.url is not None:
            return urlsplit(self.url).netloc
        if self.arrangement == "disaggregated":
            return f"disaggregated {self['prefill']}P+{self['decode']}D"
        return self.arrangement if self["instances"] == 1 else f"{self.arrangement} x{self['instances']}"

    def _default_tp(self) -> int:
        return load_model(str(self["model"])).default_tp if self.backend == "emulated" else 1


def _parse_options(text: str, backend: str, arrangement: str, parts: Iterable[str]) -> dict[str, Value]:
    options = options_of(arrangement, backend)
    found: dict[str, Value] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in options:
            raise UsageError(
                f"deployment {text!r}: {arrangement} has no option {key!r}{_nearest(key, options)}",
                hint=f"options are written key=value: {', '.join(options)}",
                code="bad_deployment",
            )
        if key in found:
            raise UsageError(f"deployment {text!r}: option {key!r} is given twice", code="bad_deployment")
        found[key] = _parse_value(text, key, value, options[key].read)
    return {key: found[key] for key in options if key in found}


def _parse_value(text: str, key: str, value: str, read: Callable[[str], Value]) -> Value:
    try:
        return read(value)
    except ValueError:
        raise UsageError(
            f"deployment {text!r}: {key} must be {read.__doc__}, not {value!r}", code="bad_deployment"
        ) from None


def _checked_url(text: str) -> str:
    try:
        split_url(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a URL of a server: it {error}", hint="write http://HOST:PORT", code="bad_deployment"
        ) from None
    return text.rstrip("/")


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _show(value: Value) -> str:
    return str(value).removesuffix(".0")
