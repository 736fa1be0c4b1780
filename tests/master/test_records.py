"""The system tablet stores batches and snapshots, and rebuilds its maps from rows."""

import asyncio
import random
import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.master.catalog.batches import decode_batch, encode_batch
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import (
    Batch,
    CleanupBatch,
    ConsensusState,
    Forgotten,
    Reply,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
    decode_reply,
)
from targets.kudu.master.catalog.sys_catalog import ForgottenCounts, SystemTablet

SCHEMA = m.Schema((m.Column(0, "key", is_key=True), m.Column(1, "a")))
CONFIG = m.RaftConfig(-1, (m.PeerConfig("A", "a:1"),))


def table(number: int, name: str, state: TableState = TableState.RUNNING) -> TableRecord:
    return TableRecord(f"{number:032x}", name, 0, SCHEMA, m.PartitionSchema(), 2, 3, state)


def tablet(number: int, table_number: int, state: TabletState, start: bytes = b"") -> TabletRecord:
    consensus = ConsensusState(1, "A", CONFIG)
    partition = m.Partition(start, b"")
    return TabletRecord(f"{number:032x}", f"{table_number:032x}", partition, state, consensus)


def test_batches_survive_encoding():
    batch = Batch(
        3,
        17,
        (table(1, "t"),),
        (tablet(2, 1, TabletState.CREATING),),
        Reply("c", 1, "n", "x", 2),
        "cluster",
    )
    assert batch == decode_batch(encode_batch(batch))


def test_a_batch_of_another_term_is_void():
    rows = SystemTablet()
    seen: list[int] = []
    rows.observer = lambda _batch, index, _term: seen.append(index)
    payload = encode_batch(Batch(3, 0, (table(1, "t"),)))
    assert rows.apply(1, 4, payload).void
    assert (rows.tables, seen) == ({}, [])
    assert not rows.apply(2, 3, payload).void
    assert seen == [2]


def test_the_first_cluster_id_stays():
    rows = SystemTablet()
    rows.apply(1, 1, encode_batch(Batch(1, 0, cluster_id="one")))
    rows.apply(2, 2, encode_batch(Batch(2, 0, cluster_id="two")))
    assert rows.cluster_id == "one"


def test_replies_are_bounded_in_the_order_of_application():
    rows = SystemTablet(replies_max=3)
    for number in range(5):
        reply = Reply("c", 10 - number, "n", "t", 0)
        rows.apply(number + 1, 1, encode_batch(Batch(1, 0, reply=reply)))
    assert list(rows.replies) == [("c", 8), ("c", 7), ("c", 6)]
    assert rows.replies_forgotten == 2
    assert decode_reply(rows.replies["c", 6]).index == 5
    again, stored = SystemTablet(), rows.snapshot()
    holders = sys.getrefcount(stored)
    asyncio.run(again.restore(stored, 5))
    assert sys.getrefcount(stored) == holders, (
        "the replies are copied out of the snapshot, which is not kept"
    )
    assert (list(rows.replies.items()), 2) == (list(again.replies.items()), again.replies_forgotten)


BATCHES = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.sampled_from(TableState)),
            max_size=2,
        ),
        st.lists(
            st.tuples(st.integers(0, 5), st.sampled_from(TabletState), st.binary(max_size=1)),
            max_size=3,
        ),
    ),
    max_size=8,
)


@given(BATCHES, st.integers(1, 8))
def test_snapshots_and_maps_equal_replay(batches, cut):
    whole, resumed = SystemTablet(), SystemTablet()
    catalog: Catalog | None = None
    first = ([(number, "z", TableState.RUNNING) for number in range(4)], [])
    for index, (tables, tablets) in enumerate([first, *batches], start=1):
        if index == cut + 1:
            asyncio.run(resumed.restore(whole.snapshot(), whole.last_index))
            catalog = Catalog.load(whole, 1)
        batch = Batch(
            1,
            0,
            tuple(table(n, f"{name}{n}", state) for n, name, state in dict_by_first(tables)),
            tuple(tablet(n, n % 4, state, start) for n, state, start in dict_by_first(tablets)),
        )
        payload = encode_batch(batch)
        whole.apply(index, 1, payload)
        if index > cut:
            resumed.apply(index, 1, payload)
            assert catalog is not None
            catalog.publish(batch, index)
    if catalog is None:
        return
    assert whole.snapshot() == resumed.snapshot()
    fresh = Catalog.load(whole, 1)
    assert fresh.by_name == catalog.by_name
    assert fresh.tables == catalog.tables
    assert fresh.unsettled == catalog.unsettled
    for table_id in fresh.tables:
        live = [t for t in whole.tablets.values() if t.table_id == table_id and t.is_live]
        expected = sorted(live, key=lambda t: (t.partition.start, t.id))
        assert expected == list(fresh.live_tablets(table_id))
        assert expected == list(catalog.live_tablets(table_id))


def dict_by_first(items: list) -> list:
    return [item for _, item in sorted({item[0]: item for item in items}.items())]


def test_swapping_names_in_one_batch_leaves_both_mapped():
    rows = SystemTablet()
    one, two = table(1, "a"), table(2, "b")
    rows.apply(1, 1, encode_batch(Batch(1, 0, (one, two))))
    catalog = Catalog.load(rows, 1)
    catalog.publish(Batch(1, 0, (table(1, "b"), table(2, "a"))), 2)
    assert {"a": two.id, "b": one.id} == catalog.by_name


def test_tablets_without_a_table_are_left_out():
    rows = SystemTablet()
    rows.apply(1, 1, encode_batch(Batch(1, 0, (), (tablet(5, 9, TabletState.PREPARING),))))
    catalog = Catalog.load(rows, 1)
    assert (catalog.tablets, catalog.unsettled) == ({}, {})


def test_buried_records_are_small_and_dead():
    dead = table(1, "t").buried(5, "gone")
    assert (dead.state, dead.schema.columns, dead.delete_ns) == (TableState.REMOVED, (), 5)
    assert not dead.is_live
    gone = tablet(2, 1, TabletState.RUNNING).buried(TabletState.DELETED, 5, "gone")
    assert (gone.consensus, gone.is_live) == (None, False)


def test_equal_histories_give_equal_snapshots():
    rng = random.Random(3)
    first, second = SystemTablet(), SystemTablet()
    for index in range(1, 30):
        batch = Batch(1, index, (table(rng.randrange(5), f"n{rng.randrange(9)}"),))
        first.apply(index, 1, encode_batch(batch))
        second.apply(index, 1, encode_batch(batch))
    assert first.snapshot() == second.snapshot()


def test_rows_are_forgotten_everywhere_and_counted():
    dead = [tablet(4, 2, TabletState.DELETED), tablet(5, 1, TabletState.REPLACED)]
    rows, maps = SystemTablet(), Catalog(3)
    gone = msgspec.structs.replace(table(2, "u", TableState.REMOVED), version=7)
    first = Batch(3, 0, (table(1, "t"), gone), (tablet(3, 1, TabletState.RUNNING), *dead))
    rows.observer = lambda batch, index, _term: maps.publish(batch, index)
    rows.apply(1, 3, encode_batch(first))
    forgotten = Forgotten((gone.id,), tuple(each.id for each in dead))
    batch = CleanupBatch(3, 5, forgotten=forgotten)
    assert decode_batch(encode_batch(batch)) == batch
    assert not rows.apply(2, 3, encode_batch(batch)).void
    assert (list(rows.tables), list(rows.tablets)) == ([f"{1:032x}"], [f"{3:032x}"])
    assert maps.differences(Catalog.load(rows, 3)) == []
    assert rows.forgotten == ForgottenCounts(1, 2, 6, 7)
    other = SystemTablet()
    asyncio.run(other.restore(rows.snapshot(), 2))
    assert (other.forgotten, other.tables, other.tablets) == (
        rows.forgotten, rows.tables, rows.tablets,
    )  # fmt: skip
    assert other.snapshot() == rows.snapshot()
