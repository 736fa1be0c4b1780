"""Questions of a report in SQL: over its tables in DuckDB, or over cells (sums by group)."""

import contextlib
import re
from importlib import resources

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from results.facts.schema import COLUMNS, schema
from results.questions.aggregate import aggregate
from results.questions.engines import (
    BASES,
    DuckEngine,
    kind_of,
    query,
    query_names,
    unordered,
)


def test_a_report_of_no_run_has_all_answers():
    with contextlib.closing(DuckEngine()) as engine:
        for name in COLUMNS:
            engine.register(name, ())
        found = aggregate(engine, baseline=None, label=None).tables
    rows = {name: table.num_rows for name, table in found.items() if table.num_rows}
    assert rows == {"digest_cells": 1, "totals": 1}
    assert set(query_names()) - found.keys() == {"slowest", "baseline_runs"}


@pytest.mark.parametrize("name", query_names())
def test_sums_of_questions_are_exact_and_rows_are_in_order(name):
    text = query(name)
    code = re.sub(r"--[^\n]*|'[^']*'", "", text)

    assert text.startswith("-- ")
    assert "/" not in code
    code = code.replace("DECIMAL(19, 0)", "")
    inexact = r"\b(?:DOUBLE|FLOAT|DECIMAL|AVG|STDDEV|LOG|POW|ROUND)\b"
    assert not re.search(inexact, code, re.IGNORECASE)
    assert not re.search(r"\b\d+\.\d", code)
    assert ("ORDER BY" in code.rsplit("FROM", 1)[1]) == (kind_of(name) != "cells")
    assert ";" not in code


@pytest.mark.parametrize("name", query_names())
def test_a_question_reads_tables_or_their_aggregates(name):
    code = re.sub(r"--[^\n]*|'[^']*'", "", query(name))
    read = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", code))
    own = set(re.findall(r"(\w+) AS \(", code))
    kinds = {kind_of(other) if other in query_names() and other not in COLUMNS else "table"
             for other in read - own}  # fmt: skip
    if kind_of(name) == "of cells":
        assert kinds <= {"cells", "question", "of cells"}
    else:
        assert kinds <= {"table", "base"}


def test_the_bases_come_first_and_all_files_are_queries():
    names = {item.name for item in (resources.files("results.questions") / "sql").iterdir()}

    assert query_names()[: len(BASES)] == list(BASES)
    assert {f"{name}.sql" for name in query_names()} == names


@pytest.fixture(name="engine")
def engine_fixture():
    with contextlib.closing(DuckEngine()) as engine:
        yield engine


def test_paths_with_quotes_are_no_sql(engine, tmp_path):
    odd = tmp_path / "it's; DROP TABLE x --.parquet"
    pq.write_table(schema("traits").empty_table(), odd)
    engine.register("traits", [odd])

    assert engine.sql("SELECT * FROM traits").num_rows == 0


def test_whole_numbers_come_as_int64(engine):
    found = engine.sql("SELECT CAST(1 AS TINYINT) AS a, SUM(x) AS b FROM (SELECT 1 AS x)")

    assert found.schema.field("a").type == pa.int64()


def register_run(engine, **tables):
    """Build one run "r" without results; rows of unknown runs belong to no population."""
    tables["runs"] = [{"workload": "w", "nemeses": "", "bugs": "", "setting": "s"}]
    for name in ("verdicts", "unavailability", *tables):
        rows = [{"run": "r", **row} for row in tables.get(name, ())]
        engine.take(name, pa.Table.from_pylist(rows, schema(name)))
    engine.keep("judged", unordered("judged")[0])


def test_percentiles_are_nearest_ranks_at_their_edges(engine):
    ops = [
        {"f": f, "type": "ok", "lat_bucket": bucket, "n": n, "phase": "", "active": ""}
        for f, bucket, n in (("two", 3, 1), ("two", 9, 1), ("many", 1, 999), ("many", 2, 1))
    ]
    register_run(engine, ops=ops)
    for name in ("latency_cells", "percentiles"):
        engine.keep(name, query(name))
    many, two = engine.sql(query("latency_by_f")).to_pylist()

    assert [two[name] for name in ("p50_ns", "p95_ns", "p999_ns", "max_ns")] == [3, 9, 9, 9]
    assert [many[name] for name in ("p50_ns", "p99_ns", "p999_ns", "max_ns")] == [1, 1, 1, 2]


def test_a_zero_bite_is_none(engine):
    told = {"nemesis": "kill", "hit": True, "healed": True}
    faults = [{"fault": str(bite), "bite": bite, **told} for bite in (0, None, 7)]
    register_run(engine, faults=faults)
    found = engine.sql(query("faults")).to_pylist()[0]

    assert (found["faults"], found["hit"], found["bit"]) == (3, 3, 1)
