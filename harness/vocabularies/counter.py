"""The vocabulary `counter`: one number, 0 at first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.vocabularies import Call, Vocabulary


class Add(Call, frozen=True):
    """Add `amount`, which may be negative, to the counter."""

    f: ClassVar[str] = "add"
    mutates: ClassVar[bool] = True
    amount: int


class Read(Call, frozen=True):
    """Read the counter. The answer has its `value`."""

    f: ClassVar[str] = "read"


CALLS = Vocabulary[Add | Read]("counter", (Add, Read))


def is_final(value: Any) -> bool:
    """Whether this is the answer of a read that Maelstrom marked as `:final?`."""
    return isinstance(value, Mapping) and value.keys() == {"value", "final"}
