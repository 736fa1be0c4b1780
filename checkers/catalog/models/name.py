"""Models of one name of the catalog, which refute invalid histories at low cost.

If the whole catalog has a legal order, each name also has a legal order. The model of a name has
the operations that concern the name, each reduced to its statement about the name. For example, a
create adds a table, a delete removes it, and "not-found" says that no table has the name.

The state is either no table, or a table (id, version), or *some* table that an operation of unknown
outcome added. Every answer about *some* table is legal. The model ignores columns, and operations
of unknown outcome on other names. So it can refute histories for which the whole catalog has too
many states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from checkers.catalog.models.types import (
    Alter,
    Answer,
    CatalogInput,
    Columns,
    Create,
    Delete,
    Get,
    ListTables,
    Look,
    Rename,
    Rules,
    apply_steps,
)
from checkers.catalog.models.views import NameView, Said, Slot, saying
from checkers.linearizability.model import UNKNOWN, Operation, Projection, Unknown

SOME: Final[Slot] = (None, None, None)


class CatalogName(NameView):
    """The model of one name. Its state is `None`, a table (id, version, no payload), or `SOME`."""

    def step(self, state: Slot, input_: Said, output: bool | Unknown, /) -> tuple[bool, Slot]:
        """Take the step of `NameView`. A table with an unknown id or version becomes `SOME`."""
        legal, after = super().step(state, input_, output)
        return legal, after if after is None or None not in after[:2] else SOME

    def describe_state(self, state: Slot, /) -> str:
        if state is None:
            return "no table has the name"
        if state == SOME:
            return "some table has the name"
        return f"table {state[0]} version {state[1]} has the name"


def name_projections(
    names: Sequence[str],
    operations: Sequence[Operation[CatalogInput, Answer]],
    bindings: Mapping[str, str],
    rules: Rules,
) -> list[Projection[Slot, Said, bool]]:
    """Return a projection for each name, in the order of `names`."""
    translate = _Translation(bindings, rules)
    sayings: dict[str, list[Operation[Said, bool]]] = {name: [] for name in names}
    for operation in operations:
        for name, statement in translate.sayings(operation, names):
            sayings[name].append(saying(operation, statement))
    model = NameView() if rules.payload else CatalogName()
    return [Projection(f"name {name!r}", model, tuple(sayings[name])) for name in names]


class _Translation:
    def __init__(self, bindings: Mapping[str, str], rules: Rules) -> None:
        self._bindings = bindings
        self._ids = {key: ident for ident, key in bindings.items()}
        self._rules = rules

    def sayings(
        self, operation: Operation[CatalogInput, Answer], names: Sequence[str]
    ) -> Iterator[tuple[str, Said]]:
        request, answer = operation.input, operation.said
        if answer is UNKNOWN:
            yield from self._unknown(request)
        elif not isinstance(request, ListTables):
            yield from self._answered(request, answer)
        else:
            listed = {name: (ident, version) for name, ident, version in answer.listing}
            if len(listed) != len(answer.listing):
                # a list with a name twice is illegal in every state
                yield answer.listing[0][0], Said("never")
                return
            for name in names:
                if name in listed:
                    yield name, Said("see", *self._comparable(*listed[name]))
                else:
                    yield name, Said("absent")

    def _comparable(self, ident: str | None, version: int | None) -> tuple[str | None, int | None]:
        return (ident if ident in self._bindings else None), version

    def _payload(self, columns: Columns | None) -> Columns | None:
        return columns if self._rules.payload else None

    def _unknown(self, given: CatalogInput) -> Iterator[tuple[str, Said]]:
        match given:
            case Create(name=name, key=key, columns=columns):
                ident = self._ids.get(key)
                yield name, Said("put", ident, self._rules.first, self._payload(columns))
            case Alter(name=name, steps=steps):
                yield name, Said("bump", payload=self._payload(apply_steps((), steps)))
            case Delete(name=name):
                yield name, Said("take")
            case Rename(name=name, new_name=new_name) if name != new_name:
                yield name, Said("take")
                yield new_name, Said("put")
            case _:
                pass

    def _answered(
        self, given: Create | Alter | Rename | Delete | Get | Look, answer: Answer
    ) -> Iterator[tuple[str, Said]]:
        if answer.result == "not-found":
            yield given.name, Said("never" if isinstance(given, Create) else "absent")
            return
        if answer.result == "exists":
            yield given.name, Said("present")
            if isinstance(given, Rename) and given.new_name != given.name:
                yield given.new_name, Said("present")
            return
        ident, version = self._comparable(answer.table_id, answer.version)
        match given:
            case Create(name=name, columns=columns):
                yield name, Said("put", ident, self._rules.first, self._payload(columns))
            case Alter(name=name, steps=steps):
                payload = self._payload(apply_steps((), steps))
                yield name, Said("bump", ident, version, payload)
            case Delete(name=name):
                yield name, Said("take", ident, version)
            case Rename(name=name, new_name=new_name):
                before = version
                if version is not None and self._rules.rename_makes_version:
                    before = version - 1
                # A rename to the same name cannot succeed. If an answer says that it did, the
                # model takes the table away, so that later answers contradict this one.
                yield name, Said("take", ident, before)
                if new_name != name:
                    yield new_name, Said("put", ident, version)
            case Get(name=name) | Look(name=name):
                yield name, Said("see", ident, version, self._payload(answer.columns))
