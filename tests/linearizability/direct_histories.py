"""Small random histories for the direct methods, compared with a brute-force oracle.

Intervals are random, with ties. Each operation takes effect at a random point of its interval, and
some answers are then falsified. Values are mostly unique; lost answers and failed compare-and-sets
are common.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from checkers.linearizability import UNKNOWN, Model, Operation
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.queues import Dequeue, Enqueue, Queue, UnorderedQueue
from checkers.linearizability.models.register import Cas, Read, Register, Write
from checkers.linearizability.models.sets import Add, Contains, ReadAll, Set
from checkers.linearizability.verify import verify_core, verify_orders
from tests.linearizability.test_engine import wing_and_gong

Ops = list[Operation[Any, Any]]

LOST: Final = object()


class Style(NamedTuple):
    """A kind of history: its model, and generators of inputs, answers and false answers."""

    model: Callable[[], Model[Any, Any, Any]]
    input: Callable[[random.Random, int], Any]
    answer: Callable[[random.Random, Any, Any], tuple[Any, Any]]
    lie: Callable[[random.Random, Any, Any, int], Any]
    start: Any


def _register_input(rng: random.Random, number: int) -> Any:
    fresh = number if rng.random() < 0.95 else rng.randrange(3)
    kind = rng.random()
    if kind < 0.4:
        return Read()
    if kind < 0.75:
        return Write(fresh)
    return Cas(rng.randrange(max(0, number - 3), number + 1), fresh)


def _register_answer(rng: random.Random, held: Any, given: Any) -> tuple[Any, Any]:
    if isinstance(given, Read):
        return held, held
    if isinstance(given, Write):
        return None, given.value
    return (True, given.new) if held == given.old else (False, held)


def _guess(rng: random.Random, given: Any, held: Any) -> Any:
    """Draw the expected value of a compare-and-set; mostly the current value."""
    return given._replace(old=held) if isinstance(given, Cas) and rng.random() < 0.8 else given


def _register_lie(rng: random.Random, given: Any, answer: Any, total: int) -> Any:
    if isinstance(given, Read):
        return rng.randrange(total + 1)
    return not answer if isinstance(given, Cas) else answer


def _map_input(rng: random.Random, number: int) -> Any:
    if rng.random() < 0.5:
        return KeyValueInput("get", "k")
    f = "put" if rng.random() < 0.98 else "append"
    return KeyValueInput(f, "k", str(number if rng.random() < 0.95 else rng.randrange(3)))


def _map_answer(rng: random.Random, held: Any, given: Any) -> tuple[Any, Any]:
    if given.f == "get":
        return held, held
    return None, given.value if given.f == "put" else held + given.value


def _map_lie(rng: random.Random, given: Any, answer: Any, total: int) -> Any:
    return str(rng.randrange(total + 1)) if given.f == "get" else answer


def _set_input(rng: random.Random, number: int) -> Any:
    kind = rng.random()
    element = number if rng.random() < 0.9 else rng.randrange(number + 1)
    if kind < 0.5:
        return Add(element)
    return ReadAll() if kind < 0.85 else Contains(rng.randrange(number + 1))


def _set_answer(rng: random.Random, held: Any, given: Any) -> tuple[Any, Any]:
    if isinstance(given, ReadAll):
        return held, held
    if isinstance(given, Contains):
        return given.element in held, held
    new = given.element not in held
    return rng.choice((None, new)), held | {given.element}


def _set_lie(rng: random.Random, given: Any, answer: Any, total: int) -> Any:
    if isinstance(given, ReadAll):
        return answer ^ {rng.randrange(total)}
    return answer if answer is None else not answer


def _queue_input(rng: random.Random, number: int) -> Any:
    if rng.random() < 0.55:
        return Dequeue()
    return Enqueue(number if rng.random() < 0.93 else rng.randrange(number + 1))


def _queue_answer(rng: random.Random, held: Any, given: Any) -> tuple[Any, Any]:
    if isinstance(given, Enqueue):
        return None, (*held, given.element)
    return (held[0], held[1:]) if held else (None, held)


def _bag_answer(rng: random.Random, held: Any, given: Any) -> tuple[Any, Any]:
    if held and isinstance(given, Dequeue):
        at = rng.randrange(len(held))
        return held[at], held[:at] + held[at + 1 :]
    return _queue_answer(rng, held, given)


def _queue_lie(rng: random.Random, given: Any, answer: Any, total: int) -> Any:
    if isinstance(given, Enqueue):
        return answer
    return rng.choice([None, rng.randrange(total), rng.randrange(1, total)])


STYLES: Final = {
    "register": Style(lambda: Register(0), _register_input, _register_answer, _register_lie, 0),
    "map": Style(KeyValue, _map_input, _map_answer, _map_lie, ""),
    "set": Style(Set, _set_input, _set_answer, _set_lie, frozenset()),
    "queue": Style(Queue, _queue_input, _queue_answer, _queue_lie, ()),
    "bag": Style(lambda: UnorderedQueue().to_model(), _queue_input, _bag_answer, _queue_lie, ()),
}


def history(name: str, rng: random.Random, *, most: int = 8) -> Ops:
    """Draw a history of two to eight operations, or of up to `most` of them."""
    style = STYLES[name]
    total = rng.randint(2, most)
    length = rng.choice((2, 4, 8, 12))
    spread = rng.choice((6, 12, 30)) * most // 8
    spans = []
    for _ in range(total):
        call = rng.randrange(spread)
        end = call + rng.randrange(length + 1)
        spans.append((rng.uniform(call, end), call, end))
    spans.sort()
    lost = rng.choice((0.0, 0.1, 0.3))
    held: Any = style.start
    operations: Ops = []
    for number, (_, call, end) in enumerate(spans, 1):
        given = _guess(rng, style.input(rng, number), held)
        is_lost = rng.random() < lost
        if is_lost and rng.random() < 0.4:
            answer: Any = None  # the operation had no effect
        else:
            answer, held = style.answer(rng, held, given)
        operations.append(
            Operation(
                number,
                given,
                call,
                UNKNOWN if is_lost else answer,
                None if is_lost else end,
                number,
            )
        )
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        at = rng.randrange(total)
        operation = operations[at]
        if operation.is_unknown:
            continue
        if rng.random() < 0.5:
            call = max(0, int(operation.call) + rng.choice((-3, 3)))
            end = max(call, int(operation.return_time or 0) + rng.choice((-3, 3)))
            operations[at] = replace(operation, call=call, return_time=end)
        else:
            said = style.lie(rng, operation.input, operation.output, total)
            operations[at] = replace(operation, output=said)
    return operations


class Compared(NamedTuple):
    """The results of the oracle and of the direct method (`None` if undecided), and an error."""

    legal: bool
    decided: bool | None
    wrong: str = ""


def compared(model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]]) -> Compared:
    """Check every part by the direct method and by brute force, and verify proofs."""
    legal, decided = True, True
    for part in model.partition(operations):
        part_legal = wing_and_gong(model, list(part))
        legal &= part_legal
        decision = model.decide(part)
        if decision is None:
            decided = False
            continue
        if (decision.order is not None) != part_legal:
            return Compared(legal, not part_legal, f"the oracle says {part_legal}: {decision}")
        try:
            _verify(model, part, decision)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is to be told
            return Compared(legal, part_legal, f"{decision}: {error!r}")
    return Compared(legal, legal if decided else None)


def _verify(model: Model[Any, Any, Any], part: Sequence[Operation[Any, Any]], found: Any) -> None:
    if found.order is not None:
        one_part = type("OnePart", (type(model),), {"partition": lambda _, given: [given]})
        alone = object.__new__(one_part)
        alone.__dict__.update(model.__dict__)
        verify_orders(alone, part, [found.order])
        return
    kept = model.restricted(part, found.elements) if found.elements else part
    assert verify_core(model, kept, found.core, steps_max=1_000_000), (
        "the verifier does not confirm the core"
    )
