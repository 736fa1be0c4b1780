"""Histories survive the conversion into rows, and rows mean what the documentation says."""

import datetime as dt

import msgspec
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.ops import HARNESS, NEMESIS, Attempt, CheckResult, History, Op, OpType, Verdict
from results.facts.operations import of_history
from results.lake.tables.rebuild import case_of, history_of, record_of
from results.lake.tables.row_tables import rows_of, tables_of
from results.lake.tables.schema import schemas
from results.lake.tables.sealed_run import source_of
from tests.results.lake.histories import about, histories


def rows_of_run(tables, key):
    return {name: table.filter(pc.equal(table["run"], key)) for name, table in tables.items()}


@given(st.lists(histories(), min_size=1, max_size=3))
def test_histories_are_equal_after_they_were_rows(some):
    sources = [source_of(h, about("n", f"r{n}")) for n, h in enumerate(some)]

    tables = tables_of(sources)

    assert {name: table.schema for name, table in tables.items()} == schemas()
    for source, history in zip(sources, some, strict=True):
        own = rows_of_run(tables, source.key)
        assert history_of(own, digest=history.digest()) == history
        assert len(own["runs"]) == 1


@given(histories())
def test_rows_do_not_depend_on_what_else_is_converted(history):
    other = source_of(History([Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "x"})]), about())
    source = source_of(history, about("n", "own"))

    alone = tables_of([source])
    among = tables_of([other, source, other])

    for name, table in rows_of_run(among, source.key).items():
        assert table.to_pylist() == alone[name].to_pylist()


CLIENTS = [
    Op(2, 10, 0, OpType.INVOKE, "create", {"name": "t0", "columns": ["a"], "more": None}),
    Op(3, 20, 1, OpType.INVOKE, "get", {"name": "t0"}),
    Op(
        5, 70, 0, OpType.OK, "create", {"result": "ok", "revision": 3}, None, "m1",
        (Attempt("m2", 10, 30, "TIMEOUT"), Attempt("m1", 40, 70, "ok")),
    ),
    Op(6, 80, 1, OpType.FAIL, "get", {"result": "not-found"}, "NOT_FOUND: t0", "m1"),
    Op(7, 90, 2, OpType.INVOKE, "delete", {"name": "t0"}),
]  # fmt: skip
NOTES = [
    Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "chaos"}),
    Op(1, 5, HARNESS, OpType.INFO, "leader", {"node": "m1", "term": 1}),
    Op(
        4, 15, NEMESIS, OpType.INFO, "kill",
        {"action": "inject", "fault": "kill-1", "kind": "kill", "targets": ["m1"], "note": "m1"},
    ),
    Op(
        8, 95, NEMESIS, OpType.INFO, "kill",
        {"action": "heal", "fault": "kill-1", "bite": {"count": 2, "unit": "processes"}},
    ),
    Op(9, 96, HARNESS, OpType.INFO, "usage", {"disk_bytes": {"m1": 7}, "written_bytes": {"m1": 9}}),
]  # fmt: skip


@pytest.fixture(name="tables", scope="module")
def tables_fixture():
    return rows_of(History(sorted(CLIENTS + NOTES, key=lambda op: op.index)), about(label="v1"))


def picked(table, *names):
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_operations_are_pairs_with_typed_values(tables):
    names = ("index", "lines", "type", "answered", "is_read", "invoke_ns", "latency_ns")
    assert picked(tables["operations"], *names) == [
        (2, 3, "ok", True, False, 10, 60),
        (3, 3, "fail", True, True, 20, 60),
        (7, None, "info", False, False, 90, None),
    ]
    values = ("asked_name", "asked_columns", "asked_rest", "answer_result", "answer_revision")
    assert picked(tables["operations"], *values) == [
        ("t0", ["a"], '{"more":null}', "ok", 3),
        ("t0", None, None, "not-found", None),
        ("t0", None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("kind", "answer", "answered"),
    [
        (OpType.OK, None, True),
        (OpType.FAIL, {"result": "exists"}, True),
        (OpType.FAIL, {"result": None}, True),
        (OpType.FAIL, ["k", {"result": [1]}], True),
        (OpType.FAIL, {"revision": 1}, False),
        (OpType.FAIL, None, False),
        (OpType.INFO, {"result": "exists"}, False),
    ],
)
def test_answered_agrees_with_facts_of_a_store(kind, answer, answered):
    history = History([Op(0, 0, 0, OpType.INVOKE, "f", ["k", 1]), Op(1, 1, 0, kind, "f", answer)])

    assert of_history(history)[0].answered.tolist() == [answered]
    assert rows_of(history, about())["operations"]["answered"].to_pylist() == [answered]


@pytest.mark.parametrize(
    ("table", "names", "expected"),
    [
        ("operations", "phase active", [("chaos", ""), ("chaos", "kill"), ("chaos", "kill")]),
        ("attempts", "index number node wait_ns left_ns",
         [(2, 0, "m2", 0, 40), (2, 1, "m1", 30, 0)]),
        ("faults", "fault kind targets start_ns end_ns bite",
         [("kill-1", "kill", ["m1"], 15, 95, 2)]),
        ("events", "index f", [(0, "phase"), (1, "leader"), (9, "usage")]),
        ("nodes", "node terms_led faults attempts attempts_ok disk_bytes",
         [("m1", 1, 1, 1, 1, 7), ("m2", 0, 0, 1, 0, None)]),
        ("runs", "target label lines ops ok fail info refused faults day",
         [("kudu", "v1", 10, 3, 1, 1, 1, 1, 1, dt.date(2026, 1, 2))]),
    ],
)  # fmt: skip
def test_rows_of_a_history(tables, table, names, expected):
    assert picked(tables[table], *names.split()) == expected


def test_case_and_record_come_back():
    history = History(CLIENTS)
    told = about(digest=history.digest(), label="v2", nemeses=("kill-leader",))
    record = msgspec.structs.replace(told.record, ops=len(history.pairs))
    told = msgspec.structs.replace(told, record=record)

    (run,) = rows_of(history, told)["runs"].to_pylist()

    assert (case_of(run), record_of(run)) == (told.case, record)


def test_findings_name_operations_of_violations():
    bad = CheckResult("crash", Verdict.INVALID, "m1 crashed", ("Why.",), (2, 5), {"rule": "r"})
    good = CheckResult("stats", Verdict.VALID, "fine")

    tables = tables_of([source_of(History(CLIENTS), about(), results=(bad, good))])

    assert picked(tables["verdicts"], "checker", "verdict", "rule") == [
        ("crash", "invalid", "r"), ("stats", "valid", None),
    ]  # fmt: skip
    assert picked(tables["findings"], "checker", "number", "index", "explanation") == [
        ("crash", 0, 2, ["Why."]), ("crash", 1, 5, []),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["operations", "attempts", "faults", "events"])
def test_a_lost_row_is_noticed(tables, name):
    digest = tables["runs"]["digest"][0].as_py()
    assert history_of(tables, digest=digest).digest() == digest
    with pytest.raises(HistoryError):
        history_of({**tables, name: tables[name].slice(1)}, digest=digest)


def test_equal_ids_of_other_histories_labels_or_days_are_other_runs():
    keys = set()
    for day in ("2026-01-02", "2026-01-03"):
        for told in (about(), about(label="v1"), about(target="other")):
            record = msgspec.structs.replace(told.record, started=f"{day}T01:02:03+00:00")
            told_then = msgspec.structs.replace(told, record=record)
            keys |= {source_of(History(ops), told_then).key for ops in (CLIENTS, NOTES)}

    assert len(keys) == 12
