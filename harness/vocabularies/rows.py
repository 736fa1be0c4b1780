"""The vocabulary `rows`: rows are written to tables, read one by one, and scanned.

Tables are created, altered and deleted as in the vocabulary `ddl`. A row has a key, which is a
text, and cells by column; a null cell is the same as a missing cell. Tables are split into tablets
by key, and a row never changes its tablet. Every tablet gives its writes timestamps, whole numbers
that rise in the order in which the writes took effect. Between tablets, timestamps only order
causally related operations: a client passes on the highest timestamp that it received, and its next
operation gets a higher one. So a timestamp identifies one state of all tables on every replica: all
writes at or before the timestamp.

The rows that one operation writes to one tablet are a *part*. A part takes effect atomically, under
one timestamp, with its rows in the given order; rows may be refused individually.

**The answer of a write** has `table_id`, `rows` and `parts`. `rows` has one result per row:

| result            | means                                                            |
|-------------------|------------------------------------------------------------------|
| "ok"              | the row was written                                              |
| "already-present" | insert: a row with this key existed and is unchanged             |
| "not-found"       | update, delete: no row with this key existed                     |
| "invalid"         | the row does not fit the table; nothing was written              |
| "failed"          | the part with the row never took effect, and never will          |
| null              | unknown: the row may have been written, or may still be written  |

`parts` has for each tablet {"tablet", "node", "term", "timestamp", "rows"}: the node that answered,
the term of the tablet's leader, the timestamp or null, and the positions of the part's rows. A part
that was acknowledged and then sent again, with the same request id, has `again`: [timestamp,
results] of each further answer. The operation is `ok` only if each row was answered by its tablet,
`fail` if no part took effect, and `info` otherwise; the value of an `info` still has the known
results.

**The answer of a read** has `table_id`, `tablet`, `term`, `timestamp`, and `row`: its cells, or
null if there is no such row. **The answer of a scan** has `table_id`, `timestamp`, and `parts`, for
each tablet {"tablet", "node", "term", "timestamp", "rows"}, where rows are [key, cells] in the
order of keys. If a `timestamp` is not null, the rows are exactly the state at this timestamp. The
timestamp of the whole scan is null if tablets were read at different timestamps. The answer of a
read or scan is {"result": "not-found"} if the table does not exist.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, get_args

from harness.vocabularies import Call, Vocabulary, ddl

Kind = Literal["insert", "upsert", "update", "delete"]
Mode = Literal["latest", "snapshot", "read-your-writes"]
Replica = Literal["leader", "any"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
"""Kinds of row writes. An insert fails if the row exists. An update or delete fails if the row is
missing. An upsert works in both cases. Update and upsert change only the cells that they name."""
RESULTS: Final = ("ok", "already-present", "not-found", "invalid", "failed")


class Write(Call, frozen=True):
    """Write `rows` to a table in order, each as [kind, key, cells].

    A delete has no cells. `nonce` is unique.
    """

    f: ClassVar[str] = "write"
    mutates: ClassVar[bool] = True
    table: str
    nonce: str
    rows: list[tuple[Kind, str, dict[str, Any]]]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("the write has no rows; give at least one row")

    def asked(self) -> Any:
        """Return the value of the invocation as histories have it, with rows as lists."""
        return {**super().asked(), "rows": [list(row) for row in self.rows]}


class Read(Call, frozen=True):
    """Read the current state of one row, from the leader of its tablet."""

    f: ClassVar[str] = "read"
    table: str
    key: str


class Scan(Call, frozen=True):
    """Scan the rows with keys in [start, end) (null: no bound), in all tablets that may have some.

    In the mode `latest` each tablet returns its current rows: its leader returns all acknowledged
    rows, any other replica the rows that it has. In the mode `snapshot` all tablets return the
    state at the timestamp `at`, or, if `at` is null, at a timestamp that the first tablet chooses.
    In the mode `read-your-writes` all tablets return the state at a timestamp that is not below any
    timestamp that this client received before. So the rows include the client's own writes.
    """

    f: ClassVar[str] = "scan"
    table: str
    mode: Mode = "latest"
    replica: Replica = "leader"
    at: int | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a timestamp `at` in a mode other than `snapshot`."""
        if self.at is not None and self.mode != "snapshot":
            raise ValueError("only the mode 'snapshot' reads at a timestamp")


RowsCall = Write | Read | Scan | ddl.Create | ddl.Alter | ddl.Delete
ROW_CALLS = Vocabulary[Write | Read | Scan]("rows", (Write, Read, Scan))
CALLS = Vocabulary[RowsCall]("rows", get_args(RowsCall))
BY_NAME, READS = CALLS.by_name, CALLS.reads
call_of = CALLS.call_of
