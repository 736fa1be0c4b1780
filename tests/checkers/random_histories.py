"""Random histories of small simulated stores, of any size: clients overlap, answers get lost, and
some answers are falsified. The kinds of `tests.native.generate`, and two more: the versioned
catalog, with lists and renames, and a queue that may answer in any order.
"""

import random
from dataclasses import replace
from typing import Any

from checkers.linearizability import UNKNOWN, Model, Operation
from checkers.linearizability.models.queues import Dequeue, Enqueue, UnorderedQueue
from checkers.linearizability.models.versioned import (
    VersionedCatalog,
    VersionedInput,
    VersionedOutput,
)
from tests.native import generate
from tests.native.generate import Kind, Ops


def _catalog_kind(names: int, ids: int) -> Kind:
    """With few ids, several creates give the same one."""

    def call(rng: random.Random) -> VersionedInput:
        op = rng.choice(("create", "create", "alter", "alter", "drop", "ren", "get", "get", "list"))
        if op == "list":
            return VersionedInput(op, "", "", 0, 0)
        name = f"t{rng.randrange(names)}"
        other = f"t{rng.randrange(names)}" if op == "ren" else ""
        payload = rng.randrange(10) if op in {"create", "alter"} else 0
        return VersionedInput(
            op, name, other, payload, rng.randint(1, ids) if op == "create" else 0
        )

    def answer(state: Any, input_: VersionedInput) -> tuple[VersionedOutput, Any]:
        held = {entry[0]: entry[1:] for entry in state}
        ident, version, payload, result = 0, 0, 0, "ok"
        listing: tuple[tuple[str, int], ...] = ()
        here = held.get(input_.name)
        if input_.op == "list":
            listing = tuple((name, held[name][0]) for name in sorted(held))
        elif input_.op == "create":
            if here is not None:
                result = "ex"
            else:
                ident, version = input_.ident, 1
                held[input_.name] = (ident, 1, input_.payload)
        elif here is None:
            result = "nf"
        elif input_.op == "ren" and input_.name2 in held:
            result = "ex"
        else:
            ident, version, payload = here
            if input_.op == "alter":
                version += 1
                held[input_.name] = (ident, version, input_.payload)
            elif input_.op == "drop":
                del held[input_.name]
            elif input_.op == "ren":
                held[input_.name2] = held.pop(input_.name)
        seen = payload if input_.op == "get" else 0
        return (
            VersionedOutput(result, ident, version, seen, listing),
            tuple(sorted((name, *rest) for name, rest in held.items())),
        )

    def lie(rng: random.Random, input_: VersionedInput, output: VersionedOutput) -> Any:
        if input_.op == "list":
            if output.listing and rng.random() < 0.7:
                at = rng.randrange(len(output.listing))
                return output._replace(listing=output.listing[:at] + output.listing[at + 1 :])
            entry = (f"t{rng.randrange(names)}", rng.randint(1, ids))
            return output._replace(listing=tuple(sorted({*output.listing, entry})))
        if output.result != "ok":
            return output._replace(result="ex" if output.result == "nf" else "nf")
        wrong = rng.choice(("ident", "version", "seen", "nf"))
        if wrong == "nf":
            return VersionedOutput("nf" if input_.op != "create" else "ex", 0, 0, 0, ())
        if wrong == "ident":
            return output._replace(ident=rng.randint(1, ids))
        if wrong == "version":
            return output._replace(version=max(1, output.version + rng.choice((-1, -1, 1))))
        return output._replace(seen=rng.randrange(10))

    return Kind(VersionedCatalog(), call, answer, lie)


def _queue_call(rng: random.Random) -> Enqueue | Dequeue:
    return Enqueue(rng.randrange(3)) if rng.random() < 0.5 else Dequeue()


def _queue_answer(state: Any, input_: Any) -> tuple[Any, Any]:
    """The least element leaves: every order is allowed, and so is this."""
    if isinstance(input_, Enqueue):
        return None, tuple(sorted((*state, input_.element)))
    return (state[0], state[1:]) if state else (None, state)


def _queue_lie(rng: random.Random, input_: Any, output: Any) -> Any:
    return output if isinstance(input_, Enqueue) else rng.choice((None, 0, 1, 2))


KINDS: dict[str, Kind] = {
    **generate.KINDS,
    "catalog": _catalog_kind(names=2, ids=10**6),
    "catalog, ids given twice": _catalog_kind(names=2, ids=3),
    "unordered-queue": Kind(UnorderedQueue().to_model(), _queue_call, _queue_answer, _queue_lie),
}
"""Two are non-deterministic: "lossy" and "unordered-queue" are searched as sets of states."""


def catalog(names: int) -> Kind:
    """A catalog of many names, with ids that are given once."""
    return _catalog_kind(names=names, ids=10**9)


def simulate(
    kind: Kind,
    rng: random.Random,
    *,
    clients: int,
    total: int,
    lost: float,
    lies: int,
    lies_from: float = 0.8,
) -> Ops:
    """`total` operations by `clients`, of whose answers a share is `lost` and `lies` are false.

    An operation takes effect at a random moment while it is open, or, if its answer is lost, then
    or later or never. Lies are told after that share of the history.
    """
    model: Model[Any, Any, Any] = kind.model
    state: Any = () if not isinstance(model.init(), int | tuple) else model.init()
    if kind is generate.KINDS["lossy"]:
        state = 0
    made: Ops = []
    working: dict[int, tuple[Any, int, Any, bool]] = {}  # input, call, output, applied
    waiting: list[Any] = []  # lost, and not applied yet
    now = 0
    while total or working:
        now += 1
        if waiting and rng.random() < 0.05:
            _, state = kind.answer(state, waiting.pop(rng.randrange(len(waiting))))
        client = rng.randrange(clients)
        if client not in working:
            if total:
                total -= 1
                working[client] = (kind.call(rng), now, None, False)
            continue
        input_, call, output, applied = working[client]
        if not applied and rng.random() < lost:
            waiting.append(input_)
            made.append(Operation(client, input_, call, UNKNOWN, None))
            del working[client]
        elif not applied:
            output, state = kind.answer(state, input_)
            working[client] = (input_, call, output, True)
        else:
            done = None if rng.random() < lost else now
            made.append(Operation(client, input_, call, UNKNOWN if done is None else output, done))
            del working[client]
    made = [replace(operation, id=number) for number, operation in enumerate(made)]
    for _ in range(lies):
        at = rng.randrange(int(len(made) * lies_from), len(made))
        if not made[at].is_unknown:
            false = kind.lie(rng, made[at].input, made[at].output)
            made[at] = replace(made[at], output=false)
    return made
