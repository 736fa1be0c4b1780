"""The functions that check a history: `check_operations` and `check_events`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checkers.linearizability.clock import Clock, LimitReachedError
from checkers.linearizability.model import UNKNOWN, Event, Limits, Model, Operation
from checkers.linearizability.rounds import Check, CheckOutcome


def check_operations(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    *,
    timeout_s: float | None = None,
    limits: Limits | None = None,
    explained: bool = True,
) -> CheckOutcome:
    """Check whether `operations` are linearizable under `model`.

    `timeout_s` overrides `limits.time_s`. If both are `None`, the time is not limited. Without
    `explained`, an `ILLEGAL` outcome has no `failure`. Finding the failure often takes longer than
    the verdict. Raises `ValueError` for impossible operations, such as a return before its call,
    and `ModelError` for a model that breaks its contract.
    """
    limits = limits or Limits()
    time_s = timeout_s if timeout_s is not None else limits.time_s
    clock = Clock(time_s, limits.memory_mib)
    check = Check(model, _with_ids(operations), limits, clock, limits.steps_max(time_s))
    with clock.running():
        try:
            outcome = check.run(explained=explained)
        except LimitReachedError:
            outcome = check.undecided()
    return replace(outcome, end_s=clock.end_s)


def check_events(
    model: Model[Any, Any, Any],
    events: Sequence[Event],
    *,
    timeout_s: float | None = None,
    limits: Limits | None = None,
    explained: bool = True,
) -> CheckOutcome:
    """Check whether `events` (calls and returns, ordered by position) are linearizable.

    A call without a return becomes an operation of unknown outcome. The ids of events are
    arbitrary. Results number operations in the order of calls. Raises `ValueError` for a return
    without a call, or an id that is used twice. See `check_operations` for the other parameters.
    """
    opened: dict[int, int] = {}
    operations: list[Operation[Any, Any]] = []
    returned: set[int] = set()
    for position, event in enumerate(events):
        if event.is_call:
            if event.id in opened:
                raise ValueError(f"event {position} calls id {event.id} a second time")
            opened[event.id] = len(operations)
            operations.append(
                Operation(
                    event.client_id,
                    event.value,
                    position,
                    UNKNOWN,
                    None,
                    len(operations),
                    event.metadata,
                )
            )
            continue
        if event.id not in opened or event.id in returned:
            raise ValueError(f"event {position} returns id {event.id}, which has no open call")
        returned.add(event.id)
        number = opened[event.id]
        operations[number] = replace(
            operations[number],
            output=event.value,
            return_time=position,
            metadata=event.metadata if event.metadata is not None else operations[number].metadata,
        )
    return check_operations(
        model, operations, timeout_s=timeout_s, limits=limits, explained=explained
    )


def _with_ids(operations: Sequence[Operation[Any, Any]]) -> Sequence[Operation[Any, Any]]:
    if not isinstance(operations, (list, tuple)):
        operations = list(operations)
    ids = [operation.id for operation in operations]
    if min(ids, default=0) < 0:
        # The constructor is called directly because `replace` takes twice as long.
        operations = [
            operation
            if operation.id >= 0
            else Operation(
                operation.client_id,
                operation.input,
                operation.call,
                operation.output,
                operation.return_time,
                number,
                operation.metadata,
            )
            for number, operation in enumerate(operations)
        ]
        ids = [operation.id for operation in operations]
    if len(set(ids)) != len(ids):
        raise ValueError(
            "two operations have the same id; give each operation its own id, or all of them id -1"
        )
    return operations
