"""The vocabulary `registers`: several independent registers, each with a `key`, and all null at
first.

The vocabulary `register` has the same operations without the key. The answer of a read has the
register's value in the field `value`. A compare-and-set that finds another value than `old` is a
`fail`. After Jepsen's `jepsen/tests/linearizable_register.clj`, whose values are `[key value]`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness.vocabularies import Call, Vocabulary


class Read(Call, frozen=True):
    """Read the register `key`. The answer has its `value`."""

    f: ClassVar[str] = "read"
    key: str


class Write(Call, frozen=True):
    """Set the register `key` to `value`."""

    f: ClassVar[str] = "write"
    mutates: ClassVar[bool] = True
    key: str
    value: Any


class Cas(Call, frozen=True):
    """Set the register `key` to `new` if its value is `old`."""

    f: ClassVar[str] = "cas"
    mutates: ClassVar[bool] = True
    key: str
    old: Any
    new: Any


CALLS = Vocabulary[Read | Write | Cas]("registers", (Read, Write, Cas))
