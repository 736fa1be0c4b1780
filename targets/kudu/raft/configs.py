"""The membership of a group: the configurations a replica knows, and who votes."""

from __future__ import annotations

import msgspec

from targets.kudu.messages import RaftConfig
from targets.kudu.raft.messages import Entry, EntryKind

__all__ = ["ConfigHistory", "decode_config", "voters_of"]

_CONFIG_DECODER = msgspec.msgpack.Decoder(RaftConfig)


def decode_config(entry: Entry) -> RaftConfig:
    """The configuration in a CONFIG entry, which takes the entry's index as its `opid_index`."""
    assert entry.kind is EntryKind.CONFIG, entry
    return msgspec.structs.replace(_CONFIG_DECODER.decode(entry.payload), opid_index=entry.index)


def voters_of(config: RaftConfig) -> tuple[str, ...]:
    """The uuids of the voters, in the order of the configuration."""
    return tuple(peer.uuid for peer in config.peers if peer.member_type == "VOTER")


class ConfigHistory:
    """The committed configuration and those appended after it.

    The newest one is active from the moment it is in the log, and a truncation brings its
    predecessor back (Raft 6; KUDU-1338 forgot that). `voters` and `majority` are of the active one.
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
        """Whether a configuration waits for its commit."""
        return len(self._items) > 1

    def may_run(self, uuid: str) -> bool:
        """Whether `uuid` votes in the active or in the committed configuration.

        One that a pending change demotes may hold the only copy of that change: until it commits,
        nobody else might be able to win (dissertation 4.2.2).
        """
        return uuid in self.voters or uuid in voters_of(self.committed)

    def append(self, entry: Entry) -> None:
        """Take over the configuration in `entry`, unless it is known already."""
        config = decode_config(entry)
        if config.opid_index > self._items[-1].opid_index:
            self._items.append(config)
            self._note_ends()

    def truncate_from(self, index: int) -> None:
        """Drop configurations at or after `index`."""
        while len(self._items) > 1 and self._items[-1].opid_index >= index:
            self._items.pop()
        self._note_ends()

    def commit(self, index: int) -> bool:
        """Note that `index` is committed; true when the committed configuration changed."""
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
        """Start again from the configuration of a snapshot."""
        self._items = [committed]
        self._note_ends()
