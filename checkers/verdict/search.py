"""Checkers that search for an order: their limits, and the operations to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Self

from checkers.linearizability import Failure, Limits
from checkers.linearizability.judged import OPERATIONS_MAX

CORE_SHOWN_MAX: Final = 9


class SearchChecker:
    """A checker whose search has limits."""

    api_version = 1

    def __init__(self, *, limits: Limits | None = None) -> None:
        """`limits` bounds the search; its time comes from `check`."""
        self._limits = limits or Limits()

    def bounded(self, *, steps: int, configurations: int) -> Self:
        """The same checker with other bounds of its search."""
        return type(self)(limits=replace(self._limits, steps=steps, configurations=configurations))


def offenders(failure: Failure) -> tuple[int, ...]:
    """The failing operation first, then the rest of the core if it is small enough to help."""
    core = [index for index in failure.core if index != failure.operation]
    if len(core) >= OPERATIONS_MAX:
        core = [] if failure.previous is None else [failure.previous]
    return (failure.operation, *core)
