"""Exact equality, for values that are equal in Python but different in a history.

In Python `True == 1 == 1.0 == Decimal("1.0")`, so all four are the same key of a dict. In a history
they are four different values, as for Clojure's `=`. `exact` makes hashable values that are equal
only if both type and value are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = frozenset({int, str, type(None)})
_DIGITS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Exact:
    """A value with its type. Two of them are equal only if values and types are equal."""

    kind: type
    value: Hashable

    def __repr__(self) -> str:
        return repr(self.value)


def whole_number(text: str) -> int | None:
    """Return the number that 1 to 20 digits from 0 to 9 denote; `None` for any other text.

    `str.isdigit` would also accept "²", and numbers that are too long for `int`.
    """
    is_number = len(text) <= _DIGITS_MAX and text.isascii() and text.isdecimal()
    return int(text) if is_number else None


def is_scalar(value: object) -> bool:
    """Whether `value` is not a collection. Nil is a scalar, too."""
    return not isinstance(value, (list, tuple, Mapping))


def exact(value: object) -> Hashable:
    """Return `value`, or a hashable substitute that never equals a value of another type.

    `value` is plain JSON, in which special forms encode the other types of EDN
    (`harness.vocabularies.edn`). Lists become tuples.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(exact(item) for item in value)
    if isinstance(value, Mapping):
        items = frozenset((exact(key), exact(item)) for key, item in value.items())
        return Exact(dict, items)
    assert isinstance(value, Hashable), "plain JSON has lists and objects only"
    return Exact(kind, value)
