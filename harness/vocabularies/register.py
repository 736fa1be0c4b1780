"""The vocabulary `register`: one value, null at first, that is read, written, compared and set.

A read answers {value}. A compare-and-set that finds another value than `old` is a `fail`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from harness.vocabularies import Call, Vocabulary


class Read(Call, frozen=True):
    """Answers {value}."""

    f: ClassVar[str] = "read"


class Write(Call, frozen=True):
    """Sets the value."""

    f: ClassVar[str] = "write"
    mutates: ClassVar[bool] = True
    value: Any


class Cas(Call, frozen=True):
    """Sets `new` where `old` is."""

    f: ClassVar[str] = "cas"
    mutates: ClassVar[bool] = True
    old: Any
    new: Any


CALLS = Vocabulary[Read | Write | Cas]("register", (Read, Write, Cas))
