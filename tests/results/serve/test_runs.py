"""The SQL table of runs filters, sorts and counts like plain Python."""

import datetime as dt
from collections import Counter, OrderedDict, defaultdict

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.lake.tables.schema import schema
from results.serve.groups import failures_of, first_values, matrix_of, totals_of, trends_of
from results.serve.query import LISTS, RANGES, SORTS, Query, Where, column_of, order_of
from results.serve.run_rows import COLUMNS, FINISHED, NONE, OUTCOMES, create_runs, selected
from results.serve.runs import Reading
from tests.tiers import examples

EVERY = Where("true", ())
NAMES = st.none() | st.sampled_from(["a", "b", "A+b", "é"])
LISTED = st.lists(st.sampled_from(["kill", "cut", "Cut"]), max_size=3, unique=True).map(
    lambda names: "+".join(sorted(names))
)
NUMBER = st.none() | st.integers(-3, 12) | st.just(2**62 + 1)
STARTED = st.none() | st.sampled_from(
    [
        dt.datetime(2026, 11, day, hour, 0, 0, micros, dt.UTC)
        for day, hour, micros in ((20, 10, 0), (20, 11, 500), (21, 10, 0))
    ]
)


def table_of(rows):
    """Build a reader of these rows of a lake."""
    layout = pa.schema([schema("runs").field(name) for name in COLUMNS])
    connection = duckdb.connect()
    connection.register("given", pa.Table.from_pylist(rows, layout))
    connection.execute(create_runs(selected("given", of_store=False)))
    return Reading(connection, 1, (), OrderedDict())


@st.composite
def tables(draw):
    """Draw rows, the newest first as in a list, and a reader of their table."""
    given_rows = [
        {
            "run": f"{name}/r{number}", "name": name, "id": f"r{number}", "state": state,
            "verdict": draw(st.sampled_from(FINISHED)) if state == "finished" else None,
            "started": draw(STARTED), "label": draw(NAMES), "target": draw(NAMES),
            "workload": draw(NAMES), "nemeses": draw(LISTED), "bugs": draw(LISTED),
            "seed": draw(NUMBER), "lines": draw(NUMBER), "ops": 4, "ok": 2, "fail": 1, "info": 1,
            "refused": 0, "length_ns": draw(st.sampled_from([0, 10**9])), "elections": 0,
            "wall_s": draw(st.none() | st.floats(0, 3)), "interrupted": draw(st.booleans()),
            "signature": draw(NAMES), "setting": draw(st.sampled_from(["s", "t"])),
            "failure_checker": draw(NAMES),
            "failure_reason": draw(st.sampled_from([None, "Why ß"])),
            "versions": draw(st.none() | st.sampled_from(['{"code":"aa","harness":"1"}'])),
        }
        for number in range(draw(st.integers(0, 9)))
        for name in [draw(st.sampled_from(["n", "m"]))]
        for state in [draw(st.sampled_from(["finished", "finished", "torn", "foreign"]))]
    ]  # fmt: skip
    given_rows.sort(
        key=lambda row: (row["started"] or dt.datetime.min.replace(tzinfo=dt.UTC), row["run"]),
        reverse=True,
    )
    reading = table_of(given_rows)
    rows = [reading.run(row["run"]) for row in given_rows]
    for row, one in zip(rows, given_rows, strict=True):
        states = {"finished": one["verdict"], "torn": "unfinished", "foreign": "broken"}
        assert row.outcome == states[one["state"]]
        assert row.started == ("" if one["started"] is None else one["started"].isoformat())
        assert row.versions == ("code aa harness 1" if one["versions"] else "")
        assert (row.code, row.signature) == ("aa" * bool(one["versions"]), one["signature"] or "")
    return rows, reading


def text(row, name):
    """Convert a field into the text that filters compare."""
    if name == "day":
        return row.started[:10] or NONE
    value = getattr(row, column_of(name))
    return (",".join(value) if isinstance(value, tuple) else str(value or "")) or NONE


def passes(row, name, value):
    """Whether a run passes one filter."""
    if name == "q":
        fields = [getattr(row, f) for f in row.__struct_fields__]
        said = [str(x) for x in fields if isinstance(x, str)] + [*row.nemeses, *row.bugs]
        said += [] if row.seed is None else [str(row.seed)]
        said += ["interrupted"] * row.interrupted
        return all(any(word in one.lower() for one in said) for word in value.lower().split())
    if name in LISTS:
        have = getattr(row, LISTS[name])
        return not have if value == NONE else set(value.split(",")) <= set(have)
    if name in RANGES:
        low, _, high = value.partition("..") if ".." in value else (value, "", value)
        number = getattr(row, column_of(name))
        least, most = (float(one) if "." in one else int(one or 0) for one in (low, high))
        return number is not None and (not low or number >= least) and (not high or number <= most)
    return text(row, name) == value


FILTERS = st.one_of(
    st.tuples(st.sampled_from(["label", "target", "workload", "signature", "code", "setting"]),
              st.sampled_from(["a", "A+b", "aa", "s", NONE])),
    st.tuples(st.sampled_from(["nemesis", "bug"]),
              st.sampled_from(["kill", "kill,cut", "Cut", "x", NONE])),
    st.tuples(st.just("nemeses"), st.sampled_from(["cut,kill", "kill", NONE])),
    st.tuples(st.sampled_from(["seed", "ops", "wall_s"]),
              st.sampled_from(["1", "0..3", "2..", "..1", "..1.5", "9" * 19, str(2**62 + 1)])),
    st.tuples(st.just("q"),
              st.sampled_from(["cut", "N/R1", "why", "11-20", "rupt", "é kill", "12", "WHY SS ß"])),
    st.tuples(st.just("verdict"), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("day"), st.sampled_from(["2026-11-20", "..2026-11-20", NONE])),
)  # fmt: skip


def passes_day(row, value):
    day = row.started[:10]
    return (day or NONE) == value if ".." not in value else bool(day) and day <= value[2:]


@pytest.mark.slow
@given(made=tables(), filters=st.lists(FILTERS, max_size=3).map(dict), sort=st.sampled_from(SORTS),
       descending=st.booleans())  # fmt: skip
@settings(max_examples=examples(120), deadline=None)
def test_lists_are_filtered_and_sorted_as_rows_would_be(made, filters, sort, descending):
    rows, reading = made
    where = Query(filters).where()
    expected = [
        row
        for row in rows
        if all(
            passes_day(row, value) if name == "day" else passes(row, name, value)
            for name, value in filters.items()
        )
    ]
    assert reading.runs(where, order_of("-started"), limit=99) == expected

    def key(row):
        if sort == "verdict":
            return OUTCOMES.index(row.outcome)
        value = getattr(row, column_of(sort))
        return "+".join(value) if isinstance(value, tuple) else value

    there = [row for row in expected if key(row) not in {None, ""}]
    there.sort(key=key, reverse=descending)
    absent = [row for row in expected if key(row) in {None, ""}]
    in_order = reading.runs(where, order_of("-" * descending + sort), limit=99)
    assert in_order == [*there, *absent]
    assert (
        reading.runs(where, order_of(sort), limit=2, offset=1)
        == (reading.runs(where, order_of(sort), limit=99)[1:3])
    )


DIMENSION = st.sampled_from(["nemesis", "nemeses", "bug", "label", "day", "target", "code"])


def values(row, name):
    if name in LISTS:
        return dict.fromkeys(getattr(row, LISTS[name])) or [NONE]
    if name in LISTS.values():
        return ["+".join(getattr(row, name)) or NONE]
    return [text(row, name)]


@pytest.mark.slow
@given(made=tables(), down=DIMENSION, across=DIMENSION)
@settings(max_examples=examples(80), deadline=None)
def test_a_matrix_counts_rows(made, down, across):
    rows, reading = made
    cells = defaultdict(Counter)
    for row in rows:
        for up in values(row, down):
            for side in values(row, across):
                cells[up, side][row.outcome] += 1
    matrix = matrix_of(reading, EVERY, down, across)
    assert {
        (up, side): cell.counts for up, own in matrix.cells.items() for side, cell in own.items()
    } == cells
    for name, totals in ((down, matrix.row_totals), (across, matrix.column_totals)):
        expected = Counter(value for row in rows for value in values(row, name))
        assert {value: cell.total for value, cell in totals.items()} == expected


@pytest.mark.slow
@given(made=tables(), by=st.sampled_from(["label", "day", "code", "bugs"]))
@settings(max_examples=examples(80), deadline=None)
def test_failures_totals_and_trends_count_rows(made, by):
    rows, reading = made
    finished = [row for row in rows if row.outcome in FINISHED]
    groups = defaultdict(list)
    for row in finished:
        if row.outcome in {"unknown", "invalid"} and row.signature:
            groups[row.outcome, row.signature, row.target or None, "+".join(row.bugs)].append(row)
    found = failures_of(reading, EVERY)
    assert {
        (one["verdict"], one["signature"], one["target"], one["bugs"]): one["runs"] for one in found
    } == {key: len(own) for key, own in groups.items()}
    first = first_values(reading, EVERY, by)
    assert first == {
        key: values(min(own, key=lambda row: (row.started, row.key)), by)[0]
        for key, own in groups.items()
    }
    totals, _ = totals_of(reading, EVERY, by, Counter(first.values()))
    assert {one["value"]: one["runs"] for one in totals} == Counter(
        value for row in rows for value in values(row, by)
    )
    assert sum(one["new"] for one in totals) == len(groups)
    points, _ = trends_of(reading, EVERY, by)

    def kind(row):
        label = None if by == "label" else row.label or NONE
        return values(row, by)[0], row.setting, label, row.outcome

    counted = Counter()
    for point in points:
        for verdict in FINISHED:
            if point[verdict]:
                at = (point["value"], point["setting"], point["label"], verdict)
                counted[at] += point[verdict]
    assert counted == Counter(map(kind, finished))


def row(**columns):
    return {"run": "n/r@1", "name": "n", "id": "r", "state": "finished", **columns}


def test_a_run_is_found_by_its_key_alone():
    reading = table_of([row(run=f"{n}/{r}", name=n, id=r) for n in "ab" for r in "xy"])
    keys = ("a/x", "b/y", "a/z", "c/x", "x", "", "a/x/y", "a/x' OR 'x'='x")
    found = [reading.run(key) for key in keys]
    assert [one and one.key for one in found] == ["a/x", "b/y", *[None] * 6]


def test_long_texts_and_versions_that_are_no_json_are_shown_as_far_as_they_go():
    reading = table_of([row(signature="x" * 999, label="", versions="{")])
    found = reading.run("n/r@1")
    assert (len(found.signature), found.label, found.code) == (201, None, "")


@pytest.mark.parametrize(
    ("reason", "word", "found"), [("ÄB", "äb", 1), ("x", "y", 0), (None, "x", 0), ("%", "_", 0)]
)
def test_words_are_found_in_any_case(reason, word, found):
    reading = table_of([row(failure_reason=reason)])
    assert len(reading.runs(Query({"q": word}).where(), "key", limit=9)) == found
