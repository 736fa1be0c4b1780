"""The membership of a group: known configurations, voters, and changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from targets.kudu.consensus.messages import ChangeType, Entry, EntryKind, PeerChange
from targets.kudu.messages import PeerConfig, RaftConfig

NON_VOTER = "NON_VOTER"
VOTER = "VOTER"

_CONFIG_DECODER = msgspec.msgpack.Decoder(RaftConfig)


def decode_config(entry: Entry) -> RaftConfig:
    """The configuration in a CONFIG entry; the entry's index becomes its `opid_index`."""
    assert entry.kind is EntryKind.CONFIG, entry
    return msgspec.structs.replace(_CONFIG_DECODER.decode(entry.payload), opid_index=entry.index)


def encode_config(config: RaftConfig) -> bytes:
    """The payload of a CONFIG entry."""
    return msgspec.msgpack.encode(config)


def voters_of(config: RaftConfig) -> tuple[str, ...]:
    """The uuids of the voters, in the order of the configuration."""
    return tuple(peer.uuid for peer in config.peers if peer.member_type == VOTER)


class BadChangeError(Exception):
    """A change of a configuration that is never allowed, no matter when it is requested."""


def changed_config(
    config: RaftConfig, changes: Iterable[PeerChange], *, leader_uuid: str
) -> RaftConfig:
    """`config` after `changes`; its `opid_index` is not set yet. Raises `BadChangeError`.

    After Kudu's `RaftConsensus::BulkChangeConfig`: at most one change of a voter at a time (the old
    and the new majorities must overlap), and a leader neither removes nor demotes itself. A second
    request for the same addition or removal is refused, so that its caller looks at the
    configuration.
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
        raise BadChangeError(f"one vote may change at a time, not those of {', '.join(votes)}")
    return after


def forced_config(config: RaftConfig, members: Collection[str], *, local_uuid: str) -> RaftConfig:
    """`config` with these members only, which an administrator forces upon a replica.

    Raises `BadChangeError`. For a group that has lost its majority for good. After Kudu's
    `RaftConsensus::UnsafeChangeConfig`: the change only removes members, never the replica itself,
    and always leaves a voter.
    """
    uuids = [peer.uuid for peer in config.peers]
    strangers = [uuid for uuid in members if uuid not in uuids]
    if strangers:
        raise BadChangeError(f"{', '.join(strangers)} is not in the committed configuration here")
    after = RaftConfig(config.opid_index, tuple(p for p in config.peers if p.uuid in members))
    if local_uuid not in voters_of(after):
        raise BadChangeError(f"{local_uuid}, which is asked, would not be a voter")
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
            raise BadChangeError(f"{uuid} leads and cannot be removed: let it step down first")
        del peers[uuid]
        return
    if uuid == leader_uuid and peer.member_type != VOTER:
        raise BadChangeError(f"{uuid} leads and cannot be demoted: let it step down first")
    peers[uuid] = msgspec.structs.replace(peer, address=peer.address or peer_before.address)


class ConfigHistory:
    """The committed configuration and those appended after it.

    The newest one is active from the moment it is in the log, and a truncation reactivates its
    predecessor (Raft 6; KUDU-1338 forgot that). `voters` and `majority` refer to the active one.
    """

    __slots__ = ("_items", "active", "committed", "majority", "voters")

    def __init__(self, committed: RaftConfig) -> None:
        self.reset(committed)

    def _note_ends(self) -> None:
        self.committed = self._items[0]  # the newest committed configuration
        self.active = self._items[-1]  # the newest one
        self.voters = voters_of(self.active)
        self.majority = len(self.voters) // 2 + 1

    @property
    def pending(self) -> bool:
        return len(self._items) > 1

    def may_run(self, uuid: str) -> bool:
        """Whether `uuid` votes in the active or in the committed configuration.

        Both count, because a member that a pending change demotes may hold the only copy of that
        change: until it commits, no other member might be able to win (dissertation 4.2.2).
        """
        return uuid in self.voters or uuid in voters_of(self.committed)

    def append(self, entry: Entry) -> None:
        """Add the configuration in `entry`, unless it is known already."""
        config = decode_config(entry)
        if config.opid_index > self._items[-1].opid_index:
            self._items.append(config)
            self._note_ends()

    def truncate_from(self, index: int) -> None:
        while len(self._items) > 1 and self._items[-1].opid_index >= index:
            self._items.pop()
        self._note_ends()

    def commit(self, index: int) -> bool:
        """Note that `index` is committed; true if the committed configuration changed."""
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
        """Start again with the configuration of a snapshot."""
        self._items = [committed]
        self._note_ends()
