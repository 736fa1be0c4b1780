"""The vocabulary `kudu-hms`: DDL through Kudu (`ddl`), and through Hive, on the same tables.

Names are `database.table` on both sides. Kudu applies Hive's changes to a table some time later,
and reports nothing: a change through Hive takes effect in Kudu's catalog at any time after its
call.

Hive's answers are objects. `result` is "ok", or the exception with which the metastore refused, as
in the vocabulary `hms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, get_args

from harness.vocabularies import Call, Vocabulary, ddl


class HiveDrop(Call, frozen=True):
    """Drop a table through Hive (DROP TABLE)."""

    f: ClassVar[str] = "hive-drop"
    mutates: ClassVar[bool] = True
    past: ClassVar[str] = "dropped in Hive"
    name: str
    nonce: str


class HiveRename(Call, frozen=True):
    """Rename a table through Hive: read the table's entry, and write it with the new name."""

    f: ClassVar[str] = "hive-rename"
    mutates: ClassVar[bool] = True
    past: ClassVar[str] = "renamed in Hive"
    name: str
    new_name: str
    nonce: str


class HiveGet(Call, frozen=True):
    """Read a table's entry in Hive. The answer has its `table_id`, `comment` and `masters`."""

    f: ClassVar[str] = "hive-get"
    past: ClassVar[str] = "read in Hive"
    name: str


class HiveList(Call, frozen=True):
    """List the tables in Hive. The answer has `tables`: the sorted names of all entries."""

    f: ClassVar[str] = "hive-list"
    past: ClassVar[str] = "listed in Hive"


HiveCall = HiveDrop | HiveRename | HiveGet | HiveList
HIVE_CALLS = Vocabulary[HiveCall]("kudu-hms", get_args(HiveCall))
call_of = HIVE_CALLS.call_of
IN_KUDU: Final[Mapping[str, str]] = {HiveDrop.f: ddl.Delete.f, HiveRename.f: ddl.Rename.f}
"""Maps each change through Hive to the change of Kudu's catalog that follows it."""
BY_NAME: Final[Mapping[str, type[HiveCall | ddl.DdlCall]]] = {**ddl.BY_NAME, **HIVE_CALLS.by_name}
