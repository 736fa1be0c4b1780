"""What the answers of a history say about tables, whenever it was: bounds on what was never seen.

Every change of a table (alter, rename) makes one new version, so a table has exactly one name and
one list of columns at each version, and each version was made by exactly one operation. Answers
that show an id with a version therefore say, for every order of operations that explains them all:

* the table's name and columns at that version;
* which versions were made by operations that are known, hence not by one of unknown outcome;
* that the table lived until the highest version that was seen, hence was not deleted before;
* who deleted it, hence nobody else did.

A step of an unknown operation against these facts leads nowhere: some answer could never be given
afterwards. Ruling such steps out at once loses no order that explains everything, and without it a
history with a hundred lost answers has far too many ways to go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from checkers.linearizability.model import UNKNOWN, Operation
from checkers.linearizability.models.catalog_types import (
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

__all__ = ["TableFacts"]

Version = tuple[str, int]  # table id, version


class TableFacts:
    """Facts from the known answers among `operations`."""

    def __init__(self, operations: Iterable[Operation[CatalogInput, Answer]]) -> None:
        """Gather them in one pass, then carry columns along changes whose effect is known."""
        self._names: dict[Version, str] = {}
        self._columns: dict[Version, Columns] = {}
        self._changes: dict[Version, Alter | Rename] = {}
        self._last: dict[str, int] = {}
        self._deleted: dict[str, int | None] = {}
        for operation in operations:
            answer = operation.output
            if operation.is_unknown or answer is UNKNOWN or answer.result != "ok":
                continue
            self._gather(operation.input, answer)
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
            return
        ident, version = answer.table_id, answer.version
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
        if ident is not None and version is not None:
            self._names.setdefault((ident, version), name)
            self._last[ident] = max(self._last.get(ident, version), version)

    def allows(self, ident: str, version: int, name: str, columns: Columns | None) -> bool:
        """Whether the table can have had this name and these columns at this version."""
        key = (ident, version)
        if self._names.get(key, name) != name:
            return False
        return columns is None or self._columns.get(key, columns) == columns

    def allows_unknown_change(self, ident: str, version: int) -> bool:
        """Whether an operation of unknown outcome can have made this version."""
        if (ident, version) in self._changes:
            return False
        end = self._deleted.get(ident)
        return end is None or version <= end

    def allows_unknown_delete(self, ident: str, version: int) -> bool:
        """Whether an operation of unknown outcome can have deleted the table at this version."""
        return ident not in self._deleted and version >= self._last.get(ident, 0)
