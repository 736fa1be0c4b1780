"""`MasterService`: who is a master, and how that changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from targets.kudu.messages.base import MasterError, Message, Meta

__all__ = [
    "AddMasterRequest",
    "AddMasterResponse",
    "ListMastersRequest",
    "ListMastersResponse",
    "MasterEntry",
    "RemoveMasterRequest",
    "RemoveMasterResponse",
]


class AddMasterRequest(Message, frozen=True):
    """Add the master at `address`, which must be up and no member of any cluster."""

    address: str


class AddMasterResponse(Message, frozen=True):
    """Sent when the new master is a member without a vote; it gets its vote once it has caught up.

    MASTER_ALREADY_PRESENT may be one's own success, after a retry.
    """

    meta: Meta
    error: MasterError | None = None


class RemoveMasterRequest(Message, frozen=True):
    """Remove the master at `address`. Where several members have that address (one that was lost
    and one that took its place), the uuid says which.
    """

    address: str
    master_uuid: str | None = None


class RemoveMasterResponse(Message, frozen=True):
    """Sent when the removal has committed."""

    meta: Meta
    error: MasterError | None = None


class ListMastersRequest(Message, frozen=True):
    """Ask any master for all masters; leadership is not checked."""


class MasterEntry(Message, frozen=True):
    """A member of the committed configuration, and what it said when it was asked just now.

    `role` is "UNKNOWN_ROLE" where `error` says why it did not answer as it should have.
    """

    uuid: str
    address: str
    member_type: str
    role: str
    start_ns: int = 0
    error: str | None = None


class ListMastersResponse(Message, frozen=True):
    """In the order of the configuration. With a revision it comes from the leader, confirmed, and
    holds every change that was answered before it was asked for; others may lack the newest.
    """

    meta: Meta
    error: MasterError | None = None
    masters: tuple[MasterEntry, ...] = ()


METHODS: Final[Mapping[str, tuple[type[Message], type[Message]]]] = {
    "MasterService.AddMaster": (AddMasterRequest, AddMasterResponse),
    "MasterService.RemoveMaster": (RemoveMasterRequest, RemoveMasterResponse),
    "MasterService.ListMasters": (ListMastersRequest, ListMastersResponse),
}
