"""Seeded random histories of simulated stores; some answers are lost or false."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from checkers.linearizability import UNKNOWN, Model, Operation, Unknown
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.models.register import (
    Cas,
    MultiRegister,
    Read,
    Register,
    Txn,
    Write,
)

Ops = list[Operation[Any, Any]]


class Name(NamedTuple):
    """A call on the directory: put, drop, move (to `other`), look, all, or nap (nothing)."""

    f: str
    name: str = ""
    other: str = ""
    value: int = 0


State = tuple[tuple[str, int], ...]


class Directory(Model[State, Name, Any]):
    """A directory of names with values, renames and lists, whose operations may be refused."""

    def init(self) -> State:
        return ()

    def answer(self, state: State, input_: Name) -> tuple[Any, State]:
        held = dict(state)
        match input_.f:
            case "all":
                return state, state
            case "look":
                return held.get(input_.name), state
            case "nap":
                return "ok", state
            case "put" if input_.name in held:
                return "exists", state
            case "put":
                held[input_.name] = input_.value
            case "drop" | "move" if input_.name not in held:
                return "absent", state
            case "drop":
                del held[input_.name]
            case "move" if input_.other in held:
                return "exists", state
            case _:
                held[input_.other] = held.pop(input_.name)
        return "ok", tuple(sorted(held.items()))

    def step(self, state: State, input_: Name, output: Any, /) -> tuple[bool, State]:
        answer, after = self.answer(state, input_)
        return output is UNKNOWN or answer == output, after

    def read_only(self, input_: Name, output: Any, /) -> bool:
        return input_.f in {"look", "all"} or output in {"exists", "absent"}

    def footprint(self, input_: Name, /) -> frozenset[str] | None:
        return None if input_.f == "all" else frozenset({input_.name, input_.other} - {""})


class Lossy(Model[frozenset[int], Any, Any]):
    """A register whose writes may be lost; its state is the set of possible values."""

    def init(self) -> frozenset[int]:
        return frozenset((0,))

    def step(
        self, state: frozenset[int], input_: Any, output: Any | Unknown, /
    ) -> tuple[bool, frozenset[int]]:
        if isinstance(input_, Write):
            assert isinstance(input_.value, int)
            return True, state | {input_.value}
        if output is UNKNOWN:
            return True, state
        return output in state, frozenset((output,))


@dataclass(frozen=True)
class Kind:
    """A model, its random calls, and the answers of a simulated store."""

    model: Model[Any, Any, Any]
    call: Callable[[random.Random], Any]
    answer: Callable[[Any, Any], tuple[Any, Any]]  # (state, input) -> (output, state)
    lie: Callable[[random.Random, Any, Any], Any]  # (random, input, output) -> another output

    def model_for(self, operations: Ops) -> Model[Any, Any, Any]:
        """Return the model; for some kinds it depends on the operations to check."""
        del operations
        return self.model


def _register_call(rng: random.Random) -> Any:
    value = rng.randrange(4)
    return rng.choice((Read(), Read(), Write(value), Write(value), Cas(rng.randrange(4), value)))


def _register_answer(state: Any, input_: Any) -> tuple[Any, Any]:
    if isinstance(input_, Read):
        return state, state
    if isinstance(input_, Write):
        return None, input_.value
    return state == input_.old, input_.new if state == input_.old else state


def _register_lie(rng: random.Random, input_: Any, output: Any) -> Any:
    if isinstance(input_, Write):
        return output
    return not output if isinstance(input_, Cas) else rng.randrange(4)


def _lossy_answer(state: Any, input_: Any) -> tuple[Any, Any]:
    if isinstance(input_, Write):
        return None, input_.value if input_.value != 3 else state
    return state, state


def _kv_call(rng: random.Random) -> Any:
    f = rng.choice(("get", "put", "append"))
    return KeyValueInput(f, rng.choice("xyz"), "" if f == "get" else rng.choice("ab"))


def _kv_answer(state: Any, input_: Any) -> tuple[Any, Any]:
    held = dict(state)
    if input_.f == "get":
        return held.get(input_.key, ""), state
    before = "" if input_.f == "put" else held.get(input_.key, "")
    held[input_.key] = before + input_.value
    return None, tuple(sorted(held.items()))


def _kv_lie(rng: random.Random, input_: Any, output: Any) -> Any:
    return rng.choice(("", "a", "b", "ab", "ba")) if input_.f == "get" else output


def _txn_call(rng: random.Random) -> Any:
    micro = [(rng.choice(("read", "write")), rng.choice("xy"), rng.randrange(3)) for _ in range(2)]
    return Txn(tuple((f, key, value if f == "write" else None) for f, key, value in micro))


def _txn_answer(state: Any, input_: Any) -> tuple[Any, Any]:
    held = dict(state)
    seen = []
    for f, key, value in input_.micro:
        if f == "write":
            held[key] = value
        seen.append((f, key, held[key]))
    return Txn(tuple(seen)), tuple(sorted(held.items()))


def _txn_lie(rng: random.Random, input_: Any, output: Any) -> Any:
    del input_
    return Txn(tuple((f, k, rng.randrange(3) if f == "read" else v) for f, k, v in output.micro))


def _name_call(rng: random.Random) -> Any:
    f = rng.choice(("put", "put", "drop", "move", "look", "look", "all", "nap"))
    name = "" if f in {"all", "nap"} else rng.choice("abcd")
    other = rng.choice("abcd") if f == "move" else ""
    return Name(f, name, other, rng.randrange(9) if f == "put" else 0)


def _name_lie(rng: random.Random, input_: Any, output: Any) -> Any:
    if input_.f == "all":
        return output[:-1]
    return rng.randrange(9) if input_.f == "look" else rng.choice(("ok", "exists", "absent"))


KINDS: dict[str, Kind] = {
    "register": Kind(Register(0), _register_call, _register_answer, _register_lie),
    "kv": Kind(KeyValue(partitioned=False), _kv_call, _kv_answer, _kv_lie),
    "multi-register": Kind(MultiRegister({"x": 0, "y": 0}), _txn_call, _txn_answer, _txn_lie),
    "directory": Kind(Directory(), _name_call, Directory().answer, _name_lie),
    "lossy": Kind(
        Lossy(),
        lambda rng: rng.choice((Read(), Write(rng.randrange(4)))),
        _lossy_answer,
        _register_lie,
    ),
}


def history(kind: Kind, seed: int) -> Ops:
    """Draw the operations of a simulated run; most runs have a few false answers."""
    rng = random.Random(seed)
    clients, total = rng.randint(1, 6), rng.randint(1, 36)
    lost_chance = rng.choice((0.0, 0.1, 0.3))
    tie = rng.choice((1, 1, 2, 3))  # how many steps happen at one time
    state = kind.model.init() if kind.model.init() != frozenset((0,)) else 0
    made: Ops = []
    open_calls: dict[int, tuple[Any, int, Any, bool]] = {}  # input, call, output, applied
    now = 0
    while total or open_calls:
        now += 1
        client = rng.randrange(clients)
        if client not in open_calls:
            if total:
                total -= 1
                open_calls[client] = (kind.call(rng), now, None, False)
            continue
        input_, call, output, applied = open_calls[client]
        if rng.random() < lost_chance:
            if not applied and rng.random() < 0.5:
                _, state = kind.answer(state, input_)
            made.append(Operation(client, input_, call // tie, UNKNOWN, None))
            del open_calls[client]
        elif not applied:
            output, state = kind.answer(state, input_)
            open_calls[client] = (input_, call, output, True)
        else:
            made.append(Operation(client, input_, call // tie, output, now // tie))
            del open_calls[client]
    for _ in range(rng.choice((0, 1, 2, 6))):
        at = rng.randrange(len(made))
        operation = made[at]
        if not operation.is_unknown:
            made[at] = replace(operation, output=kind.lie(rng, operation.input, operation.output))
    rng.shuffle(made)
    return made
