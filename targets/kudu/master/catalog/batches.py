"""The binary format of the batches in the system tablet's log.

A batch of many tablets repeats the same table, servers and schema. In plain msgpack, the batch that
creates 1,000 tablets took 88 kB, and the batch that places them took 354 kB. Batches of at least
`PACKED_FROM` tablets are therefore *packed*: ids are stored as bytes, and each repeated value is
stored once and referred to by number. This reduces the two batches to 39 kB and 46 kB. Smaller
batches are plain msgpack, like all batches of earlier versions. The first byte distinguishes the
two formats.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from targets.kudu.consensus.consensus_peers import entry_limit
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.records import (
    Batch,
    CleanupBatch,
    ConsensusState,
    HmsBatch,
    Origin,
    TabletRecord,
    TabletState,
)
from targets.kudu.messages import Partition, PeerConfig, RaftConfig

PACKED_FROM: Final = 16
"""Minimum number of tablets in a packed batch.

For fewer tablets, packing saves too little space for the time that it costs every master.
"""

_TABLET_BYTES_MIN: Final = 28  # size of a packed tablet whose key range has no bounds

_PACKED: Final = b"\xc1"  # no msgpack value begins with this byte
_ID_DIGITS: Final = 32
Item = TypeVar("Item")


class _Consensus(msgspec.Struct, frozen=True, array_like=True):
    """A packed `ConsensusState`; leader and peers are indexes into the lists of `_PackedBatch`."""

    term: int
    leader: int | None
    opid_index: int
    peers: tuple[int, ...]


class _Tablet(msgspec.Struct, frozen=True, array_like=True):
    """A packed `TabletRecord`.

    Table, origin, times and message are indexes into the lists of `_PackedBatch`.
    """

    id: bytes
    table: int
    partition: Partition
    state: TabletState
    consensus: _Consensus | None
    origin: int | None
    created: int
    deleted: int
    state_msg: int


class _PackedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A packed batch, with lists of distinct values; `rest` is the batch without its tablets."""

    rest: Batch
    texts: tuple[str, ...]
    peers: tuple[PeerConfig, ...]
    origins: tuple[Origin, ...]
    times_ns: tuple[int, ...]
    tablets: tuple[_Tablet, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_plain: Final = msgspec.msgpack.Decoder(Batch)
_packed: Final = msgspec.msgpack.Decoder(_PackedBatch)
_hms: Final = msgspec.msgpack.Decoder(HmsBatch)
_cleanup: Final = msgspec.msgpack.Decoder(CleanupBatch)
# The first byte of an encoded batch has the number of fields, which differs between the types.
_HMS_HEAD: Final = bytes([0x90 + len(HmsBatch.__struct_fields__)])
_CLEANUP_HEAD: Final = bytes([0x90 + len(CleanupBatch.__struct_fields__)])


def tablets_limit(flags: Flags) -> int:
    """Return an upper bound for the number of tablets that fit into a batch."""
    return entry_limit(flags) // _TABLET_BYTES_MIN


def encode_batch(batch: Batch) -> bytes:
    """Encode `batch` for the log."""
    if isinstance(batch, HmsBatch):
        return _encoder.encode(batch)
    if len(batch.tablets) < PACKED_FROM or not all(_is_id(t.id) for t in batch.tablets):
        return _encoder.encode(batch)
    return _PACKED + _encoder.encode(_pack(batch))


def decode_batch(payload: bytes) -> Batch:
    """Decode a batch from a log entry. Raises `msgspec.DecodeError` if it is not a batch."""
    if payload.startswith(_PACKED):
        return _unpack(_packed.decode(memoryview(payload)[1:]))
    if payload.startswith(_HMS_HEAD):
        return _hms.decode(payload)
    if payload.startswith(_CLEANUP_HEAD):
        return _cleanup.decode(payload)
    return _plain.decode(payload)


def _is_id(text: str) -> bool:
    return len(text) == _ID_DIGITS and not set(text) - set("0123456789abcdef")


class _Pool(Generic[Item]):
    """Numbers distinct values in the order of their first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[Item, int] = {}

    def number(self, item: Item) -> int:
        return self._numbers.setdefault(item, len(self._numbers))

    def items(self) -> tuple[Item, ...]:
        return tuple(self._numbers)


def _pack(batch: Batch) -> _PackedBatch:
    texts, peers, origins, times = _Pool[str](), _Pool[PeerConfig](), _Pool[Origin](), _Pool[int]()

    def pack_consensus(state: ConsensusState | None) -> _Consensus | None:
        if state is None:
            return None
        leader = None if state.leader_uuid is None else texts.number(state.leader_uuid)
        members = tuple(peers.number(peer) for peer in state.config.peers)
        return _Consensus(state.term, leader, state.config.opid_index, members)

    tablets = tuple(
        _Tablet(
            bytes.fromhex(tablet.id),
            texts.number(tablet.table_id),
            tablet.partition,
            tablet.state,
            pack_consensus(tablet.consensus),
            None if tablet.origin is None else origins.number(tablet.origin),
            times.number(tablet.created_ns),
            times.number(tablet.deleted_ns),
            texts.number(tablet.state_msg),
        )
        for tablet in batch.tablets
    )
    rest = msgspec.structs.replace(batch, tablets=())
    return _PackedBatch(rest, texts.items(), peers.items(), origins.items(), times.items(), tablets)


def _unpack(packed: _PackedBatch) -> Batch:
    """Unpack a batch; equal parts of its records are the same objects in memory."""
    texts, peers, origins, times = packed.texts, packed.peers, packed.origins, packed.times_ns

    def unpack_consensus(state: _Consensus | None) -> ConsensusState | None:
        if state is None:
            return None
        leader = None if state.leader is None else texts[state.leader]
        members = tuple(peers[number] for number in state.peers)
        return ConsensusState(state.term, leader, RaftConfig(state.opid_index, members))

    tablets = tuple(
        TabletRecord(
            tablet.id.hex(),
            texts[tablet.table],
            tablet.partition,
            tablet.state,
            unpack_consensus(tablet.consensus),
            None if tablet.origin is None else origins[tablet.origin],
            times[tablet.created],
            times[tablet.deleted],
            texts[tablet.state_msg],
        )
        for tablet in packed.tablets
    )
    return msgspec.structs.replace(packed.rest, tablets=tablets)
