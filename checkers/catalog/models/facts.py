"""Facts about tables that follow from answers, and that limit what unknown operations can have
done.

An unknown operation is an operation of unknown outcome. Every change of a table makes one new
version. So an answer that shows an id with a version proves facts that hold in every legal order:
the table's name and columns at this version, which versions known operations made, a version that
the table reached before its deletion, and the operation that deleted it.

A search may leave out steps of unknown operations that contradict these facts. Without the facts, a
history with a hundred lost answers has far too many possible orders.

Two kinds of unknown operations can be left out because no answer could show them:

* An unknown alter that makes a version higher than all versions of its table in answers
  (`alter_matters`). This requires that every answer shows the version on which it depends.
* An unknown create whose table no answer shows, if no answer says "exists" about a name that the
  table may have had (`create_matters`). This requires that every answer shows the id of its table,
  and that all shown ids are bound.

Both rules only say which operations may be left out, not which are impossible. A model that only
replays a given order must not use the rules.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

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
    apply_steps,
)
from checkers.linearizability.model import UNKNOWN, Operation

Version = tuple[str, int]  # table id, version


class TableFacts:
    """The facts about tables that the known answers among `operations` prove."""

    def __init__(self, operations: Iterable[Operation[CatalogInput, Answer]]) -> None:
        """Collect the facts in one pass, then derive columns from known changes."""
        self._names: dict[Version, str] = {}
        self._columns: dict[Version, Columns] = {}
        self._changes: dict[Version, Alter | Rename] = {}
        self._last: dict[str, int] = {}
        self._deleted: dict[str, int | None] = {}
        # the ids in answers that depend on a version without showing it (`None` if they show no id)
        self._vague: set[str | None] = set()
        self._taken: set[str] = set()  # the names about which an answer was "exists"
        self._shown: set[str] = set()
        self._is_empty = True
        renames: list[Rename] = []
        for operation in operations:
            request, answer = operation.input, operation.said
            if answer is UNKNOWN:
                if isinstance(request, Rename):
                    renames.append(request)
                continue
            self._is_empty = False
            if answer.result == "ok":
                self._gather(request, answer)
            elif answer.result == "exists" and not isinstance(request, ListTables):
                self._taken.update((request.name, *_target(request)))
        self._carry_back(renames)
        for ident, version in sorted(self._changes):
            before = self._columns.get((ident, version - 1))
            if before is not None:
                change = self._changes[ident, version]
                after = apply_steps(before, change.steps) if isinstance(change, Alter) else before
                if after is not None:
                    self._columns.setdefault((ident, version), after)

    def _gather(self, given: CatalogInput, answer: Answer) -> None:
        if isinstance(given, ListTables):
            for name, ident, version in answer.listing:
                self._see(ident, version, name)
                if ident is None:
                    self._vague.add(None)
            return
        ident, version = answer.table_id, answer.version
        if ident is None or (
            version is None and (isinstance(given, Alter | Rename) or answer.columns is not None)
        ):
            self._vague.add(ident)
        if isinstance(given, Create):
            self._see(ident, 0, given.name)
            if ident is not None:
                self._columns.setdefault((ident, 0), given.columns)
            return
        self._see(ident, version, given.new_name if isinstance(given, Rename) else given.name)
        if ident is None:
            return
        if isinstance(given, Delete):
            self._deleted[ident] = version
        elif isinstance(given, Alter | Rename) and version is not None:
            self._changes[ident, version] = given
            self._see(ident, version - 1, given.name)
        elif isinstance(given, Get) and answer.applied is not None and answer.columns is not None:
            self._columns.setdefault((ident, answer.applied), answer.columns)
        else:
            assert isinstance(given, Get | Look | Alter | Rename)

    def _see(self, ident: str | None, version: int | None, name: str) -> None:
        if ident is not None:
            self._shown.add(ident)
        if ident is not None and version is not None:
            self._names.setdefault((ident, version), name)
            self._last[ident] = max(self._last.get(ident, version), version)

    def _carry_back(self, renames: Sequence[Rename]) -> None:
        origins: dict[str, list[str]] = {}
        for rename in renames:
            origins.setdefault(rename.new_name, []).append(rename.name)
        todo = sorted(self._taken)
        while todo:
            for name in origins.get(todo.pop(), ()):
                if name not in self._taken:
                    self._taken.add(name)
                    todo.append(name)

    def all_bound(self, bindings: Container[str]) -> bool:
        """Whether every answer shows an id, and every shown id is bound to a key."""
        return None not in self._vague and all(ident in bindings for ident in self._shown)

    def alter_matters(self, ident: str | None, version: int) -> bool:
        """Whether an answer could show that an unknown alter made `version` of the table.

        `ident` is `None` for a table that no answer shows.
        """
        if self._is_empty or None in self._vague or ident in self._vague:
            return True
        return ident is not None and version <= self._last.get(ident, -1)

    def create_matters(self, name: str) -> bool:
        """Whether an answer could show that an unknown create of `name` took effect.

        The caller has made sure that no answer shows the id of the created table.
        """
        return self._is_empty or name in self._taken

    def allow_change(
        self, ident: str | None, version: int, name: str, columns: Columns, *, unknown: bool
    ) -> bool:
        """Whether a change can have made `version` with this name and these columns.

        `unknown` is true for a change of unknown outcome.
        """
        if ident is None:
            return True
        key = (ident, version)
        if unknown:
            end = self._deleted.get(ident)
            if key in self._changes or (end is not None and version > end):
                return False
        return self._names.get(key, name) == name and self._columns.get(key, columns) == columns

    def allow_unknown_delete(self, ident: str | None, version: int) -> bool:
        """Whether a delete of unknown outcome can have removed the table at `version`."""
        return ident is None or (ident not in self._deleted and version >= self._last.get(ident, 0))


def _target(given: CatalogInput) -> tuple[str, ...]:
    return (given.new_name,) if isinstance(given, Rename) else ()
