"""The vocabulary `set`: one set, empty at first, that only grows.

Values are whole numbers, and a workload adds each value once. The answer of a read has the field
`value`: a list of all elements, in any order.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Add(Call, frozen=True):
    """Add `value` to the set."""

    f: ClassVar[str] = "add"
    mutates: ClassVar[bool] = True
    value: int


class Read(Call, frozen=True):
    """Read all elements; the completion's `value` is the list of them."""

    f: ClassVar[str] = "read"


CALLS = Vocabulary[Add | Read]("set", (Add, Read))
