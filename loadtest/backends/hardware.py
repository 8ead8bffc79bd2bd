"""GPUs: memory, speed, power and price of each, with their sources in data/hardware.json."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from loadtest.errors import UsageError


class Hardware(msgspec.Struct, frozen=True):
    """One GPU."""

    memory_gib: float
    tflops: float  # dense 16-bit tensor peak
    bandwidth_tb_s: float  # of its memory
    nvlink_gbps: float  # to its neighbours, one direction
    power_w: float
    machine_w: float  # of a machine of eight
    gpu_hour_usd: float
    kv_link: str
    kv_latency_us: float
    source: str = ""  # of its figures, and which of them nobody could verify


# What a calibrated server without a GPU runs on: no peaks to compare with, no price; its KV memory is for
# num_gpu_blocks to say.
CPU: Final = "cpu"
_HOST: Final = Hardware(
    memory_gib=16.0,
    tflops=0.0,
    bandwidth_tb_s=0.0,
    nvlink_gbps=80.0,
    power_w=0.0,
    machine_w=0.0,
    gpu_hour_usd=0.0,
    kv_link="ib200",
    kv_latency_us=0.0,
)


class _File(msgspec.Struct):
    source: str
    hardware: dict[str, Hardware]


@cache
def hardware_file() -> _File:
    """The whole table, with its sources."""
    return msgspec.json.decode((files("loadtest.backends") / "data" / "hardware.json").read_bytes(), type=_File)


def hardware(name: str) -> Hardware:
    """The GPU of that name, or the CPU; a UsageError names the nearest that exists."""
    if name == CPU:
        return _HOST
    table = hardware_file().hardware
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        raise UsageError(
            f"there is no hardware {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            hint=f"hardware: {', '.join(table)}",
            code="unknown_hardware",
        )
    return table[name]
