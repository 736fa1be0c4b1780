"""The vocabulary `counter`: one number, 0 at first."""

from __future__ import annotations

from typing import ClassVar

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
