"""A lock with at most one holder at a time."""

from __future__ import annotations

from typing import NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Unknown


class Acquire(NamedTuple):
    """Take the lock. Output: whether the lock was free, so that `holder` has it now."""

    holder: str = ""
    f: str = "acquire"


class Release(NamedTuple):
    """Release the lock. Output: whether `holder` had the lock, so that it is free now."""

    holder: str = ""
    f: str = "release"


MutexInput = Acquire | Release


class Mutex(Model[str | None, MutexInput, bool]):
    """The model of a lock. Its state is the holder of the lock, or `None`.

    If every client may release the lock, use an empty holder in all operations.
    """

    def init(self) -> str | None:
        return None

    def step(
        self, state: str | None, input_: MutexInput, output: bool | Unknown, /
    ) -> tuple[bool, str | None]:
        """Return whether `output` is right, and the next holder. A refusal changes nothing."""
        takes = isinstance(input_, Acquire)
        granted = state is None if takes else state == input_.holder
        after = (input_.holder if takes else None) if granted else state
        return output is UNKNOWN or output == granted, after

    def read_only(self, input_: MutexInput, output: bool | Unknown, /) -> bool:
        del input_
        return output is False

    def describe_operation(self, input_: MutexInput, output: bool | Unknown, /) -> str:
        by = f" for {input_.holder}" if input_.holder else ""
        if output is UNKNOWN:
            return f"{input_.f}{by} (unknown)"
        return f"{input_.f}{by}" + ("" if output else " (refused)")

    def describe_state(self, state: str | None, /) -> str:
        if state is None:
            return "the lock is free"
        return f"{state} has the lock" if state else "the lock is held"
