"""The store of versions and its sorted set, compared with plain dictionaries."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu.tserver import mvcc
from targets.kudu.tserver.mvcc import RowStore, SortedKeys, decode_row, encode_row
from targets.kudu.tserver.rowset import pack_blocks, read_blocks

KEYS = st.sampled_from([b"", b"a", b"a\x00", b"b", b"c", b"d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("delete"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), st.just(b""), st.integers(1, 3)),
        st.tuples(st.just("collect"), st.just(b""), st.integers(0, 6)),
        st.tuples(st.just("reload"), st.just(b""), st.just(0)),
    ),
    max_size=40,
)


class Oracle:
    """An oracle that has the whole table at every timestamp."""

    def __init__(self) -> None:
        self.now = 1
        self.tables: dict[int, dict[bytes, int]] = {0: {}, 1: {}}

    def write(self, key: bytes, value: int | None) -> None:
        table = self.tables[self.now]
        table.pop(key, None)
        if value is not None:
            table[key] = value

    def wait(self, steps: int) -> None:
        for _ in range(steps):
            self.now += 1
            self.tables[self.now] = dict(self.tables[self.now - 1])


def read(store: RowStore, at: int, *, start: bytes = b"", end: bytes = b"", page: int = 9):
    found: dict[bytes, int] = {}
    begin: bytes | None = start
    while begin is not None:
        one = store.scan(at, begin, end, rows_max=page, bytes_max=1 << 20)
        assert len(one.rows) <= page
        assert list(found) + [key for key, _ in one.rows] == sorted({*found, *dict(one.rows)})
        found |= {key: decode_row(row)[1] for key, row in one.rows}
        begin = one.next_key
    return found


def reloaded(store: RowStore) -> RowStore:
    fresh = RowStore(history_bytes_max=1 << 30)
    deque(fresh.load(read_blocks(pack_blocks(store.records())), store.history_start))
    return fresh


@given(STEPS, st.data())
def test_every_snapshot_is_the_table_of_its_time(steps, data):
    store, oracle = RowStore(history_bytes_max=1 << 30), Oracle()
    replayed = []
    for kind, key, number in steps:
        if kind == "put":
            store.put(key, oracle.now, encode_row({1: number}))
            oracle.write(key, number)
        elif kind == "delete":
            store.put(key, oracle.now, None)
            oracle.write(key, None)
        elif kind == "pass":
            oracle.wait(number)
        elif kind == "collect":
            oldest = max(0, oracle.now - number)
            if oldest < oracle.now:  # a version at the current timestamp may be written again
                store.collect(oldest)
                assert store.history_start <= oldest
        else:
            replayed += store.take_changes()
            store = reloaded(store)
    replayed += store.take_changes()
    now = oracle.tables[oracle.now]
    assert len(now) == store.live_rows
    for at in range(store.history_start, oracle.now + 1):
        assert oracle.tables[at] == read(store, at)
    start, end = data.draw(KEYS), data.draw(KEYS)
    page = data.draw(st.integers(1, 3))
    within = {k: v for k, v in now.items() if start <= k and (not end or k < end)}
    assert within == read(store, oracle.now, start=start, end=end, page=page)
    assert [store.newest(key) is not None for key in (b"a", b"b")] == [b"a" in now, b"b" in now]

    # A store has the same digest, sizes and history, however its rows were written.
    for other in (reloaded(store), RowStore(history_bytes_max=1 << 30)):
        if not other.live_rows and not other.version_bytes:
            deque(other.load(replayed, store.history_start))
        assert (store.digest, store.live_rows) == (other.digest, other.live_rows)
        assert store.version_bytes == other.version_bytes
        for at in range(store.history_start, oracle.now + 1):
            assert oracle.tables[at] == read(other, at)

    # once all other versions are too old, only the live rows remain
    store.collect(oracle.now)
    assert store.history_bytes == 0
    assert len(now) == len(store.records())
    assert now == read(store, oracle.now)
    assert sum(len(k) + len(v) + 8 for k, v in store.records()) == store.version_bytes


def test_digest_tells_rows_apart():
    digests = set()
    for rows in ({}, {b"a": 1}, {b"a": 2}, {b"b": 1}, {b"a": 1, b"b": 1}):
        store = RowStore(history_bytes_max=1 << 30)
        for key, value in rows.items():
            store.put(key, 5, encode_row({1: value}))
        digests.add(store.digest)
    assert len(digests) == 5


def test_history_is_bounded_in_bytes_and_says_from_where_it_starts():
    store = RowStore(history_bytes_max=1000)
    for at in range(1, 200):
        store.put(b"k", at, encode_row({1: at}))
        store.collect(0)
        assert store.history_bytes <= 1000
    assert 150 < store.history_start < 199
    assert {b"k": store.history_start} == read(store, store.history_start)
    with pytest.raises(AssertionError):
        read(store, store.history_start - 1)


def test_rows_that_come_and_go_in_one_write_are_history_as_well():
    store = RowStore(history_bytes_max=1000)
    for at in range(1, 200):
        store.put(b"%03d" % at, at, encode_row({1: at}))
        store.put(b"%03d" % at, at, None)
        store.collect(0)
        assert store.version_bytes <= 1000
    fresh = reloaded(store)
    assert (fresh.history_bytes, fresh.live_rows) == (store.history_bytes, 0)
    store.put(b"199", 199, encode_row({1: 1}))
    store.put(b"199", 199, None)
    store.put(b"198", 199, None)
    store.put(b"198", 199, encode_row({1: 1}))  # the deletion has been removed
    assert reloaded(store).history_bytes == store.history_bytes


def test_a_page_does_not_search_without_end():
    store = RowStore(history_bytes_max=1 << 30)
    for number in range(100):
        store.put(b"%03d" % number, 1, encode_row({1: 1}))
        store.put(b"%03d" % number, 2, None if number < 99 else encode_row({1: 2}))
    page = store.scan(2, b"", b"", rows_max=5, bytes_max=1 << 20)
    assert (page.rows, page.next_key) == ([], b"050")
    assert read(store, 2, page=5) == {b"099": 2}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=120))
def test_sorted_keys_are_a_sorted_set(steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mvcc, "_BLOCK_MAX", 4)
        keys, oracle = SortedKeys(), set()
        for is_add, number in steps:
            key = b"%02d" % number
            if is_add and key not in oracle:
                keys.add(key)
                oracle.add(key)
            elif not is_add and key in oracle:
                keys.remove(key)
                oracle.remove(key)
        for start in (b"", b"17", b"99"):
            expected = sorted(key for key in oracle if key >= start)
            assert expected == list(keys.since(start)) == list(SortedKeys(oracle).since(start))
