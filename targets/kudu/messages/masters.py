"""`MasterService`: who is a master, and how that changes."""

from __future__ import annotations

from targets.kudu.messages.base import MasterCall, MasterResponse, Message


class AddMasterResponse(MasterResponse, frozen=True):
    """Sent when the new master is a member without a vote; it gets its vote once it has caught up.

    MASTER_ALREADY_PRESENT may be one's own success, after a retry.
    """


class AddMasterRequest(MasterCall[AddMasterResponse], frozen=True):
    """Add the master at `address`, which must be up and no member of any cluster."""

    address: str


class RemoveMasterResponse(MasterResponse, frozen=True):
    """Sent when the removal has committed."""


class RemoveMasterRequest(MasterCall[RemoveMasterResponse], frozen=True):
    """Remove the master at `address`. Where several members have that address (one that was lost
    and one that took its place), the uuid says which.
    """

    address: str
    master_uuid: str | None = None


class MasterEntry(Message, frozen=True):
    """A member of the committed configuration, and its answer when it was asked just now.

    `role` is "UNKNOWN_ROLE" where `error` says why it did not answer as it should have.
    """

    uuid: str
    address: str
    member_type: str
    role: str
    start_ns: int = 0
    error: str | None = None


class ListMastersResponse(MasterResponse, frozen=True):
    """In the order of the configuration. With a revision it comes from the leader, confirmed, and
    holds every change that was answered before it was asked for; others may lack the newest.
    """

    masters: tuple[MasterEntry, ...] = ()


class ListMastersRequest(MasterCall[ListMastersResponse], frozen=True):
    """Ask any master for all masters; leadership is not checked."""
