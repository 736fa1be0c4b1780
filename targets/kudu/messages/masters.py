"""`MasterService`: the masters' membership and its changes."""

from __future__ import annotations

from targets.kudu.messages.base import MasterCall, MasterResponse, Message


class AddMasterResponse(MasterResponse, frozen=True):
    """The answer, sent once the new master is a non-voter. The master becomes a voter later.

    MASTER_ALREADY_PRESENT may be due to an earlier attempt of the same caller.
    """


class AddMasterRequest(MasterCall[AddMasterResponse], frozen=True):
    """Add the master at `address`, which must be running and not be a member of any cluster."""

    address: str


class RemoveMasterResponse(MasterResponse, frozen=True):
    """The answer, sent once the removal is committed."""


class RemoveMasterRequest(MasterCall[RemoveMasterResponse], frozen=True):
    """Remove the master at `address`. `master_uuid` selects one of several masters there."""

    address: str
    master_uuid: str | None = None


class MasterEntry(Message, frozen=True):
    """A member of the committed configuration, with the role that it has just reported.

    If the member did not report its role, `role` is "UNKNOWN_ROLE", and `error` says why.
    """

    uuid: str
    address: str
    member_type: str
    role: str
    start_ns: int = 0
    error: str | None = None


class ListMastersResponse(MasterResponse, frozen=True):
    """The masters, in the order of the configuration.

    An answer with a revision comes from a confirmed leader, and includes every change that was
    acknowledged before the request. Other answers may lack the newest changes.
    """

    masters: tuple[MasterEntry, ...] = ()


class ListMastersRequest(MasterCall[ListMastersResponse], frozen=True):
    """Ask for all masters; any master answers."""
