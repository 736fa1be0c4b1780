"""Paths into the JSON of an answer, such as `kvs.0.value`."""

from __future__ import annotations

from typing import Any, Final

from harness.errors import UsageError, shown
from harness.exact import whole_number
from targets.declared.protocols import NoValueError

__all__ = ["WHOLE", "check_path", "value_at"]

WHOLE: Final = "."
"""The path of the whole answer."""


def check_path(where: str, path: str | None) -> None:
    """Raise `UsageError` for a path that is written in another language."""
    if path is None or path == WHOLE:
        return
    if path.startswith(("$", "/")) or "[" in path or "" in path.split("."):
        raise UsageError(
            f"{where} is {path!r}: write names and indexes with dots between them, such as "
            f"'node.value' or 'kvs.0.value', or {WHOLE!r} for the whole answer"
        )


def value_at(answer: Any, path: str, *, optional: bool = False) -> Any:
    """Return the value at a path such as `kvs.0.value`.

    There is no value if a name is missing, an index is beyond the end, or an inner value is null.
    Then an `optional` value is `None`, and any other raises `NoValueError`.
    """
    value = answer
    for step in [] if path == WHOLE else path.split("."):
        if isinstance(value, dict):
            there, inner = step in value, value.get(step)
        elif isinstance(value, list) and (index := whole_number(step)) is not None:
            there = index < len(value)
            inner = value[index] if there else None
        elif value is None:
            there, inner = False, None
        else:
            raise NoValueError(f"the answer has no {path!r}: {shown(answer)}")
        if not there:
            if optional:
                return None
            raise NoValueError(f"the answer has no {path!r}: {shown(answer)}")
        value = inner
    return value
