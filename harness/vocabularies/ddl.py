"""The vocabulary `ddl`: tables are created, altered, renamed and deleted, and looked at.

Every change carries a `nonce` of its own, by which reads tell it even where its answer was lost: a
table's comment is the nonce of its create, and workloads name columns after those of alters.

Answers are objects. `result` is "ok", or what was seen instead: "exists", "not-found", or "invalid"
for an alter of columns that are not as it takes them to be. With it come `revision` and `term` of
the catalog that answered, and for one table `table_id` and `schema_version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from harness.vocabularies import Call, convert, names_of


class Create(Call, frozen=True):
    """A table of `partitions` tablets, each on `replicas` tablet servers."""

    f: ClassVar[str] = "create"
    mutates: ClassVar[bool] = True
    past: ClassVar[str] = "created"
    name: str
    nonce: str
    columns: list[str]
    partitions: int
    replicas: int


class Alter(Call, frozen=True):
    """Steps that all take effect at once: ["add", c], ["drop", c], ["rename", old, new]."""

    f: ClassVar[str] = "alter"
    mutates: ClassVar[bool] = True
    past: ClassVar[str] = "altered"
    name: str
    nonce: str
    steps: list[list[str]]


class Rename(Call, frozen=True):
    """A table keeps its id under a new name, which has to be free."""

    f: ClassVar[str] = "rename"
    mutates: ClassVar[bool] = True
    past: ClassVar[str] = "renamed"
    name: str
    new_name: str
    nonce: str


class Delete(Call, frozen=True):
    """The name is free afterwards."""

    f: ClassVar[str] = "delete"
    mutates: ClassVar[bool] = True
    past: ClassVar[str] = "deleted"
    name: str
    nonce: str


class Get(Call, frozen=True):
    """Answers `columns`, `column_ids`, `comment` and `applied_schema_version` as well."""

    f: ClassVar[str] = "get"
    past: ClassVar[str] = "read"
    name: str


class List(Call, frozen=True):
    """Answers `tables`: [name, id, version] of each, by name."""

    f: ClassVar[str] = "list"
    past: ClassVar[str] = "listed"


class Locate(Call, frozen=True):
    """Answers `tablets`: id, range of the key, replicas and leader of each."""

    f: ClassVar[str] = "locate"
    past: ClassVar[str] = "located"
    name: str


class IsCreateDone(Call, frozen=True):
    """Answers `done`: whether all tablets of the table run."""

    f: ClassVar[str] = "is-create-done"
    past: ClassVar[str] = "asked about the creation of"
    name: str


class IsAlterDone(Call, frozen=True):
    """Answers `done`: whether all tablets have the table's last version."""

    f: ClassVar[str] = "is-alter-done"
    past: ClassVar[str] = "asked about the alteration of"
    name: str


DdlCall = Create | Alter | Rename | Delete | Get | List | Locate | IsCreateDone | IsAlterDone
CALLS: Final[tuple[type[DdlCall], ...]] = (
    Create, Alter, Rename, Delete, Get, List, Locate, IsCreateDone, IsAlterDone,
)  # fmt: skip
BY_NAME: Final[Mapping[str, type[DdlCall]]] = {call.f: call for call in CALLS}
MUTATIONS: Final = names_of(CALLS, mutates=True)
READS: Final = names_of(CALLS, mutates=False)


def call_of(f: str, value: Any) -> DdlCall:
    """An operation by its name and value; raises `UsageError` for what is not one of these."""
    return convert(BY_NAME, "ddl", f, value)
