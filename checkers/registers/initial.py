"""The value that registers of a run hold at first: null, or the default value of the system.

Most systems say that an unwritten register has no value. Others answer with the default of their
language or column, 0 or an empty text. No operation of the workloads writes these values, so a
register that shows one before its first change began with it. One initial value must explain the
whole history: a default that appears after an acknowledged write is a violation, as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.exact import exact
from harness.ops import OpType, Pair

__all__ = ["defaults_read", "taken"]

_DEFAULTS: Final = (0, "")


def defaults_read(pairs: Iterable[Pair]) -> list[Any]:
    """Return the default values that reads show and no operation asks to write."""
    answers, written = set(), set()
    for pair in pairs:
        asked, done = pair.invoke.value, pair.completion
        if isinstance(asked, Mapping):
            written |= {exact(asked[name]) for name in ("value", "new") if name in asked}
        if pair.invoke.f == "read" and done is not None and done.type is OpType.OK:
            answer = done.value.get("value") if isinstance(done.value, Mapping) else None
            answers.add(exact(answer))
    return [value for value in _DEFAULTS if value in answers - written]


def taken(reason: str, initial: Any) -> str:
    """Return the reason of a verdict with the initial value that it rests on."""
    return f"{reason}; {initial!r} taken as the initial value"
