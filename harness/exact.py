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


@dataclass(frozen=True, slots=True)
class Exact:
    """A value together with its kind."""

    kind: type
    value: Hashable

    def __repr__(self) -> str:
        """The text of the value itself."""
        return repr(self.value)


def is_scalar(value: object) -> bool:
    """Whether `value` is no collection; nil is a scalar, too."""
    return not isinstance(value, (list, tuple, Mapping))


def exact(value: object) -> Hashable:
    """`value`, or a substitute for it, that equals no value of another kind.

    `value` is plain JSON, where EDN's other types have forms of their own
    (`harness.vocabularies.edn`); lists are tuples afterwards.
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
