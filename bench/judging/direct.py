"""Measures checks that need no search, and the time limit: `python -m bench.judging.direct`.

The first table has large histories of registers, sets, queues and bags, both valid and invalid. For
each it shows the verdict, and the CPU seconds and growth of memory of the check including its
proof. Each check runs in a process of its own. The second table shows how long slow checks took
with a time limit of two seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from checkers.linearizability import (
    Model,
    NondeterministicModel,
    Operation,
    Unknown,
    certify,
    check_operations,
)
from checkers.linearizability.models.queues import Dequeue, Enqueue, Queue, UnorderedQueue
from checkers.linearizability.models.register import Read, Register, Write
from checkers.linearizability.models.sets import Add, ReadAll, Remove, Set

LIMIT_S: Final = 2.0
CLIENTS: Final = 10
Ops = list[Operation[Any, Any]]


class Case(NamedTuple):
    """One history to check, and its expected verdict (`None`: any verdict)."""

    name: str
    model: Callable[[], Model[Any, Any, Any]]
    operations: Callable[[], Ops]
    expected: str | None


class _Clients:
    """Clients with overlapping operations. Each client invokes one operation after another."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.free = [0.0] * CLIENTS
        self.operations: list[tuple[float, int, float, float, Any]] = []

    def call(self, argument: Any) -> None:
        """Add an operation: draw its interval, and the moment at which it takes effect."""
        client = min(range(CLIENTS), key=self.free.__getitem__)
        call = self.free[client] + self.rng.random()
        end = call + self.rng.uniform(0.5, 10)
        self.free[client] = end
        self.operations.append((self.rng.uniform(call, end), client, call, end, argument))

    def play(self, answer: Callable[[Any], Any], lost: float = 0.0) -> Ops:
        """Return the operations, answered by `answer` except for a share `lost` without answers."""
        operations = []
        for number, (_, client, call, end, argument) in enumerate(sorted(self.operations)):
            output = answer(argument)
            is_lost = self.rng.random() < lost
            end_ns = None if is_lost else end
            operations.append(Operation(client, argument, call, output, end_ns, number))
        return operations


def _register(total: int, *, stale: bool, lost: float = 0.0) -> Ops:
    clients, held = _Clients(total), [None]
    for number in range(total):
        clients.call(Read() if number % 2 else Write(number))

    def answer(argument: Any) -> Any:
        if isinstance(argument, Write):
            held.append(argument.value)
            return None
        return held[-1]

    operations = clients.play(answer, lost)
    if stale:
        at = next(
            n
            for n in range(total * 9 // 10, total)
            if isinstance(operations[n].input, Read) and not operations[n].is_unknown
        )
        old = operations[at - 200 : at - 100]
        value = next(o.input.value for o in old if isinstance(o.input, Write) and not o.is_unknown)
        operations[at] = replace(operations[at], output=value)
    return operations


def _set(total: int, *, lose: bool) -> Ops:
    clients = _Clients(total)
    held: set[int] = set()
    for number in range(total):
        clients.call(Add(number))
    operations = clients.play(lambda argument: held.add(argument.element))
    end = max(o.return_time or 0 for o in operations)
    elements = frozenset(held - ({total // 2} if lose else set()))
    for number in range(3):
        call = end + 2 * number + 1
        operations.append(Operation(99, ReadAll(), call, elements, call + 1, total + number))
    return operations


def _removing_set(total: int) -> Ops:
    clients = _Clients(total)
    held: set[int] = set()
    for number in range(total):
        clients.call((Add(number), Remove(number // 2), ReadAll())[number % 3])

    def answer(argument: Any) -> Any:
        if isinstance(argument, ReadAll):
            return frozenset(held)
        (held.add if isinstance(argument, Add) else held.discard)(argument.element)
        return None

    return clients.play(answer)


def _queue(total: int, *, bad: bool, lost: float = 0.0, fifo: bool = True) -> Ops:
    clients = _Clients(total)
    held: list[int] = []
    for number in range(total):
        few = number < 40 or clients.rng.random() < 0.5  # keeps about 40 elements in the queue
        clients.call(Enqueue(number) if few else Dequeue())

    def answer(argument: Any) -> Any:
        if isinstance(argument, Enqueue):
            held.append(argument.element)
            return None
        return held.pop(0 if fifo else clients.rng.randrange(len(held))) if held else None

    operations = clients.play(answer, lost)
    if bad:
        taken = [
            n
            for n, o in enumerate(operations)
            if isinstance(o.input, Dequeue) and o.output is not None and not o.is_unknown
        ]
        here, there = taken[len(taken) // 2], taken[len(taken) // 2 + 25]
        first, second = operations[here], operations[there]
        operations[there] = replace(second, output=first.output)
        if fifo:
            operations[here] = replace(first, output=second.output)
    return operations


class Slow(Register):
    """A register whose steps take 0.3 s."""

    def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
        time.sleep(0.3)
        return super().step(state, input_, output)


class Exploding(NondeterministicModel[tuple[int, ...], Write, None]):
    """A model in which six states follow each state."""

    def init(self) -> Iterable[tuple[int, ...]]:
        return [()]

    def step(
        self, state: tuple[int, ...], input_: Write, output: Unknown | None, /
    ) -> Iterable[tuple[int, ...]]:
        del input_, output
        return [(*state, n) for n in range(6)]


def _one_by_one(total: int) -> Ops:
    return [Operation(0, Write(n), 2 * n, None, 2 * n + 1, n) for n in range(total)]


def _lost_dequeues(elements: int) -> Ops:
    operations: Ops = [Operation(n, Enqueue(n), 2 * n, None, 2 * n + 1, n) for n in range(elements)]
    begin = 2 * elements
    for n in range(elements):
        number = elements + n
        operations.append(Operation(100 + n, Dequeue(), begin + n, None, None, number))
    # The element 0 is enqueued twice, so that counting elements does not decide the history.
    operations.append(Operation(0, Enqueue(0), begin + 1, None, begin + 99, 500))
    operations.append(Operation(1, Dequeue(), begin + 100, None, begin + 101, 501))
    operations.append(Operation(1, Dequeue(), begin + 102, 0, begin + 103, 502))
    return operations


def _ambiguous(total: int) -> Ops:
    rng = random.Random(total)
    lost = [Operation(n, Write(n % 7), 0, None, None, n) for n in range(total)]
    reads = [
        Operation(100 + n, Read(), n + 1, rng.randrange(7), n + 20, total + n) for n in range(total)
    ]
    late = [Operation(200 + n, Write(10 + n), 1, None, 10_000, 2 * total + n) for n in range(total)]
    return [*lost, *reads, *late, Operation(999, Read(), 9_000, 10 + total // 2, 9_001, 99_999)]


SETTLED: Final = [
    Case(
        "register, 100,000", lambda: Register(None), lambda: _register(100_000, stale=False), "Ok"
    ),
    Case(
        "register, 100,000, one stale read",
        lambda: Register(None),
        lambda: _register(100_000, stale=True),
        "Illegal",
    ),
    Case(
        "register, 20,000, 3 % lost, one stale read",
        lambda: Register(None),
        lambda: _register(20_000, stale=True, lost=0.03),
        "Illegal",
    ),
    Case("set, 20,000 adds", Set, lambda: _set(20_000, lose=False), "Ok"),
    Case("set, 20,000 adds, one lost", Set, lambda: _set(20_000, lose=True), "Illegal"),
    Case("FIFO queue, 500", Queue, lambda: _queue(500, bad=False), "Ok"),
    Case("FIFO queue, 500, two swapped", Queue, lambda: _queue(500, bad=True), "Illegal"),
    Case("FIFO queue, 100,000", Queue, lambda: _queue(100_000, bad=False), "Ok"),
    Case("FIFO queue, 100,000, two swapped", Queue, lambda: _queue(100_000, bad=True), "Illegal"),
    Case("bag, 500", UnorderedQueue().to_model, lambda: _queue(500, bad=False, fifo=False), "Ok"),
    Case(
        "bag, 500, one taken twice",
        UnorderedQueue().to_model,
        lambda: _queue(500, bad=True, fifo=False),
        "Illegal",
    ),
    Case("FIFO queue, 500, 10 % lost", Queue, lambda: _queue(500, bad=False, lost=0.1), None),
]
LIMITED: Final = [
    Case(
        "bag, 51, a fifth lost, some found empty",
        UnorderedQueue().to_model,
        lambda: _queue(51, bad=False, lost=0.2, fifo=False),
        None,
    ),
    Case(
        "bag, 12 elements, 12 lost dequeues",
        UnorderedQueue().to_model,
        lambda: _lost_dequeues(12),
        None,
    ),
    Case(
        "bag, 24 elements, 24 lost dequeues",
        UnorderedQueue().to_model,
        lambda: _lost_dequeues(24),
        None,
    ),
    Case("set, 3,000, with removals", Set, lambda: _removing_set(3_000), None),
    Case("steps of 0.3 s", lambda: Slow(None), lambda: _one_by_one(40), None),
    Case("six states after each", Exploding().to_model, lambda: _one_by_one(12), None),
    Case("register, few values, 60 lost", lambda: Register(None), lambda: _ambiguous(60), None),
]


def _judge(name: str, limit_s: float | None) -> tuple[str, str, float, float, int]:
    case = next(case for case in (*SETTLED, *LIMITED) if case.name == name)
    operations = case.operations()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = case.model()
    wall_s, cpu_s = time.monotonic(), time.process_time()
    outcome = check_operations(model, operations, timeout_s=limit_s)
    proof = certify(model, operations, outcome)
    wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
    core = ""
    if proof is not None and proof.core:
        core = f"{len(proof.core)} operations{', minimal' if proof.minimal else ''}"
    elif proof is not None:
        core = "an order" if proof.confirmed_by else "not confirmed"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return outcome.result.value, core, wall_s, cpu_s, grown // 1024


def _run(cases: Iterable[Case], limit_s: float | None) -> bool:
    fine = True
    print(f"{'history':45} {'verdict':8} {'proof':24} {'wall s':>7} {'CPU s':>7} {'MiB':>6}")
    context = multiprocessing.get_context("fork")
    for case in cases:
        with context.Pool(1) as pool:
            verdict, core, wall_s, cpu_s, mib = pool.apply(_judge, (case.name, limit_s))
        wrong = case.expected not in {None, verdict}
        late = limit_s is not None and wall_s > limit_s + 1
        fine &= not wrong and not late
        note = " WRONG" if wrong else " LATE" if late else ""
        print(f"{case.name:45} {verdict:8} {core:24} {wall_s:7.2f} {cpu_s:7.2f} {mib:6}{note}")
    return fine


def main() -> int:
    """Print the tables; return 1 if a verdict is wrong or a check exceeded its limit, else 0."""
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    settled = _run(SETTLED, None)
    limited = _run(LIMITED, LIMIT_S)
    return 0 if settled and limited else 1


if __name__ == "__main__":
    raise SystemExit(main())
