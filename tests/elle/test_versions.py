"""Version orders of registers, compared pair by pair with the definitions."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.elle import Transaction
from checkers.elle.infer.accesses import Accesses, accesses_of
from checkers.elle.infer.columns import NEVER, columns_of
from checkers.elle.infer.versions import contradicting_keys, nearest, realtime_of, walked_pairs
from harness.ops import OpType
from tests.elle.histories import precedence

history = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.integers(0, 6),
        st.booleans(),
        st.lists(st.tuples(st.booleans(), st.sampled_from("xy"), st.integers(0, 3)), max_size=3),
    ),
    min_size=1,
    max_size=9,
)


def accesses(drawn: list[tuple[int, int, bool, list[tuple[bool, str, int]]]]) -> Accesses:
    txns = []
    for number, (call, length, ok, plan) in enumerate(drawn):
        mops = [
            ("w", key, 10 * number + place) if write else ("r", key, 10 * value or None)
            for place, (write, key, value) in enumerate(plan)
        ]
        kind = OpType.OK if ok else OpType.INFO
        txns.append(Transaction(mops, call, call + length, kind, number))
    return accesses_of(columns_of(txns, writes_are="w"), {})


def complete(of: Accesses) -> set[tuple[int, int]]:
    """Return all pairs of versions that are ordered by real time."""
    columns = of.columns
    pairs = set()
    for a in range(len(of.txn)):
        for b in range(len(of.txn)):
            before = columns.end[of.txn[a]]
            in_order = before != NEVER and before < columns.start[of.txn[b]]
            if of.key[a] == of.key[b] and in_order and of.last[a] >= 0 and of.found[b] >= 0:
                pairs.add((int(of.last[a]), int(of.found[b])))
    return {(v, w) for v, w in pairs if v != w}


def closure(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    found = set(pairs)
    while True:
        more = {(a, d) for a, b in found for c, d in found if b == c} - found
        if not more:
            return found
        found |= more


@settings(deadline=None)
@given(history)
def test_zones_tell_the_keys_in_trouble(drawn):
    of = accesses(drawn)
    pairs = complete(of)
    expected = {int(of.key_of(np.array([v]))[0]) for v, w in pairs if (w, v) in pairs}

    assert expected == set(contradicting_keys(of, realtime_of(of)).tolist())


@settings(deadline=None)
@given(history)
def test_the_nearest_successors_imply_all_others(drawn):
    of = accesses(drawn)
    time = realtime_of(of)
    usable = ~np.isin(of.key_of(np.arange(of.count)), contradicting_keys(of, time))
    pairs = {(v, w) for v, w in complete(of) if usable[v]}
    source, target = nearest(of, time, np.ones(of.count, bool), usable)
    found = set(zip(source.tolist(), target.tolist(), strict=True))

    assert found <= pairs
    assert closure(pairs) == closure(found)


@settings(deadline=None)
@given(history, st.randoms(use_true_random=False))
def test_nearest_written_successors_imply_all_written_ones(drawn, rng):
    of = accesses(drawn)
    time = realtime_of(of)
    usable = ~np.isin(of.key_of(np.arange(of.count)), contradicting_keys(of, time))
    wanted = np.array([rng.random() < 0.6 for _ in range(of.count)], bool)
    pairs = {(v, w) for v, w in complete(of) if usable[v] and wanted[w]}
    source, target = nearest(of, time, wanted, usable)
    found = set(zip(source.tolist(), target.tolist(), strict=True))

    assert found <= pairs
    assert closure(pairs) == closure(found)


def walked(of: Accesses) -> set[tuple[int, int]]:
    """Return ordered pairs of a key's versions, found by walking the reduced real-time graph."""
    columns = of.columns
    count = len(columns)
    order = precedence(columns)
    reduced = {
        (a, b)
        for a, b in order
        if not any((a, c) in order and (c, b) in order for c in range(count))
    }
    found = set()
    for key in range(len(columns.keys)):
        rows = {int(of.txn[row]): row for row in np.flatnonzero(of.key == key)}
        for first, row in rows.items():
            todo = [b for a, b in reduced if a == first]
            seen = set()
            while todo:
                txn = todo.pop()
                if txn in seen:
                    continue
                seen.add(txn)
                if txn in rows:
                    found.add((int(of.last[row]), int(of.found[rows[txn]])))
                else:
                    todo += [b for a, b in reduced if a == txn]
    return {(v, w) for v, w in found if v != w and v >= 0 and w >= 0}


@settings(deadline=None)
@given(history)
def test_walked_pairs_go_around_transactions_on_the_key(drawn):
    of = accesses(drawn)
    pairs = walked_pairs(of, np.arange(len(of.columns.keys), dtype=np.int32))
    assert pairs is not None

    expected = walked(of)
    assert expected == set(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))
    assert expected <= complete(of)


def test_a_limit_on_walking(monkeypatch):
    monkeypatch.setattr("checkers.elle.search.walk.WALK_STEPS_MAX", 3)
    of = accesses([(i, 0, True, [(True, "x", 0)]) for i in range(9)])

    assert walked_pairs(of, np.zeros(1, np.int32)) is None


def test_walking_keeps_to_the_time():
    of = accesses([(i, 0, True, [(True, "x", 0)]) for i in range(9)])

    assert walked_pairs(of, np.zeros(1, np.int32)) is not None
    assert walked_pairs(of, np.zeros(1, np.int32), lambda: True) is None
