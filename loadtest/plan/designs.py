"""What a number of GPUs can be made into: arrangements, their settings, tensor degrees, pools and hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from loadtest.backends.perfmodel import load_model
from loadtest.backends.spec import resolve
from loadtest.deployment import OPTIONS, Deployment
from loadtest.errors import UsageError

DEGREES: Final = (1, 2, 4, 8)
BUDGETS: Final = {
    "colocated": (2048, 8192),
    "colocated_prefill_first": (2048,),
    "chunked": (256, 512, 1024, 2048, 4096),
}
SINGLE_POOL: Final = tuple(BUDGETS)
MAX_MODEL_LEN: Final = int(str(OPTIONS["max_model_len"].default))


@dataclass(frozen=True)
class Space:
    """What may be chosen: `hardware` kinds of GPU (all of them in any pool), `degrees` of tensor parallelism."""

    model: str
    hardware: tuple[str, ...]
    gpus: int
    degrees: tuple[int, ...] = ()

    def degrees_of(self, hardware: str) -> list[int]:
        """Tensor degrees that were measured, or where none was, those that the roofline covers; all must fit."""
        measured = {profile.tp for profile in load_model(self.model).profiles if profile.hardware == hardware}
        wanted = [tp for tp in self.degrees or DEGREES if tp <= self.gpus and (not measured or tp in measured)]
        return [tp for tp in wanted if _fits(f"emulated:chunked,{self.base(hardware, tp)}")]

    def base(self, hardware: str, tp: int) -> str:
        """The options of one kind of instance."""
        return f"model={self.model},hardware={hardware},tp={tp}"

    def single_pools(self) -> Iterator[Deployment]:
        """Every design with one pool that uses all GPUs."""
        for hardware in self.hardware:
            for tp in self.degrees_of(hardware):
                if self.gpus % tp:
                    continue
                for arrangement, budgets in BUDGETS.items():
                    for budget in budgets:
                        text = f"emulated:{arrangement},{self.base(hardware, tp)},instances={self.gpus // tp}"
                        yield Deployment.parse(f"{text},max_num_batched_tokens={budget}")

    def pairs(self) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
        """(hardware, degree) of the prefill and of the decode pool."""
        kinds = [(hardware, tp) for hardware in self.hardware for tp in self.degrees_of(hardware)]
        yield from ((prefill, decode) for prefill in kinds for decode in kinds)

    def splits(self, prefill: tuple[str, int], decode: tuple[str, int], link: str = "") -> list[Deployment]:
        """Every way to give all GPUs to the two pools, fewest prefill instances first."""
        found = []
        for instances in range(1, self.gpus // prefill[1] + 1):
            rest = self.gpus - instances * prefill[1]
            if rest > 0 and rest % decode[1] == 0:
                found.append(self.disaggregated(prefill, instances, decode, rest // decode[1], link))
        return found

    def disaggregated(
        self, prefill: tuple[str, int], prefills: int, decode: tuple[str, int], decodes: int, link: str = ""
    ) -> Deployment:
        """One split."""
        own = f"prefill_hardware={prefill[0]},decode_hardware={decode[0]}," if prefill[0] != decode[0] else ""
        kind = f"{own}prefill_tp={prefill[1]},decode_tp={decode[1]}"
        hardware = "" if own else f"hardware={prefill[0]},"
        text = f"emulated:disaggregated,model={self.model},{hardware}prefill={prefills},decode={decodes},{kind}"
        return Deployment.parse(text + link)


def check(space: Space) -> None:
    """UsageError when the GPUs cannot hold the model at all, or not at the degrees asked for."""
    if any(space.degrees_of(kind) for kind in space.hardware):
        return
    kinds, degrees = " or ".join(space.hardware), " or ".join(map(str, space.degrees))
    free = replace(space, degrees=())
    fitting = sorted({tp for kind in space.hardware for tp in free.degrees_of(kind)})
    if fitting:
        raise UsageError(
            f"{space.model} cannot be built from {space.gpus} x {kinds} with a tensor degree of {degrees}",
            hint=f"--tp {','.join(map(str, fitting))} can",
            code="does_not_fit",
        )
    raise UsageError(
        f"{space.model} does not fit {space.gpus} x {kinds} at any tensor degree",
        hint="give more --gpus or other --hardware",
        code="does_not_fit",
    )


def scaled(deployment: Deployment, factor: float) -> Iterable[Deployment]:
    """The same kind of instances in other numbers: near `factor` times as many, fewest GPUs first."""
    if deployment.arrangement != "disaggregated":
        middle = max(1, round(int(deployment["instances"]) * factor))
        return [_with(deployment, instances=n) for n in range(max(1, middle - 2), middle + 4)]
    prefill, decode = (max(1.0, int(deployment[role]) * factor) for role in ("prefill", "decode"))
    ways = [
        _with(deployment, prefill=p, decode=d)
        for p in range(max(1, round(prefill) - 1), round(prefill) + 3)
        for d in range(max(1, round(decode) - 1), round(decode) + 3)
    ]
    return sorted(ways, key=lambda way: way.gpus or 0)


def _with(deployment: Deployment, **numbers: int) -> Deployment:
    text = str(deployment)
    head, _, rest = text.partition(",")
    kept = [word for word in rest.split(",") if word.partition("=")[0] not in numbers]
    return Deployment.parse(",".join([head, *kept, *(f"{key}={value}" for key, value in numbers.items())]))


def _fits(text: str) -> bool:
    try:
        resolve(Deployment.parse(text))
    except UsageError:
        return False
    return True
