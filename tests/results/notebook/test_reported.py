"""Results of reports, opened as tables in which each repeated result counts once."""

import datetime as dt
import random

import duckdb
import pyarrow as pa
import pytest

import results
from results.judging.result_lake import RESULT_TABLES, ResultLake, result_schema
from results.lake.log.lake import Lake
from results.lake.tables.schema import schemas
from results.lake.transfer.folders import writer_to
from results.lake.transfer.ingest import ingest
from results.report.report import report
from tests.results.report.test_verb import add_quick
from tests.support.spark_session import spark_test

pytestmark = pytest.mark.lake

DAY = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


@pytest.fixture
def lake(tmp_path):
    store = tmp_path / "store"
    for seed in (1, 2, 3):
        add_quick(store, "reg", f"r{seed}", seed=seed, label="v1" if seed < 3 else "v2")
    made = Lake.open(str(tmp_path / "lake"), create=True)
    ingest(store, made, writer_to(made))
    return made


def rows(table, **options):
    return sorted(table.to_table(**options).to_pylist(), key=repr)


def batches_of(lake):
    table = lake.dataset("runs").to_table(["run", "batch", "target", "label", "day"])
    return {row["run"]: row for row in table.to_pylist()}


def put(lake, found, at, *, batch=None):
    """Append results as a report does.

    Each result is (run, checker or `None` for facts, id, mark, text).
    """
    known = batches_of(lake)
    there = ResultLake.beside(lake.place.uri, lake.place.options, create=True)
    tables = {name: [] for name in RESULT_TABLES}
    for run in sorted({run for run, *_ in found}):
        own = [one for one in found if one[0] == run]
        head = {name: known[run][name] for name in ("target", "label", "day", "run")}
        tables["runs"].append(
            {
                **head, "run_batch": batch or known[run]["batch"],
                "judged_at": DAY + dt.timedelta(days=at),
                "results": [one[2] for one in own], "marks": [one[3] for one in own],
            }
        )  # fmt: skip
        for _, checker, result_id, _, word in own:
            table = "elections" if checker is None else "verdicts"
            more = {"node": word} if checker is None else {"checker": checker, "reason": word}
            tables[table].append({**head, **more, "result_id": result_id})
    there.append(
        {
            name: pa.Table.from_pylist(own, result_schema(name))
            for name, own in tables.items()
            if own
        }
    )


def test_a_lake_without_reports_has_none_of_their_tables(lake):
    assert results.open(lake.place.uri).tables == tuple(schemas())


def test_the_tables_of_a_report_are_there(lake, tmp_path):
    report(lake.place.uri, output=tmp_path / "out", executor="inline")
    opened = results.open(lake.place.uri)
    names = {f"report.{name}" for name in RESULT_TABLES if name != "runs"}

    assert {name for name in opened.tables if name.startswith("report.")} == names
    verdicts = opened.table("report.verdicts").pandas(["run", "checker", "verdict"])
    assert set(verdicts["verdict"]) == {"valid", "unknown"}
    assert set(verdicts["run"]) == set(batches_of(lake))
    only = opened.only(label="v2").table("report.ops").arrow().to_table(["label"])
    assert set(only["label"].to_pylist()) == {"v2"}
    con = opened.duckdb()
    joined = con.sql('SELECT count(DISTINCT seed) FROM "report.ops" JOIN runs USING (run)')
    assert joined.fetchall() == [(3,)]


def test_the_settled_then_the_newest_result_counts(lake):
    first, second, third = sorted(batches_of(lake))
    put(lake, [(first, "a", "a1", "", "old"), (first, "b", "b1", "limited", "short")], 1)
    put(lake, [(first, "a", "a2", "", "new"), (first, "b", "b2", "", "settled")], 2)
    put(lake, [(first, "b", "b3", "limited", "again"), (first, None, "f1", "", "m1")], 3)
    put(lake, [(first, None, "f1", "", "m2"), (second, None, "f1", "", "m3")], 4)
    put(lake, [(third, "a", "a2", "", "of a run that is gone")], 5, batch="another")
    opened = results.open(lake.place.uri)

    verdicts, elections = (
        opened.table(f"report.{name}").arrow() for name in ("verdicts", "elections")
    )
    assert [row["reason"] for row in rows(verdicts)] == ["new", "settled"]
    assert sorted(row["node"] for row in rows(elections)) == ["m2", "m3"]
    assert verdicts.count_rows() == 2
    own = opened.only(runs=second).table("report.elections")
    assert [row["node"] for row in rows(own.arrow())] == ["m3"]
    assert own.duckdb(duckdb.connect()).aggregate("count(*)").fetchall() == [(1,)]


def test_every_range_of_keys_counts(lake):
    run, *_ = batches_of(lake)
    put(lake, [(run, "a", "a1.0", "", "old"), (run, "a", "a1.1", "", "second")], 1)
    put(lake, [(run, "a", "a2.0", "", "first")], 2)

    found = results.open(lake.place.uri).table("report.verdicts").arrow()

    assert [row["reason"] for row in rows(found)] == ["first", "second"]


def random_results(lake, seed):
    """Draw appends in which the results of two checkers and the facts are repeated."""
    draw = random.Random(seed)
    told = []
    for at in range(draw.randrange(1, 6)):
        found = [
            (run, checker, f"{checker or 'f'}{draw.randrange(2)}", draw.choice(("", "x")), f"w{at}")
            for run in batches_of(lake)
            for checker in ("a", "b", None)
            if draw.random() < 0.6
        ]
        if found:
            put(lake, found, at)
            told += [(at, *one) for one in found]
    return told


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_each_counts(lake, seed):
    told = random_results(lake, seed)
    best = {}
    for at, run, checker, _, mark, word in told:
        here = (mark == "", at)
        best[run, checker] = max(best.get((run, checker), ((False, -1), "")), (here, word))
    opened = results.open(lake.place.uri)
    found = {
        (row["run"], row.get("checker")): row.get("reason") or row.get("node")
        for name in ("verdicts", "elections")
        for row in rows(opened.table(f"report.{name}").arrow())
    }
    assert found == {key: word for key, (_, word) in best.items()}


@spark_test
@pytest.mark.xdist_group("spark")
def test_spark_reads_the_same(lake):
    from results.spark.session import get_spark

    random_results(lake, 3)
    opened = results.open(lake.place.uri)
    key = min(batches_of(lake))
    session = get_spark("local[2]")
    for runs in (opened, opened.only(runs=key)):
        for name in ("report.verdicts", "report.elections", "report.infos"):
            table = runs.table(name)
            plain = [row.asDict(recursive=True) for row in table.spark(session).collect()]
            names = [name for name in table.schema.names if name != "batch"]
            assert sorted(repr([row[name] for name in names]) for row in plain) == sorted(
                repr([row[name] for name in names]) for row in rows(table.arrow())
            )
