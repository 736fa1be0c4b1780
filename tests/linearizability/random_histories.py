"""Random histories of any size from small simulated stores.

Clients overlap, and some answers are lost or false. The kinds of stores are those of
`tests.native.generate`, a catalog of tables, and a queue that may answer in any order.
"""

import random
from dataclasses import replace
from typing import Any

from checkers.catalog.models.types import (
    Alter,
    Answer,
    CatalogInput,
    Create,
    Delete,
    ListTables,
    Rename,
)
from checkers.foreign.catalogs import TableRequest, catalog_of_tables, table_request
from checkers.linearizability import UNKNOWN, Model, Operation
from checkers.linearizability.models.queues import Dequeue, Enqueue, UnorderedQueue
from tests.native import generate
from tests.native.generate import Kind, Ops


class TableKind(Kind):
    """A kind of store: the catalog of tables, whose model depends on the operations."""

    def model_for(self, operations: Ops) -> Model[Any, Any, Any]:
        return catalog_of_tables(operations)


def _catalog_kind(names: int, ids: int) -> Kind:
    """Build a kind of catalog; with few ids, several creates assign the same id."""

    def call(rng: random.Random) -> CatalogInput:
        f = rng.choice(("create", "create", "alter", "alter", "drop", "ren", "get", "get", "list"))
        first, second = f"t{rng.randrange(names)}", f"t{rng.randrange(names)}"
        value = TableRequest(first, second, rng.randrange(10), rng.randint(1, ids))
        return table_request(f, value)

    def answer(state: Any, request: CatalogInput) -> tuple[Answer, Any]:
        held = {entry[0]: entry[1:] for entry in state}
        if isinstance(request, ListTables):
            return Answer("ok", listing=tuple((n, held[n][0], None) for n in sorted(held))), state
        output = Answer("ok")
        here = held.get(request.name)
        if isinstance(request, Create):
            output = Answer("ok", request.key) if here is None else Answer("exists")
            held.setdefault(request.name, (request.key, 1, request.columns))
        elif here is None:
            return Answer("not-found"), state
        elif isinstance(request, Rename) and request.new_name in held:
            return Answer("exists"), state
        else:
            ident, version, columns = here
            output = Answer("ok", ident)
            match request:
                case Alter(steps=((_, payload),)):
                    held[request.name] = (ident, version + 1, (payload,))
                    output = Answer("ok", ident, version + 1)
                case Delete():
                    del held[request.name]
                case Rename(new_name=new_name):
                    held[new_name] = held.pop(request.name)
                case _:
                    output = Answer("ok", ident, version, columns=columns)
        return output, tuple(sorted((name, *rest) for name, rest in held.items()))

    def lie(rng: random.Random, request: CatalogInput, output: Answer) -> Any:
        if isinstance(request, ListTables):
            if output.listing and rng.random() < 0.7:
                at = rng.randrange(len(output.listing))
                return output._replace(listing=output.listing[:at] + output.listing[at + 1 :])
            entry = (f"t{rng.randrange(names)}", str(rng.randint(1, ids)), None)
            return output._replace(listing=tuple(sorted({*output.listing, entry}, key=str)))
        if output.result != "ok":
            return Answer("exists" if output.result == "not-found" else "not-found")
        wrong = rng.choice(("ident", "version", "columns", "not-found"))
        if wrong == "not-found":
            return Answer("exists" if isinstance(request, Create) else wrong)
        if wrong == "ident" and not isinstance(request, Create):
            return output._replace(table_id=str(rng.randint(1, ids)))
        if wrong == "version" and output.version is not None:
            return output._replace(version=max(1, output.version + rng.choice((-1, -1, 1))))
        if output.columns is None:
            return output
        return output._replace(columns=(f"payload {rng.randrange(10)}",))

    return TableKind(catalog_of_tables(()), call, answer, lie)


def _queue_call(rng: random.Random) -> Enqueue | Dequeue:
    return Enqueue(rng.randrange(3)) if rng.random() < 0.5 else Dequeue()


def _queue_answer(state: Any, input_: Any) -> tuple[Any, Any]:
    """Return the answer and the next state. A dequeue takes the smallest element.

    The model would allow any element.
    """
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
""""lossy" and "unordered-queue" are non-deterministic, so they are searched as sets of states."""


def catalog(names: int) -> Kind:
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
    """Simulate `total` operations of `clients`.

    An operation takes effect at a random moment between its call and its return. The share `lost`
    of the operations gets no answer, and takes effect later or never. At the end, `lies` answers
    are falsified, all of them after the share `lies_from` of the history.
    """
    state: Any = kind.model.init()
    if isinstance(kind, TableKind) or not isinstance(state, int | tuple):
        state = 0 if kind is generate.KINDS["lossy"] else ()
    made: Ops = []
    working: dict[int, tuple[Any, int, Any, bool]] = {}  # input, call, output, applied
    waiting: list[Any] = []  # operations without an answer that are not applied yet
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
