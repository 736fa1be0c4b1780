"""The vocabulary `hms`: tables of a metastore, by database and name, and its notification log.

Tables are written whole, as the metastore's interface has it: an alter or a rename replaces all
of a table, without a look. So a table is known by the `nonce` of the last change of it,
which is among its parameters; every change has one of its own.

Answers are objects. `result` is "ok", or the exception by which the metastore refused:
"already-exists", "no-such-object", "invalid-operation" (an alter or rename of a missing table, or
onto a table), "invalid-object", or "meta-exception" where it says of itself that nothing was done.

Attempts are requests that were sent, and connections that failed: the outcomes of the latter begin
with `NOT_SENT`.
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
    """The name of a table across databases."""
    return f"{database}.{name}"


class _OfTable(Call, frozen=True):
    """An operation on one table."""

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        """`db1.t0`, and the nonce of a change."""
        text = full_name(call["database"], call["name"])
        if "new_name" in call:
            text += f" to {full_name(call['new_database'], call['new_name'])}"
        return f"{text} ({call.get('nonce')})" if cls.mutates else text


class Create(_OfTable, frozen=True):
    """A table that is not there."""

    f: ClassVar[str] = "create"
    past: ClassVar[str] = "created"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Alter(_OfTable, frozen=True):
    """The table under this name is replaced."""

    f: ClassVar[str] = "alter"
    past: ClassVar[str] = "altered"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Rename(_OfTable, frozen=True):
    """The table is replaced, and has another name, perhaps in another database."""

    f: ClassVar[str] = "rename"
    past: ClassVar[str] = "renamed"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    new_database: str
    new_name: str
    nonce: str


class Drop(_OfTable, frozen=True):
    """The name is free afterwards."""

    f: ClassVar[str] = "drop"
    past: ClassVar[str] = "dropped"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Get(_OfTable, frozen=True):
    """Answers `nonce`, that of the last change; and `directory`: "gone" if its files are."""

    f: ClassVar[str] = "get"
    past: ClassVar[str] = "read"
    database: str
    name: str

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """The change that made the table."""
        del call
        is_there = answer.get("result", "ok") == "ok"
        return f"and saw the change {answer.get('nonce')}" if is_there else "and found it missing"


class List(Call, frozen=True):
    """Answers `tables`: the names of all tables in all databases, as `database.name`, sorted."""

    f: ClassVar[str] = "list"
    past: ClassVar[str] = "listed all tables"

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """The names of the tables."""
        del call
        return f"and saw {', '.join(answer.get('tables', ())) or 'none'}"


class Poll(Call, frozen=True):
    """Reads the notification log on, from the place of this client, which is at first the end.

    Answers `after`, the id after which it read, and `events`: [id, time in ms, kind, full name
    before, full name after, nonce before, nonce after] each, at most `POLL_MAX` of them; or, where
    the log does not go back that far, `missing`, the first id that was not there: the client reads
    on from the end of the log then, which is `to`.
    """

    f: ClassVar[str] = "poll"
    past: ClassVar[str] = "polled the events"


HmsCall = Create | Alter | Rename | Drop | Get | List | Poll
CALLS = Vocabulary[HmsCall]("hms", get_args(HmsCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of


def times_sent(attempts: tuple[Attempt, ...]) -> int:
    """The number of attempts that reached a connection."""
    return sum(not attempt.outcome.startswith(NOT_SENT) for attempt in attempts)
