"""The vocabulary `hms`: tables of a metastore, by database and name, and its notification log.

Tables are written whole, as the metastore's interface has it: whoever alters or renames a table
replaces all of it, without a look. So a table is known by the `nonce` of the last change of it,
which is among its parameters; every change has one of its own.

Answers are objects. `result` is "ok", or the exception by which the metastore refused:
"already-exists", "no-such-object", "invalid-operation" (an alter or rename of what is not there, or
onto what is), "invalid-object", or "meta-exception" where it says of itself that nothing was done.

Attempts hold what was really sent, and connections that did not come up: their outcomes begin with
`NOT_SENT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from harness.ops import Attempt
from harness.vocabularies import Call, convert, names_of

NOT_SENT: Final = "CONNECT"
POLL_MAX: Final = 100
REFUSALS: Final = (
    "already-exists", "no-such-object", "invalid-operation", "invalid-object", "meta-exception",
)  # fmt: skip


class Create(Call, frozen=True):
    """A table that is not there."""

    f: ClassVar[str] = "create"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Alter(Call, frozen=True):
    """What is there under this name is replaced."""

    f: ClassVar[str] = "alter"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Rename(Call, frozen=True):
    """What is there is replaced, and has another name, perhaps in another database."""

    f: ClassVar[str] = "rename"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    new_database: str
    new_name: str
    nonce: str


class Drop(Call, frozen=True):
    """The name is free afterwards."""

    f: ClassVar[str] = "drop"
    mutates: ClassVar[bool] = True
    database: str
    name: str
    nonce: str


class Get(Call, frozen=True):
    """Answers `nonce`, that of the last change; and `directory`: "gone" if its files are."""

    f: ClassVar[str] = "get"
    database: str
    name: str


class List(Call, frozen=True):
    """Answers `tables`: the names of all tables in all databases, as `database.name`, sorted."""

    f: ClassVar[str] = "list"


class Poll(Call, frozen=True):
    """Reads the notification log on, from where this client stands; at first that is its end.

    Answers `after`, the id after which it read, and `events`: [id, time in ms, kind, full name
    before, full name after, nonce before, nonce after] each, at most `POLL_MAX` of them; or, where
    the log does not go back that far, `missing`, the first id that was not there: the client reads
    on from the end of the log then, which is `to`.
    """

    f: ClassVar[str] = "poll"


HmsCall = Create | Alter | Rename | Drop | Get | List | Poll
CALLS: Final[tuple[type[HmsCall], ...]] = (Create, Alter, Rename, Drop, Get, List, Poll)
BY_NAME: Final[Mapping[str, type[HmsCall]]] = {call.f: call for call in CALLS}
MUTATIONS: Final = names_of(CALLS, mutates=True)
READS: Final = names_of(CALLS, mutates=False)


def call_of(f: str, value: Any) -> HmsCall:
    """An operation by its name and value; raises `UsageError` for what is not one of these."""
    return convert(BY_NAME, "hms", f, value)


def full_name(database: str, name: str) -> str:
    """How a table is called across databases."""
    return f"{database}.{name}"


def times_sent(attempts: tuple[Attempt, ...]) -> int:
    """How many of these attempts reached a connection."""
    return sum(not attempt.outcome.startswith(NOT_SENT) for attempt in attempts)
