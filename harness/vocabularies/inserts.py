"""The vocabulary `inserts`: at most one insert per key into either of two tables, `a` and `b`.

Rows of both tables have `id`, `key` and `value`. An insert is one transaction: it reads both tables
by a predicate, such as `key = ? and value % 3 = 0`. If the transaction finds a row, it is a `fail`
and changes nothing. Otherwise it inserts a row that matches the predicate. If two inserts of one
key are `ok`, neither saw the other: Adya's anomaly G2. After Jepsen's `jepsen/tests/adya.clj`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.vocabularies import Call, Vocabulary


class Insert(Call, frozen=True):
    """Insert a row with a unique `id` and with `key` into the table.

    It is refused if a row of either table has this key.
    """

    f: ClassVar[str] = "insert"
    mutates: ClassVar[bool] = True
    key: int
    table: Literal["a", "b"]
    id: int


CALLS = Vocabulary[Insert]("inserts", (Insert,))
