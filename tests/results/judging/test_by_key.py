"""Runs over independent keys are judged in ranges of keys, with the verdicts of a plain loop."""

import contextlib
import json
import random

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.case import imported_case
from harness.errors import HistoryError
from harness.independent import split
from harness.ops import NEMESIS, History, Op, OpType
from harness.verdict.judge import load_checker
from results.judging.budgets import Budget
from results.judging.by_key import judge_range
from results.judging.pipeline import check
from results.judging.report_runs import ReportRuns
from results.judging.staged_results import run_of
from results.lake.log.lake import Lake
from results.lake.log.row_files import stored_schema
from results.lake.log.run_streams import runs_in
from results.lake.tables import line_batches
from results.lake.tables.rebuild import histories_by_key, history_of
from results.lake.tables.row_tables import rows_of
from results.lake.tables.schema import schema
from results.lake.tables.sealed_run import About
from tests.results.judging.stores import put_keyed, tables_of
from tests.support import run_folders
from tests.support.spark_session import spark_test
from tests.tiers import examples

pytestmark = pytest.mark.lake

CASE = imported_case("cas-register", independent=True)
ALONE = imported_case("cas-register", independent=False)


def registers(seed, keys=6, ops=8, wrong=0.1):
    """Build concurrent operations on keys; some reads are impossible, others get no answer."""
    rng = random.Random(seed)
    lines, state = [], {}
    for key in range(keys):
        at = rng.randrange(50)
        for _ in range(rng.randrange(1, ops + 1)):
            f, value = rng.choice(("read", "write", "cas")), rng.randrange(3)
            new = rng.randrange(3)
            asked = {"read": None, "write": value, "cas": [value, new]}[f]
            held = state.get(key, 0)
            kind, answer = OpType.OK, asked
            if f == "read":
                answer = 7 if rng.random() < wrong else held
            elif f == "cas" and held != value:
                kind = OpType.FAIL
            if kind is OpType.OK and f != "read":
                state[key] = value if f == "write" else new
            if rng.random() < 0.1 and f != "read":
                kind = rng.choice((OpType.INFO, None))
            lines.append((at, key, OpType.INVOKE, f, asked))
            if kind is not None:
                lines.append((at + 1, key, kind, f, answer))
            at += rng.randrange(2, 9)
            if kind in {OpType.INFO, None}:
                break
    lines.sort(key=lambda line: line[0])
    return [
        Op(2 * n, at * 10, key, kind, f, [key, value])
        for n, (at, key, kind, f, value) in enumerate(lines)
    ]


def with_faults(ops):
    inject = {"action": "inject", "fault": "f1", "kind": "kill", "targets": ["n1"], "note": None}
    note = Op(5, 5, NEMESIS, OpType.INFO, "kill", inject)
    return History(sorted([*ops, note], key=lambda op: op.index))


def rows(history, monkeypatch=None, ops_in_a_range=20):
    """Return the rows of a run with this history, whose operations are split into small ranges."""
    if monkeypatch is not None:
        monkeypatch.setattr(line_batches, "KEY_RANGE_OPS", ops_in_a_range)
    return rows_of(history, About(name="n", id="r", case=CASE, record=None))


def plain_loop(history):
    """Map each key (JSON) to its verdict, by separate checks."""
    checker = load_checker("cas-register")
    found = {
        json.dumps(key): checker.check(part, ALONE, time_limit_s=60.0).verdict.value
        for key, part in split(history).items()
    }
    if {*found.values()} == {"unknown"}:
        return found
    return {key: {"unknown": "valid"}.get(verdict, verdict) for key, verdict in found.items()}


@contextlib.contextmanager
def source(uri):
    lake = Lake.open(str(uri))
    with contextlib.closing(ReportRuns(lake.snapshot(), budgets=(Budget(),))) as found:
        yield found


def judged(uri, executor="inline"):
    with source(uri) as found:
        checked = check(found, executor=executor, jobs=2)
        table = tables_of(checked)["verdicts"].to_pylist()
    assert len({row["key"] for row in table}) == len(table)
    return {row["key"]: row for row in table}, checked


def ingested(tmp_path, history, monkeypatch, ops_in_a_range=20):
    monkeypatch.setattr(line_batches, "KEY_RANGE_OPS", ops_in_a_range)
    put_keyed(tmp_path / "store", "n", "r", history)
    return run_folders.ingested(tmp_path / "store", tmp_path / "lake")


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20))
def test_rows_lie_by_key_and_make_the_history_again(seed, ops_in_a_range):
    history = with_faults(registers(seed))
    with pytest.MonkeyPatch.context() as monkeypatch:
        tables = rows(history, monkeypatch, ops_in_a_range)
    table = tables["operations"]
    (run,) = tables["runs"].to_pylist()
    keys, ranges = table["key"].to_pylist(), table["key_range"].to_pylist()

    assert keys == sorted(keys)
    assert ranges == sorted(ranges)
    assert len({*zip(keys, ranges, strict=True)}) == len({*keys})  # no key is in two ranges
    assert [ranges.count(number) for number in range(len(run["key_ranges"]))] == run["key_ranges"]
    assert history_of(tables, digest=history.digest()) == history
    alone = {json.dumps(key): part for key, part in split(history).items()}
    assert {key: History(ops) for key, ops in histories_by_key(tables)} == alone


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6))
def test_verdicts_are_those_of_a_plain_loop(seed):
    history = with_faults(registers(seed, wrong=0.3))
    with pytest.MonkeyPatch.context() as monkeypatch:
        tables = rows(history, monkeypatch, 10**6)
    run = run_of({**tables["runs"].to_pylist()[0], "batch": "b"})
    found = judge_range("cas-register", run, 0, tables, Budget())

    assert {row.key: row.verdict for row in found} == plain_loop(history)


def test_a_run_is_judged_in_ranges_and_an_invalid_key_is_explained(tmp_path, monkeypatch):
    ops = [op for op in registers(4, keys=12, wrong=0.0) if op.value[0] != 3]
    bad = [
        Op(1001, 9000, 3, OpType.INVOKE, "read", [3, None]),
        Op(1002, 9010, 3, OpType.OK, "read", [3, 7]),
    ]
    history = with_faults([*ops, *bad])
    uri = ingested(tmp_path, history, monkeypatch)
    found, checked = judged(uri)

    assert {key: row["verdict"] for key, row in found.items()} == plain_loop(history)
    assert [key for key, row in found.items() if row["verdict"] == "invalid"] == ["3"]
    assert "read 7 by process 3 (op 1001)" in found["3"]["reason"]
    assert json.loads(found["3"]["counterexample"])["operations"][0] == 1001
    assert "killed n1" in found["3"]["counterexample"]  # the explanation includes the nemesis
    assert checked.results_new > 3  # results of several ranges, and the facts
    assert judged(uri)[1].results_new == 0


def test_a_unit_reads_no_other_range(tmp_path, monkeypatch):
    monkeypatch.setattr("results.lake.log.parquet_encoder.KEYED_GROUP_ROWS", 8)
    uri = ingested(tmp_path, History(registers(2, keys=20)), monkeypatch)
    with source(uri) as lake:
        units = [unit for unit in lake.plan().units if unit.key_range is not None]
        assert sorted(unit.key_range for unit in units) == [*range(len(units))]
        place = lake.place
    (path,) = (uri / "operations").rglob("*.parquet")
    groups = pq.ParquetFile(path).metadata.num_row_groups
    assert groups >= 3
    unit = units[0]
    plans = {name: stored_schema(schema(name)) for name in unit.files}
    ((_, own),) = runs_in(place, plans, unit.files, unit.runs, key_range=unit.key_range)
    assert {*own["operations"]["key_range"].to_pylist()} == {unit.key_range}


def test_an_operation_that_is_gone_is_noticed():
    tables = rows(History(registers(1)))
    run = run_of({**tables["runs"].to_pylist()[0], "batch": "b"})
    less = {**tables, "operations": tables["operations"].slice(1)}
    with pytest.raises(HistoryError, match="were appended"):
        judge_range("cas-register", run, 0, less, Budget())


def test_answers_that_changed_keys_are_caught(tmp_path, monkeypatch):
    ops = []
    for key in (1, 2):
        for f, asked, answer in (("write", key, key), ("read", None, key)):
            ops.append(Op(len(ops), 0, key, OpType.INVOKE, f, [key, asked]))
            ops.append(Op(len(ops), 0, key, OpType.OK, f, [key, answer]))
    uri = ingested(tmp_path / "sound", History(ops), monkeypatch)
    assert {row["verdict"] for row in judged(uri)[0].values()} == {"valid"}
    for at, answer in ((3, [1, 2]), (7, [2, 1])):
        ops[at] = msgspec.structs.replace(ops[at], value=answer)
    uri = ingested(tmp_path / "mutated", History(ops), monkeypatch)
    assert {row["verdict"] for row in judged(uri)[0].values()} == {"invalid"}


def test_a_key_of_which_nothing_was_seen_spoils_no_other(tmp_path, monkeypatch):
    ops = [
        Op(0, 0, 1, OpType.INVOKE, "write", [1, 5]),
        Op(1, 1, 2, OpType.INVOKE, "read", [2, None]),
        Op(2, 2, 2, OpType.OK, "read", [2, 0]),
        Op(3, 3, 1, OpType.OK, "write", [1, 5]),
    ]
    found, _ = judged(ingested(tmp_path / "some", History(ops), monkeypatch))
    assert {row["verdict"] for row in found.values()} == {"valid"}
    blind = [op for op in ops if op.process == 1]
    found, _ = judged(ingested(tmp_path / "none", History(blind), monkeypatch))
    assert {row["verdict"] for row in found.values()} == {"unknown"}


@spark_test
def test_pool_and_spark_judge_as_one_process_does(tmp_path, monkeypatch):
    from results.judging.result_lake import ResultLake
    from results.report.report import report

    history = with_faults(registers(9, keys=40, wrong=0.02))
    uri = ingested(tmp_path, history, monkeypatch)
    expected, _ = judged(uri)
    assert {key: row["verdict"] for key, row in expected.items()} == plain_loop(history)

    def told():
        results = ResultLake.beside(str(uri), {})
        own = results.dataset("verdicts").to_table(["key", "verdict", "reason"]).to_pylist()
        return sorted(map(repr, own))

    first = told()
    for asked in ({"executor": "pool", "jobs": 2}, {"spark_master": "local[2]"}):
        for folder in (uri / "results").iterdir():
            for path in sorted(folder.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            folder.rmdir()
        (uri / "results").rmdir()
        report(str(uri), output=tmp_path / "page", **asked)
        assert told() == first
