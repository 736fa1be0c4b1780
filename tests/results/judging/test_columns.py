"""Keys judged from columns: as the ordinary checker judges each, and no forged order passes."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers import linearizable
from checkers._register_columns import registers_of
from checkers.linearizability import bulk, native
from checkers.linearizability.bulk import CAS, CAS_FAILED, READ, WRITE, Operations
from checkers.linearizability.verify import CertificateError
from harness.errors import HistoryError
from harness.ops import History, Op, OpType
from harness.store import lat_bucket
from harness.store.buckets import lat_buckets
from harness.store.keyed import bucket_paths, write_buckets
from results.judging.columns import read_columns
from tests.tiers import examples

VALUES = st.sampled_from([None, 0, 1, 2, True, 1.0, "x"])


@st.composite
def register_histories(draw):
    """Any well-formed history of a few clients on one register, valid or not."""
    ops, state, processes = [], {}, {}
    for _ in range(draw(st.integers(0, 14))):
        slot = draw(st.integers(0, 2))
        process = processes.setdefault(slot, slot)
        if process in state:
            f = state.pop(process)
            kind = draw(
                st.sampled_from([OpType.OK, OpType.OK, OpType.OK, OpType.FAIL, OpType.INFO])
            )
            value = {"value": draw(VALUES)} if f == "read" else {}
            if kind is OpType.FAIL and draw(st.booleans()):
                value = {"result": "mismatch"}
            ops.append((process, kind, f, value))
            if kind is OpType.INFO:
                processes[slot] = process + 3
        else:
            f = draw(st.sampled_from(["read", "write", "cas"]))
            value = {
                "read": {},
                "write": {"value": draw(VALUES)},
                "cas": {"old": draw(VALUES), "new": draw(VALUES)},
            }[f]
            state[process] = f
            ops.append((process, OpType.INVOKE, f, value))
    return ops


def sealed(folder, by_key):
    """Histories by key in one bucket, and its columns."""
    ops = []
    for place, (key, lines) in enumerate(by_key.items()):
        for process, kind, f, value in lines:
            ops.append(Op(len(ops), len(ops), process + 1000 * place, kind, f, [key, value]))
    write_buckets(folder, History(ops), buckets=1)
    (path,) = bucket_paths(folder)
    (columns,) = read_columns(path, 0, 1)
    return columns


@settings(max_examples=examples(150), deadline=None)
@given(lines=st.lists(register_histories(), min_size=1, max_size=4))
def test_columns_say_what_histories_say(lines, tmp_path_factory):
    by_key = {f"k{n}": found for n, found in enumerate(lines) if found}
    if not by_key:
        return
    columns = sealed(tmp_path_factory.mktemp("c"), by_key)
    checker = linearizable.RegisterLinearizable()
    judged = checker.check_columns(columns, None)
    histories = list(columns.histories(range(len(columns.keys))))

    assert list(columns.keys) == [f'"{key}"' for key in sorted(by_key)]
    for number, history in enumerate(histories):
        result = checker.check(history, None, time_limit_s=300)
        valid = result.verdict.value == "valid"
        if judged.valid[number]:
            assert valid
            assert judged.reasons[number] == result.reason
        elif native.is_native() and valid:
            # One short lean search finds all small ones, unless lost answers work together.
            assert result.details["unknown"] > 1
        assert columns.operations()[number] == len(history.pairs)


@settings(max_examples=examples(100), deadline=None)
@given(lines=register_histories())
def test_operations_are_those_of_the_ordinary_way(lines, tmp_path_factory):
    if not lines:
        return
    columns = sealed(tmp_path_factory.mktemp("c"), {"k": lines})
    (history,) = columns.histories([0])
    found = registers_of(columns)
    expected = [linearizable._register_operation(pair) for pair in history.pairs]
    expected = [operation for operation in expected if operation is not None]

    assert not found.malformed[0]
    assert found.counts[0] == len(expected)
    assert found.unknown[0] == sum(operation.is_unknown for operation in expected)
    index = [op.index for op in history]
    assert [index[row] for row in found.operations.calls] == [o.call for o in expected]
    ends = [None if row < 0 else index[row] for row in found.operations.ends]
    assert ends == [operation.return_time for operation in expected]
    names = {"Read": {READ}, "Write": {WRITE}, "Cas": {CAS, CAS_FAILED}}
    for kind, operation in zip(found.operations.kinds, expected, strict=True):
        assert kind in names[type(operation.input).__name__]
        assert (kind == CAS_FAILED) == (operation.output is False)


MALFORMED = {
    "another vocabulary": [(0, OpType.INVOKE, "push", {"value": 1})],
    "a write of nothing": [(0, OpType.INVOKE, "write", {})],
    "a read of nothing": [(0, OpType.INVOKE, "read", {}), (0, OpType.OK, "read", {})],
    "a list": [(0, OpType.INVOKE, "write", {"value": [1]})],
}


@pytest.mark.parametrize("what", MALFORMED)
def test_strange_keys_are_left_to_the_ordinary_way(what, tmp_path):
    fine = [(0, OpType.INVOKE, "write", {"value": 1}), (0, OpType.OK, "write", {})]
    columns = sealed(tmp_path / "h", {"a": fine, "s": MALFORMED[what]})
    found = registers_of(columns)
    assert found.malformed.tolist() == [False, True]
    judged = linearizable.RegisterLinearizable().check_columns(columns, None)
    assert judged.valid.tolist() == [native.is_native(), False]


ODD = {
    "two invocations": [0, 0],
    "a completion alone": [1],
    "two completions": [0, 1, 1],
    "on after info": [0, 3, 0],
}


@pytest.mark.parametrize("what", ODD)
def test_ops_that_do_not_pair_up_are_left_to_the_ordinary_way(what, tmp_path):
    lines = [(0, OpType.INVOKE, "write", {"value": 1}), (0, OpType.OK, "write", {})] * 2
    columns = sealed(
        tmp_path / "h", {"a": lines[: len(ODD[what])] if len(ODD[what]) < 4 else lines}
    )
    forged = dataclasses.replace(columns, types=np.array(ODD[what], np.uint8))
    assert registers_of(forged).malformed.tolist() == [True]


def test_a_row_that_is_no_op_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    sealed(tmp_path / "h", {"a": [(0, OpType.INVOKE, "read", {})]})
    (path,) = bucket_paths(tmp_path / "h")
    table = pq.read_table(path)
    forged = table.set_column(3, "type", pa.array(["maybe"]))
    pq.write_table(forged.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(HistoryError, match="maybe"):
        list(read_columns(path, 0, 1))


# --- forged orders --------------------------------------------------------------------------------


def two_keys():
    """Key 0: write 1, then read 1, then a lost write 2. Key 1: cas null -> 3, cas 9 -> 4 fails."""
    return Operations(
        starts=np.array([0, 3, 5]),
        calls=np.array([0, 2, 4, 10, 12]),
        ends=np.array([1, 3, -1, 11, 13]),
        kinds=np.array([WRITE, READ, WRITE, CAS, CAS_FAILED], np.uint8),
        first=np.array([1, 1, 2, 0, 9]),
        second=np.array([0, 0, 0, 3, 4]),
    )


@pytest.mark.parametrize(
    ("orders", "lengths"),
    [([0, 1, 0, 1], [2, 2]), ([0, 1, 2, 0, 1], [3, 2]), ([0, 1], [2, -1]), ([0, 1], [-1, 2])],
)
def test_good_orders_pass(orders, lengths):
    bulk.verify(two_keys(), np.array(orders), np.array(lengths))


@pytest.mark.parametrize(
    ("orders", "lengths", "words"),
    [
        ([0, 1, 2, 0], [2, 2], "does not have"),
        ([0, 1, 0], [2, 2], "hold 3"),
        ([0, 0, 1], [-1, 3], "twice"),
        ([0, 0, 1], [1, 2], "not in its key's order"),
        ([1, 0, 0, 1], [2, 2], "before one that had returned"),
        ([2, 0, 1, 0, 1], [3, 2], "before one that had returned"),
    ],
)
def test_forged_orders_are_refused(orders, lengths, words):
    with pytest.raises(CertificateError, match=words):
        bulk.verify(two_keys(), np.array(orders), np.array(lengths))


@pytest.mark.parametrize(
    ("place", "first"),
    [(1, 2), (1, 0), (3, 1), (4, 3)],
    ids=["read another", "read the first value", "cas another", "failed cas that holds"],
)
def test_answers_that_do_not_follow_are_refused(place, first):
    operations = two_keys()
    operations.first[place] = first
    with pytest.raises(CertificateError, match="answer"):
        bulk.verify(operations, np.array([0, 1, 0, 1]), np.array([2, 2]))


@pytest.mark.parametrize(("old", "read", "good"), [(1, 5, True), (1, 1, False), (7, 1, True)])
def test_a_lost_cas_does_what_it_finds(old, read, good):
    """Write 1, a lost cas old -> 5, read."""
    operations = Operations(
        starts=np.array([0, 3]),
        calls=np.array([0, 2, 3]),
        ends=np.array([1, -1, 4]),
        kinds=np.array([WRITE, CAS, READ], np.uint8),
        first=np.array([1, old, read]),
        second=np.array([0, 5, 0]),
    )
    order, length = np.array([0, 1, 2]), np.array([3])
    if good:
        bulk.verify(operations, order, length)
    else:
        with pytest.raises(CertificateError):
            bulk.verify(operations, order, length)


def test_a_wrong_core_is_caught(monkeypatch):
    """What the core says is not believed."""

    def liar(columns, starts, steps, most):
        del columns, starts, steps, most
        orders = np.array([1, 0, 0, 1], "<u4").tobytes()
        return orders, np.array([2, 2], "<i8").tobytes(), np.array([0, 0], "<i8").tobytes()

    monkeypatch.setattr(native, "register_orders", lambda: liar)
    with pytest.raises(CertificateError):
        bulk.find_orders(two_keys(), configurations_max=1000)


def test_without_the_core_nothing_is_decided(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")
    assert bulk.find_orders(two_keys(), configurations_max=1000).valid.tolist() == [False, False]


EDGES = sorted({max(0, (1 << bits) + delta) for bits in range(63) for delta in (-2, -1, 0, 1, 2)})


@given(st.lists(st.one_of(st.sampled_from(EDGES), st.integers(-5, 2**63 - 1)), max_size=30))
def test_buckets_of_columns_are_those_of_numbers(values):
    found = lat_buckets(np.array(values, np.int64))
    assert found.tolist() == [lat_bucket(value) for value in values]


def test_buckets_of_all_edges():
    assert lat_buckets(np.array(EDGES)).tolist() == [lat_bucket(value) for value in EDGES]
