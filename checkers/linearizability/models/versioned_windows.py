"""One name of the versioned catalog for a short time: what a long history's contradiction needs.

Looked at over a whole history, a name has had many tables, and a core that proves it empty now must
say of each of them that it left. So look at it from some moment on, with nothing known of what was
there before; the first operation that changes something says what is there afterwards. And look no
further than to some later moment. What was open at either may have taken effect in between, or not,
and so may what returned at the very end, since what was called then may have come before it.

That is a necessary condition for any two moments: take an order of the whole, and leave out what
took effect before the first or after the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from checkers.catalog.models.views import NameView, Said, Slot
from checkers.linearizability.model import UNKNOWN, Operation, Projection, Unknown

STRIDE: Final = 32
"""Windows begin every so many operations, and are twice as long."""

WINDOWS_MAX: Final = 200
"""So many of one name; of what is longer they are wider."""

ANYTHING: Final[Slot] = (None, -1, None)
"""What was there before; no table has such a version."""


class NameWindow(NameView):
    """As the whole name, but at first there may be anything."""

    def init(self) -> Slot:
        """Anything."""
        return ANYTHING

    def step(self, state: Slot, input_: Said, output: bool | Unknown, /) -> tuple[bool, Slot]:
        """Reads are believed until an operation says what it leaves behind."""
        if state != ANYTHING or input_.f == "never":
            return super().step(state, input_, output)
        if self.read_only(input_, output):
            return True, state
        if input_.f == "take":
            return True, None
        return True, (input_.ident, input_.version, input_.payload)

    def describe_state(self, state: Slot, /) -> str:
        """For people."""
        if state == ANYTHING:
            return "anything may have the name"
        return super().describe_state(state)


def windows_of(
    name: str, said: Sequence[Operation[Said, bool]]
) -> Iterator[Projection[Any, Any, Any]]:
    """The windows of what is said about `name` (as it is shown), if that is too much for one."""
    said = sorted(said, key=lambda operation: (operation.call, operation.id))
    stride = max(STRIDE, -(-len(said) // WINDOWS_MAX))
    if len(said) <= 2 * stride:
        return
    still_open: list[Operation[Said, bool]] = []
    for first in range(0, len(said) - stride, stride):
        begin, beyond = said[first].call, first + 2 * stride
        end = said[beyond].call if beyond < len(said) else math.inf
        still_open += said[max(0, first - stride) : first]
        still_open = [o for o in still_open if o.return_time is None or o.return_time >= begin]
        found = [_seen_from(begin, end, o) for o in (*still_open, *said[first:beyond])]
        yield Projection(
            f"name {name} from {begin} " + ("on" if end == math.inf else f"to {end}"),
            NameWindow(),
            tuple(operation for operation in found if operation is not None),
        )


def _seen_from(
    begin: float, end: float, operation: Operation[Said, bool]
) -> Operation[Said, bool] | None:
    """The operation if it took effect within the window; unknown if it may have; else `None`."""
    returned = operation.return_time
    if returned is not None and returned < begin:
        return None
    if returned is not None and begin <= operation.call and returned < end:
        return operation
    if NameWindow().read_only(operation.input, True):
        return None
    return replace(operation, output=UNKNOWN, return_time=None)
