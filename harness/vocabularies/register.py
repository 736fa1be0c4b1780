"""The vocabulary `register`: read, write, and compare-and-set of one value, which is null at first.

A system may also begin with its default value, 0 or an empty text. The answer of a read has the
register's value in the field `value`. A compare-and-set that finds a value other than `old` is a
`fail`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness.vocabularies import Call, Vocabulary


class Read(Call, frozen=True):
    """Read the register. The answer has its `value`."""

    f: ClassVar[str] = "read"


class Write(Call, frozen=True):
    """Set the register to `value`."""

    f: ClassVar[str] = "write"
    mutates: ClassVar[bool] = True
    value: Any


class Cas(Call, frozen=True):
    """Set the register to `new` if its value is `old`."""

    f: ClassVar[str] = "cas"
    mutates: ClassVar[bool] = True
    old: Any
    new: Any


CALLS = Vocabulary[Read | Write | Cas]("register", (Read, Write, Cas))
