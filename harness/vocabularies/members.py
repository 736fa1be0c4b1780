"""The vocabulary `members`: who replicates what, changed while all goes on.

Masters are named by their nodes. A change is answered when it has committed; a new master gets its
vote, and a moved replica its rows, some time after. Changes are the administrator's, so at most one
is under way as a rule; a target may refuse a second one.

`list-masters` answers `masters`: [node, role, member type] of each. `move-replica` asks for a
replica of some tablet of a table to move to another server, and answers `tablet`, `source` and
`target`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from harness.vocabularies import Call, convert, names_of


class AddMaster(Call, frozen=True):
    """A running master that is no member becomes one."""

    f: ClassVar[str] = "add-master"
    mutates: ClassVar[bool] = True
    node: str


class RemoveMaster(Call, frozen=True):
    """A member that does not lead is one no more."""

    f: ClassVar[str] = "remove-master"
    mutates: ClassVar[bool] = True
    node: str


class MoveReplica(Call, frozen=True):
    """A replica of some tablet of the table goes to a server that has none."""

    f: ClassVar[str] = "move-replica"
    mutates: ClassVar[bool] = True
    table: str


class ListMasters(Call, frozen=True):
    """The members, as the leader has them."""

    f: ClassVar[str] = "list-masters"


MembersCall = AddMaster | RemoveMaster | MoveReplica | ListMasters
CALLS: Final[tuple[type[MembersCall], ...]] = (AddMaster, RemoveMaster, MoveReplica, ListMasters)
BY_NAME: Final[Mapping[str, type[MembersCall]]] = {call.f: call for call in CALLS}
MUTATIONS: Final = names_of(CALLS, mutates=True)


def call_of(f: str, value: Any) -> MembersCall:
    """An operation by its name and value; raises `UsageError` for what is not one of these."""
    return convert(BY_NAME, "members", f, value)
