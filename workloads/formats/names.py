"""Names of sessions and classes as numbers, by first appearance."""

from __future__ import annotations

from workloads.formats.rows import Reject

MAX_CLASS = 255


class Names(dict[str, int]):
    """Numbers names from 0 in the order in which they come."""

    def number(self, name: str) -> int:
        """The number of a name, a new one when it is new."""
        return self.setdefault(name, len(self))

    def __str__(self) -> str:
        return ", ".join(f"{number} is {name}" for name, number in self.items())


def slo_class(text: str, names: Names) -> int:
    """An SLO class: a number from 0 to 255 as it is, a name by first appearance; more of them are rejected."""
    is_number = text.isascii() and text.isdigit() and not names
    if is_number and len(text) > 9:
        raise Reject("slo_class")
    number = int(text) if is_number else names.number(text)
    if number > MAX_CLASS:
        raise Reject("slo_class")
    return number
