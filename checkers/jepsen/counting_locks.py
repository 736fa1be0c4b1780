"""The history models of semaphores, reentrant locks and fenced locks, after Hazelcast's tests.

* semaphore: a number of permits (`--initial N`). Every client may release, even permits that were
  never taken. In owned-semaphore, only clients that hold permits may release them.
* reentrant-mutex: a lock that its holder may acquire again, at most N times with `--initial N`.
* fenced-mutex and reentrant-fenced-mutex: an acquire that gets a free lock is answered with a
  higher fence than all before. An acquire of the holder gets the fence that it has.

An acquire and a release may ask a semaphore for several permits: `acquire 2`, or a map with
`:permits`. The fence is the number that answers an acquire, or `:fence` or `:token` in a map. As in
Hazelcast, fences begin at 1: a lower number is no fence. If the answers of a history name clients
(`{:client "n1"}`), these hold the locks, otherwise the processes do. An operation of unknown
outcome whose client no other answer to its process names may belong to any client.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from msgspec import UNSET
from msgspec.structs import replace as with_fields

from checkers.foreign.containers import MutexModel
from checkers.foreign.model import LinearizabilityCheck, bad_op, request_of
from checkers.linearizability import Model
from checkers.linearizability.models.counting_locks import (
    ANY,
    Acquire,
    ReentrantLock,
    Release,
    Semaphore,
)
from checkers.linearizability.proof import AnyOperation
from harness.errors import HistoryError, UsageError
from harness.ops import History, ModelSettings, Op, OpType, Pair
from harness.plugins import PreparedCheck

_FENCES: Final = ("fence", "token")


class CountingLock(MutexModel):
    """The common part of the history models in this module.

    `limit` is the number of permits, and `counts` describes it for `--initial`.
    """

    limit: int | None = None
    counts: ClassVar[str | None] = None

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        limit = settings.initial
        if self.counts is None or limit is UNSET:
            return super().prepare(ops, settings)
        if type(limit) is not int or limit < 1:
            raise UsageError(
                f"--initial is {limit!r}; the model {self.name} takes {self.counts}, a whole "
                "number of at least 1"
            )
        model = copy.copy(self)
        model.limit = limit
        return model.prepare(ops, with_fields(settings, initial=UNSET))

    def understand(self, history: History) -> LinearizabilityCheck:
        check = super().understand(history)
        return replace(check, parsed=with_holders(check.parsed, history))

    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        del operations
        return ReentrantLock(self.limit)

    def operation(self, pair: Pair) -> AnyOperation | None:
        operation = super().operation(pair)
        if operation is None:
            return None
        takes, done = pair.invoke.f == "acquire", pair.completion
        if takes and done is not None and done.type is OpType.OK and done.value is False:
            raise bad_op(done, self.name, "an ok acquire only if it got the lock, otherwise a fail")
        permits = self._permits(pair)
        input_ = Acquire(permits=permits) if takes else Release(permits=permits)
        if operation.is_unknown:
            return replace(operation, input=input_)
        return replace(operation, input=input_, output=self._fence(pair) if takes else None)

    def _permits(self, pair: Pair) -> int:
        del pair
        return 1

    def _fence(self, pair: Pair) -> int | None:
        del pair
        return None


class SemaphoreModel(CountingLock, version="1"):
    """The history model of permits that every client may release."""

    name = "semaphore"
    doc = "a semaphore of --initial N permits, which every client may release"
    vocabulary = "acquire and release, of one permit or of a number of at least 1"
    counts = "the number of permits"
    owned: ClassVar[bool] = False

    def specification(self, operations: Sequence[AnyOperation]) -> Model[Any, Any, Any]:
        del operations
        if self.limit is None:
            raise UsageError(
                f"the model {self.name} needs the number of permits, which no history says: use "
                "harness check --initial N (an import keeps no number)"
            )
        return Semaphore(self.limit, owned=self.owned)

    def _permits(self, pair: Pair) -> int:
        op = pair.invoke if pair.invoke.value is not None else request_of(pair)
        asked = op.value.get("permits", 1) if isinstance(op.value, Mapping) else op.value
        if not isinstance(asked, int | float) or isinstance(asked, bool):
            return 1
        if isinstance(asked, float) or asked < 1:
            raise bad_op(op, self.name, self.vocabulary)
        return asked


class OwnedSemaphore(SemaphoreModel, version="1"):
    """The history model of permits that only their holders may release."""

    name = "owned-semaphore"
    doc = "a semaphore of --initial N permits, which only their holders release"
    owned = True


class ReentrantMutex(CountingLock, version="1"):
    """The history model of a lock that its holder may acquire again."""

    name = "reentrant-mutex"
    doc = "a lock that its holder may acquire again, up to --initial N times"
    counts: ClassVar[str | None] = "the number of times that its holder may acquire the lock"


class ReentrantFencedMutex(ReentrantMutex, version="1"):
    """The history model of a lock with rising fences that its holder may acquire again."""

    name = "reentrant-fenced-mutex"
    doc = "a reentrant lock whose fences rise with each new holder"
    vocabulary = "acquire, answered with a fence (a whole number), and release"

    def understand(self, history: History) -> LinearizabilityCheck:
        check = super().understand(history)
        answered = [
            operation
            for operation in check.parsed
            if isinstance(operation.input, Acquire) and not operation.is_unknown
        ]
        if len(answered) > 1 and all(operation.output is None for operation in answered):
            raise HistoryError(
                f"no acquire is answered with a fence, and the model {self.name} compares fences: "
                "write a number, or {:fence N}; or say --model reentrant-mutex or owned-mutex"
            )
        return check

    def _fence(self, pair: Pair) -> int | None:
        assert pair.completion is not None, "the acquire was answered"
        value = pair.completion.value
        if isinstance(value, Mapping):
            value = next((value[name] for name in _FENCES if name in value), None)
            if not isinstance(value, int | None) or isinstance(value, bool):
                raise bad_op(pair.completion, self.name, self.vocabulary)
        elif type(value) is not int or value == pair.invoke.value:
            return None
        return value if value is not None and value > 0 else None


class FencedMutex(ReentrantFencedMutex, version="1"):
    """The history model of a lock with rising fences."""

    name = "fenced-mutex"
    doc = "a lock with one holder, whose fences rise with each acquire"
    counts = None
    limit = 1


def with_holders(parsed: Iterable[AnyOperation], history: History) -> list[AnyOperation]:
    """Return the operations of locks with their holders: clients named by answers, or processes."""
    clients: dict[int | str, str] = {}
    named: dict[int, str] = {}
    for pair in history.pairs:
        done = pair.completion
        if done is None or done.type is not OpType.OK or not isinstance(done.value, Mapping):
            continue
        if (client := done.value.get("client")) is not None:
            named[pair.invoke.index] = clients[pair.invoke.process] = str(client)

    def holder(operation: AnyOperation) -> str:
        if not clients:
            return f"process {operation.client_id}"
        return named.get(operation.id) or clients.get(operation.client_id, ANY)

    return [
        replace(operation, input=operation.input._replace(holder=holder(operation)))
        for operation in parsed
    ]
