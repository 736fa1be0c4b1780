"""The vocabulary `members`: who replicates what, changed while all goes on.

Masters are named by their nodes. A change is answered when it has committed; a new master gets its
vote, and a moved replica its rows, some time after. Changes are the administrator's, so at most one
is under way as a rule; a target may refuse a second one.

`list-masters` answers `masters`: [node, role, member type] of each. `move-replica` asks for a
replica of some tablet of a table to move to another server, and answers `tablet`, `source` and
`target`.
"""

from __future__ import annotations

from typing import ClassVar, get_args

from harness.vocabularies import Call, Vocabulary


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
CALLS = Vocabulary[MembersCall]("members", get_args(MembersCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of
