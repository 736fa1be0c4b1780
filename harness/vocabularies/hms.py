"""The vocabulary `hms`: tables of a metastore, by database and name, and its notification log.

The metastore's interface writes whole tables: an alter or a rename replaces the whole table without
reading it. Every change has a unique `nonce` among the table's parameters, so a table is identified
by the `nonce` of its last change.

Answers are objects. `result` is "ok", or the exception with which the metastore refused:
"already-exists", "no-such-object", "invalid-operation" (an alter or rename of a missing table, or
onto a table), "invalid-object", or "meta-exception" if its message says that nothing was done.

An attempt is either a request that was sent, or a connection that failed. The outcome of a failed
connection begins with `NOT_SENT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, get_args

from harness.ops import Attempt
from harness.vocabularies import Call, Vocabulary

NOT_SENT: Final = "CONNECT"
POLL_MAX: Final = 100
REFUSALS: Final = (
    "already-exists", "no-such-object", "invalid-operation", "invalid-object", "meta-exception",
)  # fmt: skip


def full_name(database: str, name: str) -> str:
    """Return the full name of a table: database and name."""
    return f"{database}.{name}"


class _OfTable(Call, frozen=True):
    """An operation on one table."""

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        """Return `db1.t0`, or for a rename `db1.t0 to db2.t1`."""
        text = full_name(call["database"], call["name"])
        if "new_name" in call:
            text += f" to {full_name(call['new_database'], call['new_name'])}"
        return text


class Create(_OfTable, frozen=True):
    """Create a table. It must not exist yet."""

    f: ClassVar[str] = "create"
    past: ClassVar[str] = "created"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Alter(_OfTable, frozen=True):
    """Alter a table: the metastore replaces the whole table that has this name."""

    f: ClassVar[str] = "alter"
    past: ClassVar[str] = "altered"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Rename(_OfTable, frozen=True):
    """Rename a table and perhaps change its database. The metastore replaces the whole table."""

    f: ClassVar[str] = "rename"
    past: ClassVar[str] = "renamed"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    new_database: str
    new_name: str
    nonce: str


class Drop(_OfTable, frozen=True):
    """Drop a table. Its name is free afterwards."""

    f: ClassVar[str] = "drop"
    past: ClassVar[str] = "dropped"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Get(_OfTable, frozen=True):
    """Read a table.

    The answer has the `nonce` of the table's last change, and `directory`, which is "gone" if the
    table's files are missing.
    """

    f: ClassVar[str] = "get"
    past: ClassVar[str] = "read"
    database: str
    name: str

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """Return a phrase that says if the table existed."""
        del call
        return "and found it" if answer.get("result", "ok") == "ok" else "and found it missing"


class List(Call, frozen=True):
    """List all tables. The answer has `tables`: the sorted names as `database.name`."""

    f: ClassVar[str] = "list"
    past: ClassVar[str] = "listed all tables"

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        del call
        return f"and saw {', '.join(answer.get('tables', ())) or 'none'}"


class Poll(Call, frozen=True):
    """Read the notification log from this client's position. The first position is the log's end.

    The answer has `after`, the id after which the client reads, and at most `POLL_MAX` `events`,
    each as [id, time in ms, kind, full name before, full name after, nonce before, nonce after]. If
    the log has lost the event after this id, the answer instead has `missing`, the first lost id,
    and `to`, the end of the log, where the client continues.
    """

    f: ClassVar[str] = "poll"
    past: ClassVar[str] = "polled the events"


HmsCall = Create | Alter | Rename | Drop | Get | List | Poll
CALLS = Vocabulary[HmsCall]("hms", get_args(HmsCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of


def times_sent(attempts: tuple[Attempt, ...]) -> int:
    """Return the number of requests that were sent: the attempts without a failed connection."""
    return sum(not attempt.outcome.startswith(NOT_SENT) for attempt in attempts)
