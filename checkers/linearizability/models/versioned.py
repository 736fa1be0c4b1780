"""A catalog in few words: name -> (id, version, payload), as in tables of generated histories.

Unlike `models.catalog` it has no columns and no nonces: an id is known from the start, even that of
a create whose answer was lost, and a version counts from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from checkers.catalog.models.views import NameView
from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown
from checkers.linearizability.models.versioned_views import projections_of
from checkers.linearizability.models.versioned_windows import windows_of


class VersionedInput(NamedTuple):
    """`op` is create, drop, alter, ren, get or list; `ident` is the id that a create gives."""

    op: str
    name: str
    name2: str
    payload: int
    ident: int


class VersionedOutput(NamedTuple):
    """`result` is ok, ex (exists) or nf (not found); `listing` holds (name, id), sorted."""

    result: str
    ident: int
    version: int
    seen: int
    listing: tuple[tuple[str, int], ...]


Entry = tuple[str, int, int, int]
State = tuple[Entry, ...]


class VersionedCatalog(Model[State, VersionedInput, VersionedOutput]):
    """Initially empty; the state is sorted by name."""

    def init(self) -> State:
        """Nothing is there."""
        return ()

    def step(
        self, state: State, input_: VersionedInput, output: VersionedOutput | Unknown, /
    ) -> tuple[bool, State]:
        """Names first: what is absent is not found, whatever else would be wrong."""
        if input_.op == "list":
            if output is UNKNOWN:
                return True, state
            return tuple([e[:2] for e in state]) == output.listing, state
        # Most steps of a search are misses that come here, so this is spelled out.
        name, entry, position = input_.name, None, 0
        for e in state:
            if e[0] == name:
                entry = e
                break
            position += 1
        if output is UNKNOWN:
            after = self._apply(state, input_, entry, position)
            return True, state if after is None else after
        if output.result == "nf":
            return entry is None and input_.op != "create", state
        if output.result == "ex":
            if input_.op == "ren":
                taken = any(e[0] == input_.name2 for e in state)
                return entry is not None and taken, state
            return entry is not None, state
        if input_.op == "get":
            return entry == (name, output.ident, output.version, output.seen), state
        after = self._apply(state, input_, entry, position)
        if after is None:
            return False, state
        if entry is not None and entry[1] != output.ident:
            return False, state
        if input_.op == "alter" and entry is not None and entry[2] + 1 != output.version:
            return False, state
        return True, after

    def _apply(
        self, state: State, input_: VersionedInput, entry: Entry | None, position: int
    ) -> State | None:
        """The state after the mutation, or `None` if it fails; `entry` is at `position`, if any."""
        op = input_.op
        if entry is None:
            if op != "create":
                return None
            return tuple(sorted((*state, (input_.name, input_.ident, 1, input_.payload))))
        before, behind = state[:position], state[position + 1 :]
        if op == "alter":
            return (*before, (entry[0], entry[1], entry[2] + 1, input_.payload), *behind)
        if op == "drop":
            return before + behind
        if op == "ren" and all(e[0] != input_.name2 for e in state):
            return tuple(sorted((*before, *behind, (input_.name2, *entry[1:]))))
        return None

    def read_only(self, input_: VersionedInput, output: VersionedOutput | Unknown, /) -> bool:
        """Reads and refusals."""
        return input_.op in {"get", "list"} or (
            output is not UNKNOWN and output.result in {"nf", "ex"}
        )

    def footprint(self, input_: VersionedInput, /) -> frozenset[str] | None:
        """The names in the request; a list looks at all."""
        if input_.op == "list":
            return None
        if input_.op == "ren":
            return frozenset((input_.name, input_.name2))
        return frozenset((input_.name,))

    def projections(
        self, operations: Sequence[Operation[VersionedInput, VersionedOutput]], /
    ) -> Sequence[Projection[Any, Any, Any]]:
        """Every name, also for short times, and every id by itself; see `versioned_views`."""
        views = projections_of(operations)
        windows = (
            window
            for view in views
            if type(view.model) is NameView
            for window in windows_of(view.name.removeprefix("name "), view.operations)
        )
        return [*windows, *views]

    def describe_operation(
        self, input_: VersionedInput, output: VersionedOutput | Unknown, /
    ) -> str:
        """For people."""
        what = {
            "create": f"create {input_.name} (payload {input_.payload})",
            "alter": f"alter {input_.name} (payload {input_.payload})",
            "ren": f"rename {input_.name} to {input_.name2}",
            "list": "list",
        }.get(input_.op, f"{input_.op} {input_.name}")
        if output is UNKNOWN:
            return f"{what} (unknown)"
        if output.result != "ok":
            return f"{what}: {'exists' if output.result == 'ex' else 'not found'}"
        if input_.op == "list":
            shown = ", ".join(f"{name}:{ident}" for name, ident in output.listing)
            return f"{what}: {shown or 'nothing'}"
        seen = f"id {output.ident} version {output.version}"
        return f"{what}: {seen}" + (f" payload {output.seen}" if input_.op == "get" else "")

    def describe_state(self, state: State, /) -> str:
        """For people."""
        entries = [f"{name} = id {i} version {v} payload {p}" for name, i, v, p in state]
        return "the catalog holds " + (", ".join(entries) or "nothing")
