"""The history models of locks, sets and queues, as in Jepsen and Knossos.

An operation that ended as `fail` did nothing, so it is left out. Examples are a refused lock, and a
dequeue that found nothing. At first, locks are free and the other objects are empty.

* mutex: acquire and release. Any process may release, as in Knossos. In owned-mutex, only the
  process that holds the lock may release it.
* set: add and remove an element; read, answered with all elements.
* queue (first in, first out) and unordered-queue: enqueue an element; dequeue, answered with the
  element. A dequeue that is `ok` with nil found the queue empty.

Elements are compared by value and type: 1, 1.0, "1" and true are four different elements. An
operation that ended as `info`, or did not end, may take effect at any later time or never.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from checkers.foreign.model import (
    LinearizabilityCheck,
    LinearizabilityModel,
    bad_op,
    failed,
    request_of,
)
from checkers.foreign.plain_form import in_plain_form
from checkers.linearizability import Model
from checkers.linearizability.models.mutex import Acquire, Mutex, Release
from checkers.linearizability.models.queues import Dequeue, Enqueue, Queue, UnorderedQueue
from checkers.linearizability.models.sets import Add, ReadAll, Remove, Set
from checkers.linearizability.proof import AnyOperation, operation_of
from harness.exact import exact
from harness.ops import History, Op, OpType, Pair
from harness.vocabularies import Vocabulary, locks, queues, sets
from harness.vocabularies.edn import members


class _ContainerModel(LinearizabilityModel):
    """The common part of the history models in this module.

    `spoken` is the vocabulary of the harness's own runs, which the model can also judge.
    """

    vocabulary: ClassVar[str]
    spoken: ClassVar[Vocabulary[Any]]

    def understand(self, history: History) -> LinearizabilityCheck:
        return super().understand(in_plain_form(history, self.spoken))

    @abc.abstractmethod
    def _input(self, op: Op) -> Any:
        """Return the model's input for the request in `op`.

        Raises `HistoryError` if `op` is not in the vocabulary.
        """

    @abc.abstractmethod
    def _output(self, op: Op) -> Any:
        """Return the model's output for the `ok` completion `op`."""

    def operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        if done is not None and done.f != call.f:
            raise bad_op(done, self.name, f"completions of the invoked function, here {call.f!r}")
        request = self._input(request_of(pair))
        if done is None or done.type is OpType.INFO:
            return operation_of(pair, request)
        return None if failed(pair) else operation_of(pair, request, self._output(done))

    def _element(self, op: Op, value: Any) -> Hashable:
        if value is None:
            raise bad_op(op, self.name, self.vocabulary)
        return exact(value)


def settled(operations: Sequence[AnyOperation]) -> list[AnyOperation]:
    """Return operations with the same verdict, but with fewer additions of unknown outcome.

    An element that was added once and that no answer shows can be left out of every legal order, so
    its addition is left out. If an answer shows the element, its addition took effect before this
    answer returned, and gets this return time.
    """
    added = Counter(o.input.element for o in operations if isinstance(o.input, Add | Enqueue))
    first_seen: dict[Any, float] = {}
    for operation in operations:
        if isinstance(operation.input, ReadAll | Dequeue) and operation.return_time is not None:
            answer: Any = operation.output
            for element in [answer] if isinstance(operation.input, Dequeue) else answer:
                first_seen[element] = min(
                    first_seen.get(element, operation.return_time), operation.return_time
                )
    kept: list[AnyOperation] = []
    for operation in operations:
        request = operation.input
        lost = operation.is_unknown and isinstance(request, Add | Enqueue)
        if lost and added[request.element] == 1:
            seen = first_seen.get(request.element)
            if seen is None:
                continue
            if seen >= operation.call:
                kept.append(replace(operation, output=None, return_time=seen))
                continue
        kept.append(operation)
    return kept


class MutexModel(_ContainerModel):
    """The history model of a lock that is free at first."""

    name = "mutex"
    doc = "a lock with acquire and release, free at first; fail: did not happen"
    vocabulary = "acquire and release"
    spoken = locks.CALLS
    begins = "free"

    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        del operations
        return Mutex()

    def _input(self, op: Op) -> Acquire | Release:
        if op.f == "acquire":
            return Acquire()
        if op.f == "release":
            return Release()
        raise bad_op(op, self.name, self.vocabulary)

    def _output(self, op: Op) -> bool:
        del op
        return True


class SetModel(_ContainerModel, milder="set-full"):
    """The history model of a set that is empty at first."""

    name = "set"
    doc = "a set with add, remove and read (of all elements), empty at first; fail: did not happen"
    vocabulary = "add and remove with an element, and read"
    spoken = sets.CALLS

    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        return Set().for_operations(operations)

    def _reduced(self, operations: list[AnyOperation]) -> list[AnyOperation]:
        # a read without an answer proves nothing, so it is left out
        answered = [o for o in operations if not (o.is_unknown and isinstance(o.input, ReadAll))]
        return settled(answered)

    def _input(self, op: Op) -> Add | Remove | ReadAll:
        if op.f == "read":
            return ReadAll()
        if op.f == "add":
            return Add(self._element(op, op.value))
        if op.f == "remove":
            return Remove(self._element(op, op.value))
        raise bad_op(op, self.name, self.vocabulary)

    def _output(self, op: Op) -> frozenset[Any] | tuple[Any, ...] | None:
        if op.f != "read":
            return None  # in this form, the answer does not say whether the element was new
        items = members(op.value)
        if items is None:
            raise bad_op(op, self.name, "reads that are answered with a collection of elements")
        elements = [self._element(op, item) for item in items]
        once = frozenset(elements)
        return once if len(once) == len(elements) else tuple(elements)


class FifoQueueModel(_ContainerModel):
    """The history model of a first-in-first-out queue that is empty at first."""

    name = "queue"
    doc = "a queue, first in, first out, with enqueue and dequeue; fail: did not happen"
    vocabulary = "enqueue with an element, and dequeue"
    spoken = queues.CALLS

    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        del operations
        return Queue()

    def _reduced(self, operations: list[AnyOperation]) -> list[AnyOperation]:
        return settled(operations)

    def _input(self, op: Op) -> Enqueue | Dequeue:
        if op.f == "dequeue":
            return Dequeue()
        if op.f == "enqueue":
            return Enqueue(self._element(op, op.value))
        raise bad_op(op, self.name, self.vocabulary)

    def _output(self, op: Op) -> Any:
        return None if op.f == "enqueue" or op.value is None else self._element(op, op.value)


class UnorderedQueueModel(FifoQueueModel):
    """The history model of a queue that is empty at first and returns elements in any order."""

    name = "unordered-queue"
    doc = "a queue that gives elements out in any order, with enqueue and dequeue"

    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        del operations
        return UnorderedQueue().to_model()

    def _reduced(self, operations: list[AnyOperation]) -> list[AnyOperation]:
        # If no dequeue found the queue empty, every element may stay in the queue forever. So lost
        # dequeues are left out.
        if not any(isinstance(o.input, Dequeue) and o.output is None for o in operations):
            operations = [
                o for o in operations if not (o.is_unknown and isinstance(o.input, Dequeue))
            ]
        return settled(operations)
