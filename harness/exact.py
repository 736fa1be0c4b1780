"""Exact identity of values: what Python holds equal although a history does not.

To Python `True == 1 == 1.0 == Decimal("1.0")`, and they are one key of a dict. In a history they
are different values, as `=` has it in Clojure and as JSON writes them. `exact` makes hashable
values that are equal only where both kind and value are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Exact", "exact", "is_scalar"]

_PLAIN: Final = frozenset({int, str, type(None)})
_SEQUENCES: Final = frozenset({list, tuple})


@dataclass(frozen=True, slots=True)
class Exact:
    """A value together with its kind."""

    kind: type
    value: Hashable

    def __repr__(self) -> str:
        """As the value itself."""
        return repr(self.value)


def is_scalar(value: object) -> bool:
    """Whether `value` is no collection; nil is a scalar, too."""
    return type(value) not in _SEQUENCES and not isinstance(value, (Mapping, set, frozenset))


def exact(value: object) -> Hashable:
    """`value`, or a stand-in for it, that equals no value of another kind.

    Raises `TypeError` for what cannot be hashed.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, (list, tuple)) and kind in _SEQUENCES:
        return tuple(exact(item) for item in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(exact(item) for item in value)
    if isinstance(value, Mapping):
        items = frozenset((exact(key), exact(item)) for key, item in value.items())
        return Exact(dict, items)
    if not isinstance(value, Hashable):
        raise TypeError(f"{value!r} has no identity")
    return Exact(kind, value)
