"""The vocabulary `ddl`: create, alter, rename, delete and read tables.

Every change has a unique `nonce`, so that reads can identify the change even if its answer was
lost: a table's comment is the nonce of its create, and workloads name columns after the nonces of
alters.

Answers are objects. `result` is "ok", or the reason of a refusal: "exists", "not-found", or
"invalid" for an alter whose steps do not fit the columns. Other fields are `revision` and `term` of
the catalog that answered, and for a single table `table_id` and `schema_version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import msgspec

from harness.vocabularies import Call, Vocabulary, names_in_words


class _Change(Call, frozen=True):
    """A change of one table. The answer contains the table's new version."""

    mutates: ClassVar[bool] = True

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """Return a phrase for a refusal, or for the new version of a table."""
        result, version = answer.get("result", "ok"), answer.get("schema_version")
        if result == "exists":
            return f"and was refused: {call.get('new_name', call['name'])!r} exists"
        if result != "ok":
            return f"and was refused: {call['name']!r} does not exist"
        is_shown = version is not None and cls.f in {"alter", "rename"}
        return f"and was answered that its version is {version} now" if is_shown else ""


class LookCall(Call, frozen=True):
    """A read of one table."""

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """Return a phrase with the id, versions and columns of the table in the answer."""
        del call
        if answer.get("result") == "not-found":
            return "and found it missing"
        text = f"and saw table {answer.get('table_id')}"
        version, applied = answer.get("schema_version"), answer.get("applied_schema_version")
        if version is not None:
            text += f" at version {version}"
        if applied not in (None, version):
            text += f" (applied: {applied})"
        if answer.get("columns") is not None:
            text += f" with columns {', '.join(answer['columns']) or 'none'}"
        return text


class ListCall(Call, frozen=True):
    """A read that lists all tables."""

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        del call
        return "the tables"

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        del call
        return f"and saw {names_in_words(entry[0] for entry in answer.get('tables', ()))}"


class Create(_Change, frozen=True):
    """Create a table of `partitions` tablets, each replicated on `replicas` tablet servers.

    With `ranges`, each written as [start, end), the table has `partitions` tablets per range, and
    no tablet for keys outside the ranges.
    """

    f: ClassVar[str] = "create"
    past: ClassVar[str] = "created"
    name: str
    nonce: str
    columns: list[str]
    partitions: int
    replicas: int
    ranges: list[tuple[str, str]] = msgspec.field(default_factory=list)

    def asked(self) -> Any:
        """Return the value of the invocation, without the field `ranges` if the table has none."""
        value = super().asked()
        ranges = {"ranges": [list(each) for each in self.ranges]} if self.ranges else {}
        return {name: value[name] for name in value if name != "ranges"} | ranges


class Alter(_Change, frozen=True):
    """Alter a table by atomic `steps`: ["add", column], ["drop", column], ["rename", old, new].

    Tables with ranges also have ["add-range", start, end, buckets] and ["drop-range", start, end].
    If `buckets` is empty, the range gets as many tablets as the table has per range.
    """

    f: ClassVar[str] = "alter"
    past: ClassVar[str] = "altered"
    name: str
    nonce: str
    steps: list[list[str]]


class Rename(_Change, frozen=True):
    """Rename a table. The table keeps its id, and the new name must be free."""

    f: ClassVar[str] = "rename"
    past: ClassVar[str] = "renamed"
    name: str
    new_name: str
    nonce: str

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        """Return a phrase with the table and its new name."""
        return f"table {call['name']!r} to {call['new_name']!r}"


class Delete(_Change, frozen=True):
    """Delete a table. Its name is free afterwards."""

    f: ClassVar[str] = "delete"
    past: ClassVar[str] = "deleted"
    name: str
    nonce: str


class Get(LookCall, frozen=True):
    """Read a table.

    The answer also has `columns`, `column_ids`, `comment` and `applied_schema_version`.
    """

    f: ClassVar[str] = "get"
    past: ClassVar[str] = "read"
    name: str


class List(ListCall, frozen=True):
    """List all tables. The answer has `tables`: [name, id, version] per table, sorted by name."""

    f: ClassVar[str] = "list"
    past: ClassVar[str] = "listed"


class Locate(LookCall, frozen=True):
    """Locate the tablets of a table.

    The answer has `tablets`, with id, key range, replicas and leader of each tablet.
    """

    f: ClassVar[str] = "locate"
    past: ClassVar[str] = "located"
    name: str


class IsCreateDone(LookCall, frozen=True):
    """Ask if a table is created. The answer has `done`: true if all tablets of the table run."""

    f: ClassVar[str] = "is-create-done"
    past: ClassVar[str] = "asked about the creation of"
    name: str


class IsAlterDone(LookCall, frozen=True):
    """Ask if an alter is done. The answer has `done`: true if all tablets have the new version."""

    f: ClassVar[str] = "is-alter-done"
    past: ClassVar[str] = "asked about the alteration of"
    name: str


DdlCall = Create | Alter | Rename | Delete | Get | List | Locate | IsCreateDone | IsAlterDone
CALLS = Vocabulary[DdlCall]("ddl", get_args(DdlCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of
Ident = str | int | float | None


class Listed(msgspec.Struct, array_like=True):
    """One table in the answer to `list`."""

    name: str
    table_id: Ident
    schema_version: int | None


class Answered(msgspec.Struct):
    """The fields of answers with their types. In histories of other tools, ids may be numbers."""

    table_id: Ident = None
    comment: Ident = None
    schema_version: int | None = None
    applied_schema_version: int | None = None
    columns: list[str] | None = None
    tables: list[Listed] = []
