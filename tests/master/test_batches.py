"""Batches are encoded and decoded, also large ones and those of older versions."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.env import FRAME_BYTES_MAX
from targets.kudu import messages as m
from targets.kudu.consensus.consensus_peers import entry_limit
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.batches import (
    PACKED_FROM,
    decode_batch,
    encode_batch,
    tablets_limit,
)
from targets.kudu.master.catalog.records import (
    Batch,
    ConsensusState,
    Origin,
    Reply,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
)
from targets.kudu.partitions import partitions_of

COLUMNS = tuple(m.Column(i, f"column_{i}", is_key=i == 0) for i in range(5))
SERVERS = [m.PeerConfig(f"{i + 1:032x}", f"t{i}:7050") for i in range(5)]
TABLE = TableRecord(
    "f" * 32, "t", 0, m.Schema(COLUMNS), m.PartitionSchema(1000), 5, 3, TableState.RUNNING
)
WALL_NS = 1_700_000_000_000_000_000
BIG_PRIME = (1 << 127) - 1


def new_tablets(count: int) -> tuple[TabletRecord, ...]:
    """Return the tablets of a new table, with realistic random ids."""
    return tuple(
        TabletRecord(f"{pow(3, n + 5, BIG_PRIME):032x}", TABLE.id, partition, TabletState.PREPARING)
        for n, partition in enumerate(partitions_of(m.PartitionSchema(count)))
    )


def placed(tablet: TabletRecord, number: int) -> TabletRecord:
    peers = tuple(SERVERS[(number + i) % 5] for i in range(3))
    return msgspec.structs.replace(
        tablet,
        state=TabletState.CREATING,
        consensus=ConsensusState(0, None, m.RaftConfig(-1, peers)),
        origin=Origin("t", m.Schema(COLUMNS), 0),
        created_ns=WALL_NS,
    )


def test_a_thousand_tablets_are_one_small_entry():
    created = new_tablets(1000)
    running = tuple(placed(tablet, n) for n, tablet in enumerate(created))
    dead = tuple(t.buried(TabletState.DELETED, WALL_NS, "the table was deleted") for t in running)
    sizes = [
        len(encode_batch(Batch(1, WALL_NS, (TABLE,), tablets)))
        for tablets in (created, running, dead)
    ]
    assert [size // 1000 for size in sizes] == [39, 46, 39]
    assert tablets_limit(Flags()) * sizes[0] > entry_limit(Flags()) * 1000, "no batch is too large"
    assert sizes[2] < sizes[0] + 300, "what could be created can be deleted"


def test_few_tablets_are_plain_as_they_always_were():
    few = Batch(1, 0, (TABLE,), new_tablets(PACKED_FROM - 1))
    assert msgspec.msgpack.encode(few) == encode_batch(few)
    many = Batch(1, 0, (TABLE,), new_tablets(PACKED_FROM))
    old = msgspec.msgpack.encode(many)
    assert len(encode_batch(many)) < len(old)
    assert decode_batch(old) == decode_batch(encode_batch(many)) == many


UUIDS = st.sampled_from(["A" * 32, "B" * 32, "ts"])
CONFIGS = st.builds(
    m.RaftConfig,
    st.integers(-1, 9),
    st.lists(
        st.builds(
            m.PeerConfig,
            UUIDS,
            st.just("a:1"),
            st.sampled_from(["VOTER", "NON_VOTER"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
)
TABLETS = st.builds(
    TabletRecord,
    st.one_of(st.integers(0, 2**128 - 1).map(lambda n: f"{n:032x}"), st.just("short")),
    st.sampled_from(["x", "y"]),
    st.builds(m.Partition, st.binary(max_size=4), st.binary(max_size=4)),
    st.sampled_from(TabletState),
    st.none()
    | st.builds(ConsensusState, st.integers(0, 5), st.none() | st.sampled_from("LM"), CONFIGS),
    st.none() | st.builds(Origin, st.sampled_from("tu"), st.just(TABLE.schema), st.integers(0, 3)),
    st.sampled_from([0, WALL_NS, WALL_NS + 1]),
    st.sampled_from([0, WALL_NS]),
    st.sampled_from(["", "gone"]),
)
BATCHES = st.builds(
    Batch,
    st.integers(1, 9),
    st.integers(0, WALL_NS),
    st.sampled_from([(), (TABLE,)]),
    st.lists(TABLETS, max_size=2 * PACKED_FROM).map(tuple),
    st.none() | st.just(Reply("c", 1, "n", "x", 2)),
    st.none() | st.just("cluster"),
)


@given(BATCHES)
def test_batches_survive_encoding(batch):
    payload = encode_batch(batch)
    assert batch == decode_batch(payload)
    assert len(payload) <= len(msgspec.msgpack.encode(batch)) + 60


@given(st.lists(TABLETS, min_size=PACKED_FROM, max_size=PACKED_FROM))
def test_equal_batches_give_equal_bytes(tablets):
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(tablets), type=list[TabletRecord])
    first, second = Batch(1, 0, (), tuple(tablets)), Batch(1, 0, (), tuple(again))
    assert encode_batch(first) == encode_batch(second)


def test_every_field_of_a_tablet_is_packed():
    assert TabletRecord.__struct_fields__ == (
        "id",
        "table_id",
        "partition",
        "state",
        "consensus",
        "origin",
        "created_ns",
        "deleted_ns",
        "state_msg",
    )
    assert ConsensusState.__struct_fields__ == ("term", "leader_uuid", "config")
    assert m.RaftConfig.__struct_fields__ == ("opid_index", "peers")


def test_foreign_bytes_are_refused():
    with pytest.raises(msgspec.ValidationError):
        decode_batch(b"\xc1\x91\x01")
    with pytest.raises(msgspec.ValidationError):
        decode_batch(b"\x91\x01")


def test_the_limit_leaves_room_for_the_message():
    assert entry_limit(Flags(rpc_max_message_size=1 << 20)) == (1 << 20) - (1 << 16)
    assert entry_limit(Flags(rpc_max_message_size=1 << 30)) == FRAME_BYTES_MAX - (1 << 16)
