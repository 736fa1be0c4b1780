"""Makes the histories for `bench.judging.checkers`: a supplied set, and two families of our own.

`go_lines` writes a history for the Go driver.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from checkers.catalog.models.types import Alter, Create, apply_steps
from checkers.linearizability import UNKNOWN, Model, Operation
from checkers.linearizability.models.keyvalue import KeyValue
from checkers.linearizability.models.register import Cas, Read, Register, Write
from tests.checkers.conformance.formats import Row, load, rows

Ops = list[Operation[Any, Any]]
NIL = -1_000_000  # the value that means an absent value in the Go driver's files


@dataclass(frozen=True)
class History:
    """One history. `go_model` is the first line of the file that the Go driver reads."""

    name: str
    model: Model[Any, Any, Any]
    operations: Ops
    expected: str
    go_model: str


@dataclass(frozen=True)
class Case:
    """One row of the table: some histories, whose times are added up."""

    name: str
    histories: tuple[History, ...]
    supplied: bool

    @property
    def operations(self) -> int:
        return sum(len(history.operations) for history in self.histories)


GO_MODELS = {
    "etcd-cas-register": f"register\t{NIL}",
    "kv-string": "kv-partitioned",
    "cas-register": "register\t0",
    "multi-register": "multi-register",
    "register": "register\t0",
    "catalog": "catalog",
}


def _labelled(operations: Ops) -> Ops:
    return [replace(operation, id=number) for number, operation in enumerate(operations)]


def _supplied(row: Row) -> History:
    model, operations = load(row)
    expected = "Ok" if row.expected == "valid" else "Illegal"
    return History(row.file, model, _labelled(operations), expected, GO_MODELS[row.model])


def supplied_cases() -> Iterator[Case]:
    """Yield the cases of the supplied set, if its files are there."""
    cases = [_supplied(row) for row in rows() if row.model in GO_MODELS]
    groups = {
        "etcd, 52 logs": "porcupine/etcd/",
        "Knossos, 61 histories": "knossos/",
        "kv, by key, 4 histories": "porcupine/kv/",
    }
    for name, prefix in groups.items():
        members = tuple(history for history in cases if history.name.startswith(prefix))
        if members:
            yield Case(name, members, supplied=True)
    for history in cases:
        if history.name.startswith("generated/"):
            name = history.name.removeprefix("generated/").removesuffix(".tsv")
            yield Case(name, (history,), supplied=True)
    whole = tuple(
        replace(history, model=KeyValue(partitioned=False), go_model="kv", name=f"{history.name} *")
        for history in cases
        if history.name.startswith("porcupine/kv/c10")
    )
    if whole:
        yield Case("kv c10, not by key, 2 histories", whole, supplied=False)


def own_cases() -> Iterator[Case]:
    """Yield our own cases: registers with many operations, or with 16 writes of unknown outcome."""
    crashed = (_history("crashed writes", crashed_writes(300, 4, 16), "Illegal"),)
    yield Case("16 unknown writes, invalid", crashed, supplied=False)
    for clients in (1, 4, 8):
        name = f"register, 100k ops, {clients} clients"
        yield Case(name, (_history(name, register(100_000, clients), "Ok"),), supplied=False)


def _history(name: str, operations: Ops, expected: str) -> History:
    return History(name, Register(0), operations, expected, "register\t0")


def register(total: int, clients: int, seed: int = 1) -> Ops:
    """Make a valid history of a register: half reads, and half writes of unique values."""
    rng = random.Random(seed)
    done: Ops = []
    calls: dict[int, tuple[Any, int]] = {}
    applied: dict[int, Any] = {}
    value = started = now = 0
    while len(done) < total:
        now += 1
        client = rng.randrange(clients)
        if client not in calls:
            if started < total:
                started += 1
                calls[client] = (Write(started) if rng.random() < 0.5 else Read(), now)
        elif client not in applied:
            argument = calls[client][0]
            if isinstance(argument, Write):
                assert isinstance(argument.value, int)
                value = argument.value
            applied[client] = None if isinstance(argument, Write) else value
        else:
            argument, call = calls.pop(client)
            done.append(Operation(client, argument, call, applied.pop(client), now, len(done)))
    return done


def crashed_writes(total: int, clients: int, crashed: int, seed: int = 1) -> Ops:
    """Make a history with a stale read: it is not linearizable. `crashed` writes never return."""
    operations = register(total, clients, seed)
    writes = [n for n, op in enumerate(operations) if isinstance(op.input, Write)]
    unseen = [n for n in writes if all(op.output != operations[n].input.value for op in operations)]
    for number in unseen[:: max(1, len(unseen) // crashed)][:crashed]:
        operations[number] = replace(operations[number], output=UNKNOWN, return_time=None)
    late = [n for n, op in enumerate(operations) if isinstance(op.input, Read)][-10]
    seen = operations[late].output
    stale = [n for n in writes if operations[n].return_time and operations[n].input.value != seen]
    operations[late] = replace(operations[late], output=operations[stale[-60]].input.value)
    return operations


# --- for the Go driver -------------------------------------------------------------------------


def go_lines(history: History) -> Iterator[str]:
    """Yield lines for the Go driver (see `porcupine/main.go`), without reads that do not return."""
    yield history.go_model
    kind = history.go_model.split("\t")[0]
    for operation in history.operations:
        unknown = operation.return_time is None
        output = UNKNOWN if unknown else operation.output
        if unknown and history.model.read_only(operation.input, output):
            continue
        end = -1 if operation.return_time is None else operation.return_time
        fields = FIELDS[kind](operation.input, output)
        yield "\t".join([str(operation.call), str(end), *map(str, fields)])


def _register_fields(input_: Any, output: Any) -> list[Any]:
    def shown(value: Any) -> Any:
        return NIL if value is None else value

    if isinstance(input_, Read):
        return ["r", shown(output), 0, 0]
    if isinstance(input_, Write):
        return ["w", shown(input_.value), 0, 0]
    assert isinstance(input_, Cas)
    return ["c", shown(input_.old), shown(input_.new), int(output is True)]


def _kv_fields(input_: Any, output: Any) -> list[Any]:
    return [input_.f, input_.key, input_.value, output if isinstance(output, str) else ""]


def _txn_fields(input_: Any, output: Any) -> list[Any]:
    micro = (input_ if output is UNKNOWN else output).micro
    return [f"{f}:{key}:{'*' if value is None else value}" for f, key, value in micro]


def _catalog_fields(input_: Any, output: Any) -> list[Any]:
    def payload(columns: tuple[str, ...]) -> str:
        return columns[0].removeprefix("payload ")

    f = {"delete": "drop", "rename": "ren"}.get(input_.f, input_.f)
    name, name2, left, ident = getattr(input_, "name", ""), getattr(input_, "new_name", ""), "0", 0
    if isinstance(input_, Create):
        left, ident = payload(input_.columns), input_.key
    elif isinstance(input_, Alter):
        left = payload(apply_steps((), input_.steps) or ())
    if output is UNKNOWN:
        return [f, name, name2, left, "?", ident, 0, 0, ""]
    result = {"exists": "ex", "not-found": "nf"}.get(output.result, output.result)
    listing = ",".join(f"{name}:{table}" for name, table, _ in output.listing)
    seen = payload(output.columns) if output.columns else 0
    version = output.version or int(isinstance(input_, Create))
    return [f, name, name2, left, result, output.table_id or ident, version, seen, listing]


FIELDS = {
    "register": _register_fields,
    "kv": _kv_fields,
    "kv-partitioned": _kv_fields,
    "multi-register": _txn_fields,
    "catalog": _catalog_fields,
}
