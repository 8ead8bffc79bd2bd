"""What the code gave once against what it gives now: numbers nearly, everything else exactly.

Another CPU adds in another order and has another exponential function: the last digits of a computed number are the
machine's. So a number may be off by a millionth of itself, and one printed with decimals by one in its last digit.
Whole numbers are counts, and exact. Every comparison with a recorded file goes through here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

RELATIVE = 1e-6
SHOWN = 12
AROUND = 60
# A sign belongs to a number, a hyphen between two does not; 1.2.3 is a version, not numbers.
_NUMBER = re.compile(r"(?:(?<![\w.])-)?(?<![\d.])(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?!\.?\d)")


def differences(
    expected: Any, found: Any, *, absolute: float = 0.0, others_allowed: bool = False, where: str = ""
) -> list[str]:
    """Where two documents or two texts differ, a line each; `others_allowed`: of an object, only the expected keys."""
    return list(_differ(expected, found, absolute, others_allowed, where))


def check_file(path: Path, text: str, *, update: bool = False) -> None:
    """Fail with what differs from the recorded file, or record it anew; digits of another machine change no file."""
    if update and (not path.exists() or _from_file(path, text)):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is not recorded yet; see --update-golden"
    found = _from_file(path, text)
    if found:
        more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise AssertionError("\n".join([f"{path.name} changed; see --update-golden", *found[:SHOWN], *more]))


def _from_file(path: Path, text: str) -> list[str]:
    recorded = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return differences(json.loads(recorded), json.loads(text))
    return differences(recorded, text)


def _differ(expected: Any, found: Any, absolute: float, others_allowed: bool, where: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *([] if others_allowed else [key for key in found if key not in expected])]:
            place = f"{where}.{key}" if where else str(key)
            if key not in found or key not in expected:
                yield f"{place}: {'missing' if key in expected else 'new'}"
            else:
                yield from _differ(expected[key], found[key], absolute, others_allowed, place)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{where}: expected {len(expected)} entries, found {len(found)}"
        for index, (old, new) in enumerate(zip(expected, found, strict=False)):
            yield from _differ(old, new, absolute, others_allowed, f"{where}[{index}]")
    elif isinstance(expected, str) and isinstance(found, str):
        yield from (f"{where}: {line}" if where else line for line in _text_differs(expected, found))
    elif not _alike(expected, found, absolute):
        yield f"{where}: expected {expected!r}, found {found!r}" if where else f"expected {expected!r}, found {found!r}"


def _alike(expected: Any, found: Any, absolute: float) -> bool:
    """Whether two values that hold no others are the same."""
    values = (expected, found)
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values) or float not in map(type, values):
        return type(expected) is type(found) and bool(expected == found)
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=absolute)


def _text_differs(expected: str, found: str) -> Iterator[str]:
    """The lines that differ; lines of the same words are compared number by number."""
    old, new = expected.split("\n"), found.split("\n")
    words = [[_NUMBER.sub("\0", line) for line in lines] for lines in (old, new)]
    for tag, start, stop, new_start, new_stop in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs = list(zip(old[start:stop], new[new_start:new_stop], strict=True))
        else:
            pairs = [("\n".join(old[start:stop]), "\n".join(new[new_start:new_stop]))]
        for number, (a, b) in enumerate(pairs, start + 1):
            at = _differing_number(a, b) if tag == "equal" else (_first_difference(a, b),) * 2
            if at is not None:
                yield f"line {number}: expected {_excerpt(a, at[0])}, found {_excerpt(b, at[1])}"


def _differing_number(old: str, new: str) -> tuple[int, int] | None:
    """Where two lines of the same words hold numbers that do not print the same value."""
    for a, b in zip(_NUMBER.finditer(old), _NUMBER.finditer(new), strict=True):
        if not _print_alike(a[0], b[0]):
            return a.start(), b.start()
    return None


def _print_alike(old: str, new: str) -> bool:
    """Whether two printed numbers may stand for one value: the last digit of one with decimals is rounded."""
    if old == new:
        return True
    a, b = Decimal(old), Decimal(new)
    last = min(int(number.as_tuple().exponent) for number in (a, b))
    if last >= 0:
        return a == b
    return abs(a - b) <= max(Decimal(1).scaleb(last), Decimal(RELATIVE) * max(abs(a), abs(b)))


def _first_difference(old: str, new: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _excerpt(text: str, at: int) -> str:
    start, stop = max(at - AROUND, 0), at + AROUND
    return repr("..." * (start > 0) + text[start:stop] + "..." * (stop < len(text)))
