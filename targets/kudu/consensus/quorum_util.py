"""The membership of a Raft group: the configurations in its log, and their voters and changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from targets.kudu.consensus.messages import ChangeType, Entry, EntryKind, PeerChange
from targets.kudu.messages import PeerConfig, RaftConfig

NON_VOTER = "NON_VOTER"
VOTER = "VOTER"

_CONFIG_DECODER = msgspec.msgpack.Decoder(RaftConfig)


def decode_config(entry: Entry) -> RaftConfig:
    """Decode the configuration in a CONFIG entry; the entry's index becomes its `opid_index`."""
    assert entry.kind is EntryKind.CONFIG, entry
    return msgspec.structs.replace(_CONFIG_DECODER.decode(entry.payload), opid_index=entry.index)


def encode_config(config: RaftConfig) -> bytes:
    """Encode `config` as the payload of a CONFIG entry."""
    return msgspec.msgpack.encode(config)


def voters_of(config: RaftConfig) -> tuple[str, ...]:
    """Return the uuids of the voters in `config`, in its order."""
    return tuple(peer.uuid for peer in config.peers if peer.member_type == VOTER)


class BadChangeError(Exception):
    """The requested change of a configuration is never allowed, in any state of the group."""


def changed_config(
    config: RaftConfig, changes: Iterable[PeerChange], *, leader_uuid: str
) -> RaftConfig:
    """Return `config` after `changes`, with an unchanged `opid_index`.

    The rules come from Kudu's `RaftConsensus::BulkChangeConfig`. At most one voter changes at a
    time, so that the old and the new majorities overlap. A leader neither removes nor demotes
    itself. Raises `BadChangeError`.
    """
    peers = {peer.uuid: peer for peer in config.peers}
    asked = 0
    for change in changes:
        asked += 1
        _apply_change(peers, change, leader_uuid)
    after = RaftConfig(config.opid_index, tuple(peers.values()))
    if not asked or after == config:
        raise BadChangeError("the change changes nothing")
    votes = sorted(set(voters_of(config)) ^ set(voters_of(after)))
    if len(votes) > 1:
        raise BadChangeError(f"only one voter may change at a time, not {', '.join(votes)}")
    return after


def forced_config(config: RaftConfig, members: Collection[str], *, local_uuid: str) -> RaftConfig:
    """Return `config` with only `members`, for a change that an administrator forces on a replica.

    Such a change is for a group that has lost its majority for good. As in Kudu's
    `RaftConsensus::UnsafeChangeConfig`, it only removes members. The replica `local_uuid` must
    remain a voter. Raises `BadChangeError`.
    """
    uuids = [peer.uuid for peer in config.peers]
    strangers = [uuid for uuid in members if uuid not in uuids]
    if strangers:
        raise BadChangeError(f"not in the committed configuration here: {', '.join(strangers)}")
    after = RaftConfig(config.opid_index, tuple(p for p in config.peers if p.uuid in members))
    if local_uuid not in voters_of(after):
        raise BadChangeError(f"this replica, {local_uuid}, would not be a voter")
    if after == config:
        raise BadChangeError("the change changes nothing")
    return after


def _apply_change(peers: dict[str, PeerConfig], change: PeerChange, leader_uuid: str) -> None:
    peer, uuid = change.peer, change.peer.uuid
    peer_before = peers.get(uuid)
    if peer.member_type not in {VOTER, NON_VOTER}:
        raise BadChangeError(f"the member type {peer.member_type!r} is not VOTER or NON_VOTER")
    if change.type is ChangeType.ADD_PEER:
        if peer_before is not None:
            raise BadChangeError(f"{uuid} is a member already")
        if not uuid or not peer.address:
            raise BadChangeError("a new member needs a uuid and an address")
        peers[uuid] = peer
        return
    if peer_before is None:
        raise BadChangeError(f"{uuid} is not a member")
    if change.type is ChangeType.REMOVE_PEER:
        if uuid == leader_uuid:
            raise BadChangeError(
                f"{uuid} is the leader and cannot be removed: make it step down first"
            )
        del peers[uuid]
        return
    if uuid == leader_uuid and peer.member_type != VOTER:
        raise BadChangeError(f"{uuid} is the leader and cannot be demoted: make it step down first")
    peers[uuid] = msgspec.structs.replace(peer, address=peer.address or peer_before.address)


class ConfigHistory:
    """The committed configuration of a log, and the configurations appended after it.

    The newest configuration is active from the moment it is in the log. A truncation that removes
    it makes its predecessor active again (Raft 6; KUDU-1338). `voters` and `majority` refer to the
    active configuration.
    """

    __slots__ = ("_items", "active", "committed", "majority", "voters")

    def __init__(self, committed: RaftConfig) -> None:
        self.reset(committed)

    def _note_ends(self) -> None:
        self.committed = self._items[0]  # the newest committed configuration
        self.active = self._items[-1]  # the newest configuration, committed or pending
        self.voters = voters_of(self.active)
        self.majority = len(self.voters) // 2 + 1

    @property
    def pending(self) -> bool:
        return len(self._items) > 1

    def may_run(self, uuid: str) -> bool:
        """Whether `uuid` is a voter in the active or in the committed configuration.

        A member that a pending change demotes may have the only copy of that change. It must be
        able to win an election until the change commits (dissertation 4.2.2).
        """
        return uuid in self.voters or uuid in voters_of(self.committed)

    def append(self, entry: Entry) -> None:
        """Add the configuration in `entry`, unless this history already has it."""
        config = decode_config(entry)
        if config.opid_index > self._items[-1].opid_index:
            self._items.append(config)
            self._note_ends()

    def truncate_from(self, index: int) -> None:
        while len(self._items) > 1 and self._items[-1].opid_index >= index:
            self._items.pop()
        self._note_ends()

    def commit(self, index: int) -> bool:
        """Record that `index` is committed; return whether the committed configuration changed."""
        if len(self._items) == 1:
            return False
        newest = 0
        for position, config in enumerate(self._items):
            if config.opid_index <= index:
                newest = position
        del self._items[:newest]
        self._note_ends()
        return newest > 0

    def reset(self, committed: RaftConfig) -> None:
        """Replace all configurations with `committed`, the configuration of a snapshot."""
        self._items = [committed]
        self._note_ends()
