"""A history, prepared for searching: return events, slots, and memoized model steps.

A search never looks at more than a window: the operations that are open around one return event.
Events are sorted (at equal times calls before returns). Each open operation has a *slot*, a bit
that is reused after its return, so a configuration consists of three small numbers: the next return
not yet passed, the mask of open slots already linearized, and the state. Unknown operations never
return; a second mask has their bits, in call order.

`Stepper` numbers the states and the operation classes (equal input and output) and memoizes every
step, so a model in plain Python is called only for new steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from checkers.linearizability.clock import tick
from checkers.linearizability.model import Model, ModelError, Operation

ILLEGAL_STEP: Final = -1
EVENTS_UNWATCHED: Final = 64  # returns between two tests of the clock
EVERYTHING: Final = -1  # the footprint of an operation that touches everything

Slot = tuple[int, int]  # the slot's bit, and the operation's number


class Stepper:
    """The model with numbered states; `memo[op]` maps a state's number to the next state's."""

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
        """The number of the state after operation `op`, or `ILLEGAL_STEP`.

        Raises `ModelError` when a step contradicts `read_only`.
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
    """The error for a read-only operation that changes `state`."""
    return ModelError(
        f"{type(model).__name__}.read_only says that {model.describe_operation(input_, output)} "
        f"never changes the state, but step changes {model.describe_state(state)}; "
        "derive read_only from step"
    )


def _class_key(operation: Operation[Any, Any]) -> Hashable:
    """A key that is equal for equal operations; an unhashable operation is its own class.

    The type of the output is part of the key: 1 == True, but a model may tell them apart.
    """
    output = operation.said
    key = (operation.input, output, type(operation.input), type(output))
    try:
        hash(key)
    except TypeError:
        return ("unhashable", id(operation))
    return key


class Problem:
    """One history to search, with its stepper. Searches do not change it."""

    def __init__(
        self, model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]]
    ) -> None:
        """Sort the events and assign slots; unknown read-only operations are left out.

        Raises `ValueError` for an operation that returns before its call, and for times that are
        nan.
        """
        self.model = model
        self.operations = tuple(operations)
        self.stepper = Stepper(model, self.operations)
        self.returns: list[int] = []  # operation numbers in the order of their returns
        self.return_bits: list[int] = []
        # the open operations just before each return, latest call first
        self.open_writes: list[tuple[Slot, ...]] = []
        self.open_reads: list[tuple[Slot, ...]] = []
        self.unknown: list[int] = []  # the numbers of unknown operations, in call order
        # how many unknown operations were called before each return
        self.unknown_called: list[int] = []
        self.unknown_twin: list[int] = []  # the previous interchangeable unknown operation, or -1
        self.footprints = self._footprints()
        # distinct unknown operations, before each return
        self.unknown_footprints: list[tuple[int, ...]] = []
        self._sweep(self._events())

    def _footprints(self) -> list[int]:
        """The footprints as bit masks; -1 stands for everything."""
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
        """The footprint of everything that can affect the operation that returns at `position`.

        Take any order that places this operation, and go back from it. An earlier operation may
        share nothing with it, and nothing with those operations in between that had to be kept.
        Then it commutes with all of them and can be placed right after this operation (it is still
        open, or unknown). So only operations that footprints connect to this operation need to be
        tried before it; open reads connect, too.
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
                    f"operation {number} has the times {operation.call} and {end}; nan is no time"
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
                # Equal unknown operations are interchangeable: they have the same memo table.
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
        """Pass returns whose operation is linearized, and absorb reads that are legal now.

        This is sound and complete: any completion can be rewritten with those reads moved to this
        point, since they change nothing. Returns the new position and mask.
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
        """The whole order, with absorbed reads, that results from a search's branching choices."""
        order: list[int] = []
        state = self.stepper.initial
        done = [False] * len(self.operations)
        position = 0
        for choice in (None, *choices):
            # a chosen read may have been absorbed already
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
