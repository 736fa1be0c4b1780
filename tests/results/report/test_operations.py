"""Operations as columns: a history and its buckets give the same facts, and the same refusals."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.ops import HARNESS, NEMESIS, History, Op, OpType
from harness.store.keyed import read_buckets, write_buckets
from harness.store.parquet import write_table
from results.facts import extraction as facts
from results.facts import operations
from results.facts.operations import counted, of_buckets, of_history
from results.judging.problems import Problems, scan_run
from tests.results.judging.stores import put_run

KINDS = ("read", "write", "cas", "get")
ERRORS = (None, "TIMED_OUT: no answer", "NOT_THE_LEADER", "TIMED_OUT", ": odd")
VALUES = ({}, {"result": "mismatch"}, {"value": 3}, None, [1, {"result": "no"}], ["r", 1, 2])


def chaotic(seed, *, lines=400):
    """A keyed history with everything in it: faults that overlap, phases, losses, silence."""
    rng = random.Random(seed)
    ops, busy, fresh, now, faults = [], {}, 0, 0, []

    def line(process, kind, f, value, **more):
        ops.append(Op(len(ops) * 3, now, process, kind, f, value, **more))

    while len(ops) < lines:
        now += rng.choice((0, 1, 10**7, 3 * 10**8, 2 * 10**9))
        what = rng.random()
        if what < 0.04:
            line(
                HARNESS, OpType.INFO, "phase", {"phase": rng.choice(("chaos", "final", "warm-up"))}
            )
        elif what < 0.07:
            line(HARNESS, OpType.INFO, "leader", {"node": "n1", "term": len(ops)})
        elif what < 0.12:
            faults.append((rng.choice(("kill", "pause")), f"f{len(ops)}"))
            targets = rng.choice((["n1"], ["n2", "n1"], []))
            about = {"action": "inject", "fault": faults[-1][1], "targets": targets}
            line(NEMESIS, OpType.INFO, faults[-1][0], about)
        elif what < 0.16 and faults:
            name, fault = faults.pop(rng.randrange(len(faults)))
            about = {"action": "heal", "fault": fault, "bite": {"count": rng.randrange(3)}}
            line(NEMESIS, OpType.INFO, name, about)
        elif what < 0.6 or not busy:
            if len(busy) < 6:
                fresh += 1
                busy[fresh] = (rng.choice(KINDS), rng.choice("abcde"))
                line(fresh, OpType.INVOKE, busy[fresh][0], [busy[fresh][1], {}])
        else:
            process = rng.choice([*busy])
            f, key = busy.pop(process)
            kind = rng.choice((OpType.OK, OpType.OK, OpType.FAIL, OpType.INFO))
            more = {"error": rng.choice(ERRORS), "node": rng.choice((None, "n1", "n2"))}
            line(process, kind, f, [key, rng.choice(VALUES)], **more)
            if kind is not OpType.INFO and rng.random() < 0.5 and len(busy) < 6:
                busy[process] = (rng.choice(KINDS), rng.choice("abcde"))
                line(process, OpType.INVOKE, busy[process][0], [busy[process][1], {}])
    return History(ops)


def rows_of(tables):
    return {name: table.to_pylist() for name, table in tables.items()}


@pytest.mark.parametrize("seed", range(12))
def test_buckets_give_the_facts_of_their_history(tmp_path, seed):
    history = chaotic(seed)
    folder = put_run(tmp_path, "n", "r", history, buckets=3, nemeses=("kill",))
    info = scan_run(folder, "n", "r", Problems())
    expected = rows_of(facts.extract(info, history))

    assert rows_of(facts.extract_buckets(info, folder / "history")) == expected
    assert expected["ops"]
    assert expected["recoveries"] or seed
    total = {name: sum(row["n"] for row in expected[name]) for name in ("ops", "infos")}
    assert total["ops"] == len(history.pairs)
    assert total["infos"] >= sum(pair.type is OpType.INFO for pair in history.pairs)


def test_there_is_no_digest_where_none_was_recorded(tmp_path):
    folder = put_run(tmp_path, "n", "r", chaotic(1), buckets=2, finished=False)
    info = scan_run(folder, "n", "r", Problems())
    (run,) = facts.extract_buckets(info, folder / "history")["runs"].to_pylist()

    assert (run["digest"], run["recorded"], run["lines"]) == (None, None, 400)


def keyed(*lines):
    """A small history of (process, type, key)."""
    return [
        Op(n, n * 10, process, OpType(kind), "write", [key, {"value": n}])
        for n, (process, kind, key) in enumerate(lines)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [(1, "invoke", "a"), (1, "invoke", "b")],
        [(1, "invoke", "a"), (1, "info", "a"), (1, "invoke", "b"), (1, "ok", "b")],
        [(1, "ok", "a")],
        [(2, "invoke", "a"), (1, "ok", "a")],
        [(1, "invoke", "a"), (1, "ok", "a"), (1, "fail", "a")],
    ],
)
def test_lines_that_no_clients_can_have_made_are_refused_as_a_history_refuses_them(tmp_path, lines):
    """Each key by itself may look fine; a process is busy, or retired, in all of them."""
    ops = keyed(*lines)
    with pytest.raises(HistoryError):
        History(ops)
    sealed(tmp_path, ops)
    with pytest.raises(HistoryError, match="process 1"):
        of_buckets(tmp_path)
    with pytest.raises(HistoryError):
        read_buckets(tmp_path)


def sealed(folder, ops):
    """One bucket of any lines at all, sorted and under a footer that tells the truth."""
    import pyarrow as pa

    from harness.store.footer import BY_KEY, Footer
    from harness.store.keyed import columns_digest
    from harness.store.parquet import schema_of

    rows = [
        {
            "index": op.index,
            "time": op.time,
            "process": op.process,
            "type": op.type.value,
            "f": op.f,
            "value": msgspec.json.encode(op.value[1]).decode(),
            "attempts": [],
            "key": msgspec.json.encode(op.value[0]).decode(),
        }
        for op in sorted(ops, key=lambda op: (op.value[0], op.index))
    ]
    table = pa.Table.from_pylist(rows, schema_of())
    footer = Footer(digest=columns_digest(table), n_ops=len(rows), order=BY_KEY)
    folder.mkdir(exist_ok=True)
    write_table(folder / "bucket-00.parquet", table, footer)


def test_an_index_counts_once(tmp_path):
    ops = keyed((1, "invoke", "a"), (2, "invoke", "b"))
    sealed(tmp_path, [ops[0], msgspec.structs.replace(ops[1], index=0)])
    with pytest.raises(HistoryError, match="an index twice"):
        of_buckets(tmp_path)


def test_an_empty_history(tmp_path):
    write_buckets(tmp_path / "history", History(()), buckets=2)
    found, notes = of_buckets(tmp_path / "history")
    assert (len(found), notes.lines, notes.end_ns) == (0, 0, 0)
    assert len(of_history(History(()))[0]) == 0


CELLS = st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 2**20), st.booleans()), max_size=30)


@given(rows=CELLS, repeat=st.integers(1, 6))
def test_rows_are_counted_also_where_one_number_cannot_hold_them(rows, repeat):
    """Six columns of 2^20 values do not fit into 62 bits."""
    wide = [(row[0], *[row[1]] * repeat, row[2]) for row in rows]
    columns = [np.array(column) for column in zip(*wide, strict=True)] or [np.zeros(0, np.int64)]
    found = dict(counted(*columns))

    expected = {}
    for row in wide:
        cell = tuple(map(int, row))
        expected[cell] = expected.get(cell, 0) + 1
    assert found == expected


def test_facts_of_buckets_need_no_history(tmp_path, monkeypatch):
    from results.judging import units
    from results.judging.pipeline import check_store

    put_run(tmp_path, "n", "r", chaotic(2), buckets=2)
    monkeypatch.setattr(units, "read_history", None)
    monkeypatch.setattr(operations.History, "pairs", None)
    checked = check_store(tmp_path, executor="inline", checkers=())
    assert (checked.problems, checked.results_new) == ((), 1)
