"""The catalog of the generated histories: name -> (id, version, payload)."""

from __future__ import annotations

from typing import NamedTuple

from checkers.linearizability import UNKNOWN, Model, Unknown


class Input(NamedTuple):
    op: str
    name: str
    name2: str
    payload: int
    ident: int


class Output(NamedTuple):
    result: str
    ident: int
    version: int
    seen: int
    listing: tuple[tuple[str, int], ...]


Entry = tuple[str, int, int, int]
State = tuple[Entry, ...]


class VersionedCatalog(Model[State, Input, Output]):
    def init(self) -> State:
        return ()

    def step(self, state: State, input_: Input, output: Output | Unknown, /) -> tuple[bool, State]:
        if input_.op == "list":
            assert output is not UNKNOWN
            return tuple((e[0], e[1]) for e in state) == output.listing, state
        entry = next((e for e in state if e[0] == input_.name), None)
        if output is UNKNOWN:
            after = self._apply(state, input_, entry)
            return True, state if after is None else after
        if output.result == "nf":
            return entry is None and input_.op != "create", state
        if output.result == "ex":
            if input_.op == "ren":
                taken = any(e[0] == input_.name2 for e in state)
                return entry is not None and taken, state
            return entry is not None, state
        if input_.op == "get":
            seen = (input_.name, output.ident, output.version, output.seen)
            return entry == seen, state
        after = self._apply(state, input_, entry)
        if after is None:
            return False, state
        if entry is not None and entry[1] != output.ident:
            return False, state
        if input_.op == "alter" and entry is not None and entry[2] + 1 != output.version:
            return False, state
        return True, after

    def _apply(self, state: State, input_: Input, entry: Entry | None) -> State | None:
        rest = [e for e in state if e[0] != input_.name]
        match input_.op:
            case "create" if entry is None:
                new = (input_.name, input_.ident, 1, input_.payload)
                return tuple(sorted([*rest, new]))
            case "drop" if entry is not None:
                return tuple(rest)
            case "alter" if entry is not None:
                new = (entry[0], entry[1], entry[2] + 1, input_.payload)
                return tuple(sorted([*rest, new]))
            case "ren" if entry is not None and all(e[0] != input_.name2 for e in state):
                return tuple(sorted([*rest, (input_.name2, *entry[1:])]))
            case _:
                return None

    def read_only(self, input_: Input, output: Output | Unknown, /) -> bool:
        return input_.op in {"get", "list"} or (
            output is not UNKNOWN and output.result in {"nf", "ex"}
        )
