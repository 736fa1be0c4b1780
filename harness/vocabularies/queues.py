"""The vocabulary `queue`: one queue, empty at first. A workload enqueues each value once.

The answer of a dequeue has the field `value`: the element that it took, or null if the queue was
empty. The answer of a drain has the field `value`: a list of all elements that it took until the
queue was empty. A drain that is interrupted is an `info`. If its `value` is present, it lists the
elements that it took.
"""

from __future__ import annotations

from typing import ClassVar

from harness.vocabularies import Call, Vocabulary


class Enqueue(Call, frozen=True):
    """Add `value` to the end of the queue."""

    f: ClassVar[str] = "enqueue"
    mutates: ClassVar[bool] = True
    value: int


class Dequeue(Call, frozen=True):
    """Take one element. The answer has it in `value`, or null if the queue was empty."""

    f: ClassVar[str] = "dequeue"
    mutates: ClassVar[bool] = True


class Drain(Call, frozen=True):
    """Take elements until the queue is empty. The answer has them in the list `value`."""

    f: ClassVar[str] = "drain"
    mutates: ClassVar[bool] = True


CALLS = Vocabulary[Enqueue | Dequeue | Drain]("queue", (Enqueue, Dequeue, Drain))
