"""Runs as columns, against plain Python over rows: filters, orders, groups and counts."""

from collections import Counter, defaultdict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.serve.groups import failures_of, matrix_of
from results.serve.over_time import totals_of, trends_of
from results.serve.query import LISTS, RANGES, SORTS, Query, column_of, matching, ordered
from results.serve.run_index import OUTCOMES, RunRow
from results.serve.run_table import NONE, Texts, table_of_rows
from tests.tiers import examples

NAMES = st.sampled_from(["a", "b", "A+b", "é", "(none)", ""])
LISTED = st.lists(st.sampled_from(["kill", "cut", "a,b", "Cut"]), max_size=3).map(tuple)
NUMBER = st.none() | st.integers(-3, 12) | st.just(2**62 + 1)
STARTED = st.sampled_from(
    ["", "2026-11-20T10:00:00+00:00", "2026-11-20T11:00:00+00:00", "2026-11-21T10:00:00+00:00"]
)


@st.composite
def tables(draw):
    """Rows in the order of an index, and the table of them."""
    rows = [
        RunRow(
            key=f"{name}/r{number}", name=name, run=f"r{number}",
            outcome=draw(st.sampled_from(OUTCOMES)), started=draw(STARTED),
            label=draw(st.none() | NAMES), target=draw(NAMES), workload=draw(NAMES),
            nemeses=draw(LISTED), bugs=draw(LISTED), seed=draw(NUMBER), ops=draw(NUMBER),
            wall_s=draw(st.none() | st.floats(0, 3)), interrupted=draw(st.booleans()),
            signature=draw(NAMES), checker=draw(NAMES), setting=draw(NAMES), code=draw(NAMES),
            reason=draw(st.sampled_from(["", "Why ß", "\ud800x"])),
        )
        for number in range(draw(st.integers(0, 9)))
        for name in [draw(st.sampled_from(["n", "m"]))]
    ]  # fmt: skip
    rows.sort(key=lambda row: (row.started, row.key), reverse=True)
    return rows, table_of_rows(rows)


def text(row, name):
    """A field as filters have it."""
    if name == "day":
        return row.started[:10] or NONE
    value = getattr(row, column_of(name))
    return (",".join(value) if isinstance(value, tuple) else str(value or "")) or NONE


def passes(row, name, value):
    """Whether a run passes one filter."""
    if name == "q":
        fields = [row.key, *(getattr(row, f) for f in row.__struct_fields__ if f != "key")]
        said = [str(x) for x in fields if isinstance(x, str)] + [*row.nemeses, *row.bugs]
        said += [] if row.seed is None else [str(row.seed)]
        said += ["interrupted"] * row.interrupted
        # Of a column that is searched in another one's place no word of these tests is part.
        return all(any(word in one.lower() for one in said) for word in value.lower().split())
    if name in LISTS:
        have = getattr(row, LISTS[name])
        return not have if value == NONE else value in have or set(value.split(",")) <= set(have)
    if name in RANGES:
        low, _, high = value.partition("..") if ".." in value else (value, "", value)
        number = getattr(row, name)
        least, most = (float(one) if "." in one else int(one or 0) for one in (low, high))
        return number is not None and (not low or number >= least) and (not high or number <= most)
    return text(row, name) == value


FILTERS = st.one_of(
    st.tuples(st.sampled_from(["label", "target", "workload", "signature", "code", "setting"]),
              NAMES.filter(bool)),
    st.tuples(st.sampled_from(["nemesis", "bug"]),
              st.sampled_from(["kill", "a,b", "kill,cut", "Cut", "x", NONE])),
    st.tuples(st.sampled_from(["seed", "ops", "wall_s"]),
              st.sampled_from(["1", "0..3", "2..", "..1", "..1.5", "9" * 19, str(2**62 + 1)])),
    st.tuples(st.just("q"),
              st.sampled_from(["cut", "N/R1", "why", "11-20", "rupt", "é kill", "12"])),
    st.tuples(st.just("verdict"), st.sampled_from(OUTCOMES)),
    st.tuples(st.just("day"), st.sampled_from(["2026-11-20", NONE])),
)  # fmt: skip


@given(made=tables(), filters=st.lists(FILTERS, max_size=3).map(dict), sort=st.sampled_from(SORTS),
       descending=st.booleans())  # fmt: skip
@settings(max_examples=examples(120), deadline=None)
def test_lists_are_filtered_and_sorted_as_rows_would_be(made, filters, sort, descending):
    rows, table = made
    found = matching(table, Query(filters))
    expected = [row for row in rows if all(passes(row, *item) for item in filters.items())]
    assert [table.row(int(place)) for place in found] == expected
    assert table.outcomes(found) == Counter(row.outcome for row in expected)

    def key(row):
        if sort == "verdict":
            return OUTCOMES.index(row.outcome)
        value = getattr(row, column_of(sort))
        return ",".join(value) if isinstance(value, tuple) else value

    there = [row for row in expected if key(row) not in {None, "", NONE}]
    there.sort(key=key, reverse=descending)
    in_order = ordered(table, found, "-" * descending + sort)
    absent = [row for row in expected if key(row) in {None, "", NONE}]
    assert [table.row(int(place)) for place in in_order] == [*there, *absent]


DIMENSION = st.sampled_from(["nemesis", "nemeses", "bug", "label", "day", "target", "code"])


def values(row, name):
    if name in LISTS:
        return dict.fromkeys(getattr(row, LISTS[name])) or [NONE]
    return [text(row, name)]


@given(made=tables(), down=DIMENSION, across=DIMENSION)
@settings(max_examples=examples(80), deadline=None)
def test_a_matrix_counts_rows(made, down, across):
    rows, table = made
    cells = defaultdict(Counter)
    for row in rows:
        for up in values(row, down):
            for side in values(row, across):
                cells[up, side][row.outcome] += 1
    matrix = matrix_of(table, table.every, down, across)
    assert {
        (up, side): cell.counts for up, own in matrix.cells.items() for side, cell in own.items()
    } == cells
    for name, totals in ((down, matrix.row_totals), (across, matrix.column_totals)):
        expected = Counter(value for row in rows for value in values(row, name))
        assert {value: cell.total for value, cell in totals.items()} == expected


@given(made=tables(), by=st.sampled_from(["label", "day", "code"]))
@settings(max_examples=examples(80), deadline=None)
def test_failures_totals_and_trends_count_rows(made, by):
    rows, table = made
    groups = defaultdict(list)
    for row in rows:
        if row.signature not in {"", NONE}:
            target = "" if row.target == NONE else row.target
            groups[row.outcome, row.signature, target, row.bugs].append(row)
    found = failures_of(table, table.every, by)
    first_of = {
        key: min(own, key=lambda row: (row.started, row.key)) for key, own in groups.items()
    }
    expected = {key: (len(groups[key]), first) for key, first in first_of.items()}
    assert {
        (one.outcome, one.signature, one.target, one.bugs): (one.runs, one.first, one.value)
        for one in found
    } == {key: (runs, first.key, text(first, by)) for key, (runs, first) in expected.items()}

    totals, _ = totals_of(table, table.every, by, found)
    assert {one.value: sum(one.counts.values()) for one in totals} == Counter(
        text(row, by) for row in rows
    )
    new = Counter(text(first, by) for _, first in expected.values())
    assert {one.value: one.new for one in totals} == {one.value: new[one.value] for one in totals}
    for total in totals:
        own = [row for row in rows if text(row, by) == total.value]
        assert total.settings == len({text(row, "setting") for row in own})

    points, _ = trends_of(table, table.every, by)

    def kind(row):
        label = "" if by == "label" else text(row, "label")
        return text(row, by), text(row, "setting"), label

    found = {
        (point.value, point.setting or NONE, point.label): len(own) for point, own in points
    }  # fmt: skip
    assert found == Counter(map(kind, rows))


def test_a_run_is_found_by_its_key_alone():
    rows = [RunRow(key=f"{n}/{r}", name=n, run=r, outcome="valid") for n in "ab" for r in "xy"]
    table = table_of_rows(rows)
    assert [table.find(key) for key in ("a/x", "b/y", "a/z", "c/x", "x", "", "a/x/y")] == [
        0, 3, None, None, None, None, None,
    ]  # fmt: skip


def test_a_record_from_elsewhere_may_say_any_number():
    row = RunRow(key="a/x", name="a", run="x", outcome="valid", ops=10**30, wall_s=1e300)
    table = table_of_rows([row])
    assert len(matching(table, Query({"ops": "1.."}))) == 0
    assert table.row(0) is row


def test_many_columns_do_not_overflow():
    """The number of combinations is beyond 64 bits, that of runs is not."""
    rows = [
        msgspec.structs.replace(
            RunRow(key=f"a/{n}", name="a", run=str(n), outcome="valid"),
            **dict.fromkeys(
                ("label", "target", "workload", "code", "setting", "signature"), f"v{n}"
            ),
        )
        for n in range(3_000)
    ]
    table = table_of_rows(rows)
    names = ("label", "target", "workload", "code", "setting", "signature")
    groups = list(table.groups(table.every, names))
    assert sorted(map(list, groups)) == [[n] for n in range(3_000)]


@pytest.mark.parametrize(
    ("given_text", "word", "found"), [("ÄB", "äb", True), ("x", "y", False), ("", "x", False)]
)
def test_words_are_found_in_any_case(given_text, word, found):
    assert Texts.of([given_text]).containing(word).tolist() == [found]
