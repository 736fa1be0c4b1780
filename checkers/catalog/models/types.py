"""What can be asked of a catalog, and what it answers: the inputs and outputs of its models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Columns = tuple[str, ...]


class Create(NamedTuple):
    """Make a table at version 0. `key` is the nonce, or a class of creates nobody ever saw."""

    name: str
    key: str
    columns: Columns
    f: str = "create"


class Alter(NamedTuple):
    """Change columns by ("add", c), ("drop", c) or ("rename", old, new); one version more."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    f: str = "alter"


class Rename(NamedTuple):
    """Give a table another name; one version more."""

    name: str
    new_name: str
    f: str = "rename"


class Delete(NamedTuple):
    """Remove a table for ever."""

    name: str
    f: str = "delete"


class Get(NamedTuple):
    """Read one table: id, key, version, and the columns of the version that is applied."""

    name: str
    f: str = "get"


class Look(NamedTuple):
    """Any other read of one table by name that shows its id, and perhaps its version."""

    name: str
    f: str = "look"


class ListTables(NamedTuple):
    """Read all names at once."""

    f: str = "list"


CatalogInput = Create | Alter | Rename | Delete | Get | Look | ListTables


class Answer(NamedTuple):
    """What was answered. `result` is "ok", "exists" or "not-found"; `None` means not shown.

    `listing` is for `ListTables`: (name, id, version) for each table.
    """

    result: str
    table_id: str | None = None
    version: int | None = None
    key: str | None = None
    applied: int | None = None
    columns: Columns | None = None
    listing: tuple[tuple[str, str | None, int | None], ...] = ()


def apply_steps(columns: Columns, steps: Iterable[Sequence[str]]) -> Columns | None:
    """The columns after the steps of an alter, or `None` where one does not apply."""
    current = list(columns)
    for step in steps:
        match step:
            case ("add", column) if column not in current:
                current.append(column)
            case ("drop", column) if column in current:
                current.remove(column)
            case ("rename", old, new) if old in current and new not in current:
                current[current.index(old)] = new
            case _:
                return None
    return tuple(current)


def is_plain_list(answer: Answer) -> bool:
    """Whether it is a listing, which names every table by an id, and no name or id twice."""
    names = {name for name, _, _ in answer.listing}
    ids = {ident for _, ident, _ in answer.listing}
    plain = len(names) == len(ids) == len(answer.listing) and None not in ids
    return answer.result == "ok" and plain
