"""Known defects, in the form that `harness exam` uses: switches of targets, and planted defects.

An exam measures whether soaks find known defects.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BugSwitch:
    """A defect that `--bug ID` switches on in a target.

    `harness soak --env sim --bug ID` finds the defect with the additional `options`, and `checker`
    is the checker that then reports it. If `options` is `None`, no soak finds the defect, and
    `cause` has the reason.
    """

    id: str
    title: str  # the wrong behaviour, as a clause without a full stop
    cause: str = ""  # the behaviour of the real system
    status: str = ""  # "open ..." or "fixed ...": the status in the real system
    options: str | None = ""
    checker: str = ""
    seed: int = 1  # a seed that showed the defect when `options` was written


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedDefect:
    """A defect that replaces code of a target inside a context.

    A module with planted defects has the attribute `DEFECTS`, which maps each name to its defect.
    """

    title: str  # the wrong behaviour, as a clause without a full stop
    plant: Callable[[], AbstractContextManager[None]]
    options: str = ""
    """The options with which `harness soak --env sim` finds the defect; by default none are
    needed."""
    unfound: str = ""
    """The reason why soaks do not find the defect, if it is known."""
