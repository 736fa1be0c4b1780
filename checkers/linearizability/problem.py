"""Prepares a history for searches, with return events, slots, and memoized model steps.

A search looks at one return event at a time, with the operations that are open around it. Events
are sorted by time; at equal times, calls come before returns. Each open operation has a *slot*, a
bit that is reused after the operation returns. So a configuration consists of three small numbers:
the position of the next return to pass, the mask of open slots that are already linearized, and the
number of the state. Unknown operations (operations of unknown outcome) never return. A second mask
has a bit for each of them.

`Stepper` numbers the states and memoizes every step, so a model in plain Python is called only for
new steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from checkers.linearizability.clock import tick
from checkers.linearizability.model import Model, ModelError, Operation

ILLEGAL_STEP: Final = -1
EVENTS_UNWATCHED: Final = 64  # the number of returns between two tests of the clock
EVERYTHING: Final = -1  # the footprint of an operation that touches everything

Slot = tuple[int, int]  # (bit of the slot, number of the operation in it)


class Stepper:
    """The steps of a model, with numbers for states.

    `memo[op]` maps the number of a state to the number of the state after operation `op`.
    """

    def __init__(
        self, model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]]
    ) -> None:
        self._model = model
        self._operations = operations
        self.states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self.model_calls = 0
        classes: dict[Hashable, dict[int, int]] = {}
        self.memo: list[dict[int, int]] = []
        self.read_only: list[bool] = []
        for operation in operations:
            self.memo.append(classes.setdefault(_class_key(operation), {}))
            self.read_only.append(model.read_only(operation.input, operation.said))
        self.initial = self._number(model.init())

    def _number(self, state: Any) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self.states)
            self.states.append(state)
        return number

    def step(self, state: int, op: int) -> int:
        """Return the number of the state after operation `op`, or `ILLEGAL_STEP`.

        Raises `ModelError` if an operation that the model calls read-only changes the state.
        """
        memo = self.memo[op]
        remembered = memo.get(state)
        if remembered is not None:
            return remembered
        operation = self._operations[op]
        output = operation.said
        self.model_calls += 1
        tick()
        legal, after = self._model.step(self.states[state], operation.input, output)
        number = self._number(after) if legal else ILLEGAL_STEP
        if legal and number != state and self.read_only[op]:
            raise contradiction(self._model, operation.input, output, self.states[state])
        memo[state] = number
        return number


def contradiction(
    model: Model[Any, Any, Any], input_: object, output: object, state: object
) -> ModelError:
    """Return the error for an operation that the model calls read-only but that changes `state`."""
    return ModelError(
        f"{type(model).__name__}.read_only says that {model.describe_operation(input_, output)} "
        f"never changes the state, but step changes {model.describe_state(state)}; "
        "derive read_only from step"
    )


def _class_key(operation: Operation[Any, Any]) -> Hashable:
    """Return a key that is the same for operations with equal input and output.

    The types are part of the key, because a model may distinguish 1 from True, which are equal. An
    operation that is not hashable gets a key of its own.
    """
    output = operation.said
    key = (operation.input, output, type(operation.input), type(output))
    try:
        hash(key)
    except TypeError:
        return ("unhashable", id(operation))
    return key


class Problem:
    """One history to search, with its stepper. Searches do not change the problem."""

    def __init__(
        self, model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]]
    ) -> None:
        """Sort the events and assign slots; leave out read-only operations of unknown outcome.

        Raises `ValueError` if an operation returns before its call, or if a time is nan.
        """
        self.model = model
        self.operations = tuple(operations)
        self.stepper = Stepper(model, self.operations)
        self.returns: list[int] = []  # operation numbers in the order of their returns
        self.return_bits: list[int] = []
        # the open operations before each return, latest call first
        self.open_writes: list[tuple[Slot, ...]] = []
        self.open_reads: list[tuple[Slot, ...]] = []
        self.unknown: list[int] = []  # the numbers of unknown operations, in call order
        # how many unknown operations were called before each return
        self.unknown_called: list[int] = []
        self.unknown_twin: list[int] = []  # the previous interchangeable unknown operation, or -1
        self.footprints = self._footprints()
        # the distinct footprints of the unknown operations called before each return
        self.unknown_footprints: list[tuple[int, ...]] = []
        self._sweep(self._events())

    def _footprints(self) -> list[int]:
        """Return the footprint of each operation as a bit mask, or `EVERYTHING`."""
        bits: dict[str, int] = {}
        order: list[int] = []
        for operation in self.operations:
            parts = self.model.footprint(operation.input)
            if parts is None:
                order.append(EVERYTHING)
                continue
            mask = 0
            for part in sorted(parts):
                mask |= bits.setdefault(part, 1 << len(bits))
            order.append(mask)
        self._separable = any(mask != EVERYTHING for mask in order)
        return order

    def relevant(self, position: int, mask: int) -> int:
        """Return the footprint of all operations that can affect the return at `position`.

        Let R be the operation that returns there. An operation before R that shares no part of the
        state with R, directly or through other operations, commutes with them and can move right
        after R. So a search needs to try only operations before R that footprints connect to R.
        Open reads also connect operations.
        """
        footprints = self.footprints
        reach = footprints[self.returns[position]]
        if not self._separable or reach == EVERYTHING:
            return EVERYTHING
        apart = [
            footprints[op]
            for slots in (self.open_writes[position], self.open_reads[position])
            for bit, op in slots
            if not mask & bit
        ]
        apart.extend(self.unknown_footprints[position])
        grown = True
        while grown:
            grown = False
            rest = []
            for footprint in apart:
                if footprint & reach:
                    reach |= footprint
                    grown = True
                else:
                    rest.append(footprint)
            apart = rest
        return reach

    def _events(self) -> list[tuple[float, int, int]]:
        events: list[tuple[float, int, int]] = []
        for number, operation in enumerate(self.operations):
            end = operation.return_time
            if operation.call != operation.call or end != end:  # noqa: PLR0124 - true of nan alone
                raise ValueError(
                    f"operation {number} has times {operation.call} and {end}; nan is not a time"
                )
            if end is None:
                if not self.stepper.read_only[number]:
                    events.append((operation.call, 0, number))
                continue
            if end < operation.call:
                raise ValueError(
                    f"operation {number} returns at {end}, before its call at "
                    f"{operation.call}; times must be on one clock"
                )
            events.append((operation.call, 0, number))
            events.append((end, 1, number))
        events.sort()
        return events

    def _sweep(self, events: list[tuple[float, int, int]]) -> None:
        read_only = self.stepper.read_only
        free: list[int] = []
        slots_used = 0
        bits: dict[int, int] = {}
        writes: list[Slot] = []
        reads: list[Slot] = []
        twins: dict[int, int] = {}
        unknown_footprints: tuple[int, ...] = ()
        for _, kind, number in events:
            if kind == 1:
                if not len(self.returns) % EVENTS_UNWATCHED:
                    tick()
                self.returns.append(number)
                self.return_bits.append(bits[number])
                self.open_writes.append(tuple(reversed(writes)))
                self.open_reads.append(tuple(reads))
                self.unknown_called.append(len(self.unknown))
                self.unknown_footprints.append(unknown_footprints)
                side = reads if read_only[number] else writes
                side.remove((bits[number], number))
                free.append(bits.pop(number))
                continue
            if self.operations[number].return_time is None:
                # Equal operations share a memo table, so its identity finds equal operations.
                cls = id(self.stepper.memo[number])
                self.unknown_twin.append(twins.get(cls, -1))
                twins[cls] = len(self.unknown)
                self.unknown.append(number)
                if self.footprints[number] not in unknown_footprints:
                    unknown_footprints = (*unknown_footprints, self.footprints[number])
                continue
            if free:
                bit = free.pop()
            else:
                bit = 1 << slots_used
                slots_used += 1
            bits[number] = bit
            (reads if read_only[number] else writes).append((bit, number))

    def advance(self, position: int, mask: int, state: int) -> tuple[int, int]:
        """Absorb open reads that are legal, and pass returns of linearized operations.

        Absorbing legal reads loses no order: reads change nothing, so they can move to this point
        in any legal order. Returns the new position and mask.
        """
        bits = self.return_bits
        end = len(bits)
        memo = self.stepper.memo
        step = self.stepper.step
        while position < end:
            for bit, op in self.open_reads[position]:
                if not mask & bit:
                    after = memo[op].get(state)
                    if after is None:
                        after = step(state, op)
                    if after == state:
                        mask |= bit
            bit = bits[position]
            if not mask & bit:
                break
            mask ^= bit
            position += 1
        return position, mask

    def replay(self, choices: Sequence[int]) -> list[int]:
        """Return the whole order to which a search's `choices` lead, including absorbed reads."""
        order: list[int] = []
        state = self.stepper.initial
        done = [False] * len(self.operations)
        position = 0
        for choice in (None, *choices):
            # if the search chose a read, the replay may already have absorbed it
            if choice is not None and not done[choice]:
                after = self.stepper.step(state, choice)
                assert after != ILLEGAL_STEP, "a search took an illegal step"
                state = after
                done[choice] = True
                order.append(choice)
            position = self._replay_reads(position, state, done, order)
        return order

    def _replay_reads(self, position: int, state: int, done: list[bool], order: list[int]) -> int:
        while position < len(self.returns):
            for _, op in self.open_reads[position]:
                if not done[op] and self.stepper.step(state, op) == state:
                    done[op] = True
                    order.append(op)
            if not done[self.returns[position]]:
                break
            position += 1
        return position
