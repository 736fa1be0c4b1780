"""Answers about the parts of a store add up to the answer about the whole, for every split."""

import contextlib
import random
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from results.facts.schema import COLUMNS
from results.questions.aggregate import aggregate
from results.questions.engines import (
    BASES,
    OF_CELLS_FIRST,
    DuckEngine,
    Extent,
    kind_of,
    query,
    query_names,
)
from results.questions.partial_answers import ADDED, LISTED, Whole, part_of

EXTENTS = (Extent(), Extent(3), Extent(3, compared=True))


@pytest.fixture(scope="module")
def tables(reported, store):
    folder = store / ".report" / "tables"
    return {name: pq.read_table(folder / f"{name}.parquet") for name in COLUMNS}


class Told:
    """An engine with given answers."""

    name = "told"

    def __init__(self, answers):
        self.answers = answers

    def answer(self, name, extent):
        return self.answers.get(name)


def of_parts(tables, folder, parts, extent):
    runs = tables["runs"]["run"].to_pylist()
    mine = [[] for _ in range(parts)]
    for run in runs:
        random.Random(f"{run} {parts}").choice(mine).append(run)
    with contextlib.closing(Whole(folder)) as whole:
        for number, own in enumerate(mine):
            with contextlib.closing(DuckEngine()) as engine:
                for name, table in tables.items():
                    engine.take(name, table.filter(pc.is_in(table["run"], pc.cast(own, "string"))))
                for name, rows in part_of(engine, extent):
                    half = rows.num_rows // 2
                    whole.add(number, name, rows.slice(0, half))
                    whole.add(number, name, rows.slice(half))
        return dict(whole.answers(extent))


def of_one(tables, extent):
    """Return the answers of one engine that has all runs."""
    with contextlib.closing(DuckEngine()) as engine:
        for name, table in tables.items():
            engine.take(name, table)
        found = {}
        for name in extent.names():
            if kind_of(name) != "of cells":
                found[name] = engine.answer(name, extent)
        return {name: table for name, table in found.items() if table is not None}


@pytest.mark.slow
@pytest.mark.parametrize("extent", EXTENTS, ids=str)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_answers_of_parts_add_up_to_those_of_the_whole(tables, tmp_path, parts, extent):
    mine, theirs = of_parts(tables, tmp_path, parts, extent), of_one(tables, extent)
    assert mine.keys() == theirs.keys()
    for name, table in theirs.items():
        assert mine[name].schema.equals(table.schema), name
        assert mine[name].to_pylist() == table.to_pylist(), name


@pytest.mark.slow
def test_a_report_of_parts_says_the_same(tables, tmp_path, reported):
    _, whole, _ = reported
    found = aggregate(
        Told(of_parts(tables, tmp_path, 3, Extent(compared=True))), baseline="old", label="new"
    )
    assert found.tables.keys() == whole.tables.keys()
    for name, table in whole.tables.items():
        expected = table
        if name == "costs":  # parts have no data about the sizes of files
            nothing = pa.nulls(len(table), pa.int64())
            for column in ("bytes", "run_bytes"):
                at = table.column_names.index(column)
                expected = expected.set_column(at, column, nothing)
        assert found.tables[name].equals(expected), name


def test_questions_about_facts_are_summed_or_listed():
    facts = {*COLUMNS} - {"runs", "traits", "verdicts"}
    for name in query_names():
        if name in BASES or kind_of(name) == "of cells":
            continue
        reads = {*re.findall(r"\b(?:FROM|JOIN) (\w+)", query(name))}
        assert bool(reads & {*facts, "verdicts", "slowest"}) == (name in {*ADDED, *LISTED}), name
    assert not {*OF_CELLS_FIRST} & {*ADDED, *LISTED}


@pytest.mark.parametrize("name", ADDED)
def test_rows_that_agree_in_their_keys_are_one(tables, name):
    found = of_one(tables, Extent())[name]
    keys = [tuple(row.values())[: ADDED[name].keys] for row in found.to_pylist()]
    assert len({*keys}) == len(keys) > 1
    assert {*ADDED[name].least, *ADDED[name].greatest} <= {*found.column_names}
