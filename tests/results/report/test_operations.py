"""A history and the rows of a lake give the same facts about operations."""

import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import imported_case
from harness.ops import HARNESS, NEMESIS, History, Op, OpType
from results.facts.extraction import extract, extract_rows
from results.facts.operations import counted
from results.judging.by_key import notes_of
from results.lake.tables.row_tables import tables_of
from results.lake.tables.sealed_run import About, source_of

KINDS = ("read", "write", "cas", "get")
ERRORS = (None, "TIMED_OUT: no answer", "NOT_THE_LEADER", "TIMED_OUT", ": odd")
VALUES = ({}, {"result": "mismatch"}, {"value": 3}, None, ["r", 1, 2])


def chaotic(seed, *, lines=400):
    """Build a keyed history with overlapping faults, phases, lost answers and silence."""
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


def told(tables):
    return {name: table.to_pylist() for name, table in tables.items()}


@pytest.mark.lake
@pytest.mark.parametrize("seed", range(12))
def test_rows_of_a_lake_give_the_facts_of_their_history(seed):
    history = chaotic(seed)
    case = msgspec.structs.replace(
        imported_case("cas-register", independent=True), nemeses=("kill",)
    )
    run = SimpleNamespace(name="n", run="r", case=case)
    about = About(name="n", id="r", case=case, record=None)
    rows = tables_of([source_of(history, about)])
    (row,) = rows["runs"].to_pylist()
    expected = told(extract(run, history))

    found = extract_rows(
        run, rows["operations"], notes_of(rows), lines=row["lines"], end_ns=row["length_ns"]
    )
    assert told(found) == expected
    assert expected["ops"]
    assert expected["recoveries"] or seed
    total = {name: sum(row["n"] for row in expected[name]) for name in ("ops", "infos")}
    assert total["ops"] == len(history.pairs)
    assert total["infos"] >= sum(pair.type is OpType.INFO for pair in history.pairs)


CELLS = st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 2**20), st.booleans()), max_size=30)


@given(rows=CELLS, repeat=st.integers(1, 6))
def test_rows_are_counted_also_where_one_number_cannot_hold_them(rows, repeat):
    wide = [(row[0], *[row[1]] * repeat, row[2]) for row in rows]
    columns = [np.array(column) for column in zip(*wide, strict=True)] or [np.zeros(0, np.int64)]
    found = dict(counted(*columns))

    expected = {}
    for row in wide:
        cell = tuple(map(int, row))
        expected[cell] = expected.get(cell, 0) + 1
    assert found == expected
