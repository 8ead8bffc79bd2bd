"""`python -P -m loadtest.backends.engine`: one worker process, started by `crew.py`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import socket
import sys
import threading
from importlib.util import find_spec

import msgspec
import torch

from loadtest import clock
from loadtest.backends.engine.channel import Channel
from loadtest.backends.engine.crew import HEARTBEAT_S
from loadtest.backends.engine.kvcache import KvCache, kv_shape
from loadtest.backends.engine.link import Inbox, Link, SharedLink, TcpLink, VirtualWire, shared_tensor
from loadtest.backends.engine.messages import Begin, Heartbeat, Hello, ToWorker
from loadtest.backends.engine.model import Model
from loadtest.backends.engine.phases import DecodeWorker, PrefillWorker
from loadtest.backends.engine.pusher import Pusher
from loadtest.backends.engine.runner import Runner
from loadtest.backends.engine.settings import Settings
from loadtest.backends.engine.weights import load_weights
from loadtest.backends.engine.worker import Worker
from loadtest.errors import GoodputError, UsageError
from loadtest.supervise import die_with_parent


def main() -> int:
    """Exit status 0 when the server is gone; a failure says why in its last line on stderr."""
    die_with_parent()
    options = _options()
    settings = msgspec.json.decode(options.settings, type=Settings)
    channel = Channel[ToWorker](socket.socket(fileno=options.channel), ToWorker)
    try:
        (begin,) = channel.receive(None)  # the server may keep us for when another worker dies
    except EOFError:
        return 0
    assert isinstance(begin, Begin)
    _take_cores(begin.cores, settings.threads)
    try:
        worker, hello = _build(settings, begin, options.memory, channel)
    except GoodputError as error:
        sys.stderr.write(f"{error.message}\n")
        return int(error.exit_code)
    gc.collect()
    gc.freeze()
    channel.send(hello)
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    worker.run()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m loadtest.backends.engine")
    parser.add_argument("--settings", required=True)
    parser.add_argument("--channel", type=int, required=True, help="file descriptor of the socket to the server")
    parser.add_argument("--memory", type=int, default=-1, help="file descriptor of the decode worker's KV memory")
    return parser.parse_args()


def _take_cores(cores: list[int], threads: int) -> None:
    if cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)


def _build(settings: Settings, begin: Begin, memory: int, channel: Channel[ToWorker]) -> tuple[Worker, Hello]:
    device, dtype = _device(settings), getattr(torch, settings.dtype)
    shape = settings.shape
    weights = load_weights(settings.model, shape, dtype, device, settings.weights_seed)
    model = Model(shape, weights, settings.max_model_len)
    size = kv_shape(shape.layers, settings.num_blocks, settings.block_size, shape.kv_heads, shape.head_dim)
    shared = KvCache(shared_tensor(memory, size, dtype)) if memory >= 0 else None
    own = shared if shared is not None and begin.role == "decode" else None
    cache = own or KvCache(torch.empty(size, dtype=dtype, device=device))
    runner = Runner(model, cache, paged=_paged(settings, device, dtype))
    ticker = clock.MonotonicClock()
    hello = Hello("", settings.num_blocks, _facts(settings, begin, runner))
    if begin.role == "both":
        return Worker(settings, channel, runner, ticker), hello
    if begin.role == "decode":
        inbox = Inbox(runner.cache, channel.wake) if settings.kv_link == "tcp" else None
        hello = msgspec.structs.replace(hello, address=inbox.address if inbox else "")
        return DecodeWorker(settings, channel, runner, ticker, inbox), hello
    link: Link = SharedLink(runner.cache, shared) if shared is not None else TcpLink(runner.cache)
    wire = VirtualWire(settings.kv_link_gbps, settings.kv_link_latency_us)
    pusher = Pusher(link, wire, shape.layers, ticker, channel.send)
    pusher.start()
    return PrefillWorker(settings, channel, runner, ticker, pusher), hello


def _device(settings: Settings) -> torch.device:
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"device=cuda, but torch {torch.__version__} finds no CUDA device", hint="write device=cpu", code="no_cuda"
        )
    return torch.device(settings.device)


def _paged(settings: Settings, device: torch.device, dtype: torch.dtype) -> bool:
    """On a GPU, where Triton is there and its kernel agrees with torch's own attention."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    from loadtest.backends.engine.pageddecode import probe

    shape = settings.shape
    return probe(dtype, device, shape.heads, shape.kv_heads, shape.head_dim, settings.block_size)


def _facts(settings: Settings, begin: Begin, runner: Runner) -> dict[str, str | int | float]:
    weights = runner.model.weights
    layers = [tensor for layer in weights.layers for tensor in vars(layer).values() if tensor is not None]
    ends = {id(tensor): tensor for tensor in (weights.embedding, weights.head, weights.norm)}.values()
    return {
        "role": begin.role,
        "pid": os.getpid(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if settings.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "decode": "triton" if runner.paged else "torch",
        "cores": ",".join(map(str, begin.cores)),
        "parameters": sum(tensor.numel() for tensor in [*layers, *ends]),
    }


def _beat(channel: Channel[ToWorker]) -> None:
    """A long iteration is no death: heartbeats come from a thread of their own."""
    with contextlib.suppress(OSError):
        while True:
            clock.sleep(HEARTBEAT_S)
            channel.send(Heartbeat())


if __name__ == "__main__":
    sys.exit(main())
