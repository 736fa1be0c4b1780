"""The inputs and outputs of the catalog's models, and the rules by which catalogs differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from checkers.linearizability.model import UNKNOWN, Operation

Columns = tuple[str, ...]


class Rules(NamedTuple):
    """The rules of the model that differ between the vocabulary "ddl" and catalog tables."""

    first: int = 0
    """The version number of a newly created table."""
    rename_makes_version: bool = True
    payload: bool = False
    """Whether tables have a payload as their only column. Alters set the payload; gets show it."""


DDL: Final = Rules()

TABLES: Final = Rules(first=1, rename_makes_version=False, payload=True)
"""The rules of the file format "catalog table", which has names, ids, versions and payloads."""


class Create(NamedTuple):
    """Create a table. `key` is its nonce, or a string that interchangeable lost creates share."""

    name: str
    key: str
    columns: Columns
    f: str = "create"


class Alter(NamedTuple):
    """Change the columns of a table by steps (see `apply_steps`); this makes a new version."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    f: str = "alter"


class Rename(NamedTuple):
    """Rename a table; with `Rules.rename_makes_version`, this makes a new version."""

    name: str
    new_name: str
    f: str = "rename"


class Delete(NamedTuple):
    """Delete a table forever."""

    name: str
    f: str = "delete"


class Get(NamedTuple):
    """Read one table: its id, key and version, and the columns of its applied version."""

    name: str
    f: str = "get"


class Look(NamedTuple):
    """Read one table by name; unlike `Get`, the answer shows only an id and perhaps a version."""

    name: str
    f: str = "look"


class ListTables(NamedTuple):
    """List the names of all tables, with ids and possibly versions."""

    f: str = "list"


CatalogInput = Create | Alter | Rename | Delete | Get | Look | ListTables


class Answer(NamedTuple):
    """The answer of an operation. `result` is "ok", "exists" or "not-found".

    A field is `None` if the answer does not show it. `listing` has (name, id, version) for each
    table in the answer to `ListTables`.
    """

    result: str
    table_id: str | None = None
    version: int | None = None
    key: str | None = None
    applied: int | None = None
    columns: Columns | None = None
    listing: tuple[tuple[str, str | None, int | None], ...] = ()


CatalogOperation = Operation[CatalogInput, Answer]


def apply_steps(columns: Columns, steps: Iterable[Sequence[str]]) -> Columns | None:
    """Return the columns after the steps of an alter, or `None` if a step does not apply.

    The steps are ("add", column), ("drop", column), ("rename", old, new), and ("set", column). A
    "set" replaces all columns. The steps "add-range" and "drop-range" change no column and always
    apply.
    """
    current = list(columns)
    for step in steps:
        match step:
            case ("add", column) if column not in current:
                current.append(column)
            case ("drop", column) if column in current:
                current.remove(column)
            case ("rename", old, new) if old in current and new not in current:
                current[current.index(old)] = new
            case ("set", column):
                current = [column]
            case ("add-range" | "drop-range", *_):
                pass
            case _:
                return None
    return tuple(current)


def is_plain_list(answer: Answer) -> bool:
    """Whether the answer is a list with an id for every table and without duplicates."""
    names = {name for name, _, _ in answer.listing}
    ids = {ident for _, ident, _ in answer.listing}
    plain = len(names) == len(ids) == len(answer.listing) and None not in ids
    return answer.result == "ok" and plain


def answer_of(operation: CatalogOperation) -> Answer | None:
    """Return the answer of an operation; `None` if its outcome is unknown."""
    return None if operation.said is UNKNOWN else operation.said


def shown_by(operation: CatalogOperation) -> tuple[str, ...]:
    """Return the ids of the tables that the answer of an operation shows."""
    answer = answer_of(operation)
    if answer is None or answer.result != "ok":
        return ()
    if isinstance(operation.input, ListTables):
        return tuple(str(e[1]) for e in answer.listing) if is_plain_list(answer) else ()
    return () if answer.table_id is None else (answer.table_id,)
