"""The vocabulary `members`: changes of the replica sets of a running system.

Masters are named by their nodes. A change is answered when it has committed. Some time later, a new
master gets its vote, or a moved replica gets its rows. An administrator makes the changes, so
normally at most one change is in progress, and a target may refuse a second one.

The answer of `list-masters` has `masters`, with [node, role, member type] per master.
`move-replica` moves a replica of some tablet of a table to another server. Its answer has `tablet`,
`source` and `target`.
"""

from __future__ import annotations

from typing import ClassVar, get_args

from harness.vocabularies import Call, Vocabulary


class AddMaster(Call, frozen=True):
    """Add a running master to the members."""

    f: ClassVar[str] = "add-master"
    mutates: ClassVar[bool] = True
    node: str


class RemoveMaster(Call, frozen=True):
    """Remove a master from the members. The master must not be the leader."""

    f: ClassVar[str] = "remove-master"
    mutates: ClassVar[bool] = True
    node: str


class MoveReplica(Call, frozen=True):
    """Move a replica of some tablet of the table to a server without a replica of this tablet."""

    f: ClassVar[str] = "move-replica"
    mutates: ClassVar[bool] = True
    table: str


class ListMasters(Call, frozen=True):
    """List the masters that are members, as their leader knows them."""

    f: ClassVar[str] = "list-masters"


MembersCall = AddMaster | RemoveMaster | MoveReplica | ListMasters
CALLS = Vocabulary[MembersCall]("members", get_args(MembersCall))
BY_NAME, MUTATIONS, READS = CALLS.by_name, CALLS.mutations, CALLS.reads
call_of = CALLS.call_of
