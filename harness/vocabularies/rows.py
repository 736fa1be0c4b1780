"""The vocabulary `rows`: rows are written to tables, read one by one, and scanned.

Tables are made by `create`, and altered and deleted, as in the vocabulary `ddl`. A row has a key,
a text, and cells by column; a cell that is null is one that is not there. Tables are cut into
tablets by key, each row is in one of them for ever, and every tablet stamps its writes with
timestamps, whole numbers that rise in the order in which they took effect. Between
tablets they order only what a client knew: it passes on the highest timestamp that it was answered,
and its next operation has a higher one. So a timestamp names one state of all tables, whichever
replica is asked for it: all that was written at or before it.

The rows that one operation writes to one tablet are a *part*: it takes effect at once, under one
timestamp, row by row in the order given, and rows are refused one by one.

**A write** answers `table_id`, `rows` and `parts`. Of each row, `rows` says

| result            | means                                                            |
|-------------------|------------------------------------------------------------------|
| "ok"              | it was written                                                   |
| "already-present" | insert: there was such a row, which was left as it was           |
| "not-found"       | update, delete: there was no such row                            |
| "invalid"         | the row does not fit the table; nothing was written              |
| "failed"          | its part never took effect, and never will                       |
| null              | unknown: it may have been written, or may still be               |

and `parts` of each tablet {"tablet", "node", "term", "timestamp", "rows"}: who answered, in which
term of the tablet's leaders, the timestamp or null, and the positions of its rows. A part that was
acknowledged and sent once more, with the same request id, has `again`: [timestamp, results] of each
further answer. The operation is `ok` only where each row was answered by its tablet, `fail` where
no part took effect, and `info` otherwise, also where something is known of all parts: its value
says what.

**A read** answers `table_id`, `tablet`, `term`, `timestamp`, and `row`: its cells, or null where
there is no such row. **A scan** answers `table_id`, `timestamp`, and `parts`, of each tablet
{"tablet", "node", "term", "timestamp", "rows"}, where rows are [key, cells] in the order of keys. A
`timestamp` says that the rows are the state at it, exactly; null says nothing. That of the whole
scan is null where tablets were read at several. Both answer {"result": "not-found"} where there is
no such table.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, get_args

from harness.vocabularies import Call, Vocabulary, ddl

Kind = Literal["insert", "upsert", "update", "delete"]
Mode = Literal["latest", "snapshot", "read-your-writes"]
Replica = Literal["leader", "any"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
"""An insert needs the row to be absent, an update and a delete need it to be there, an upsert takes
either; update and upsert leave other cells as they are."""
RESULTS: Final = ("ok", "already-present", "not-found", "invalid", "failed")


class Write(Call, frozen=True):
    """Rows are [kind, key, cells], in order; a delete has no cells. `nonce` is unique."""

    f: ClassVar[str] = "write"
    mutates: ClassVar[bool] = True
    table: str
    nonce: str
    rows: list[tuple[Kind, str, dict[str, Any]]]

    def __post_init__(self) -> None:
        """Raises `ValueError` for a write without rows."""
        if not self.rows:
            raise ValueError("it has no rows; give it at least one")

    def asked(self) -> Any:
        """The value as histories have it: rows are lists."""
        return {**super().asked(), "rows": [list(row) for row in self.rows]}


class Read(Call, frozen=True):
    """One row as it is now, from the leader of its tablet."""

    f: ClassVar[str] = "read"
    table: str
    key: str


class Scan(Call, frozen=True):
    """Rows with keys in [start, end), null for no bound, of all tablets that may hold some.

    In the mode `latest` each tablet shows its rows; its leader all that was acknowledged, any
    other replica as many as it knows of. In `snapshot` all show the state at the timestamp `at`, or
    with null at one that the first tablet chooses. In `read-your-writes` likewise, at one that is
    not below what this client was answered before, which its own writes are at or before.
    """

    f: ClassVar[str] = "scan"
    table: str
    mode: Mode = "latest"
    replica: Replica = "leader"
    at: int | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` for a timestamp in another mode than `snapshot`."""
        if self.at is not None and self.mode != "snapshot":
            raise ValueError("only the mode 'snapshot' reads at a timestamp")


RowsCall = Write | Read | Scan | ddl.Create | ddl.Alter | ddl.Delete
ROW_CALLS = Vocabulary[Write | Read | Scan]("rows", (Write, Read, Scan))
CALLS = Vocabulary[RowsCall]("rows", get_args(RowsCall))
BY_NAME, READS = CALLS.by_name, CALLS.reads
call_of = CALLS.call_of
