"""Packed notes are what they were, and say nothing twice."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.ops import HARNESS, History, Op, OpType
from results.lake import history_of
from results.lake.tables.packed import PACKED_BYTES_MIN, answered, pack, with_ids, with_repeats
from results.lake.tables.row_tables import tables_of
from results.lake.transfer.source import source_of
from tests.results.lake.histories import IDS, PARTS, STATES, about

encode = msgspec.json.Encoder(order="sorted").encode
TABLE, TABLET, OTHER, DIGEST = "12" * 16, "34" * 16, "56" * 16, "78" * 8


def unpacked(text, ids, answered=lambda index: (None, None)):
    value = msgspec.json.decode(with_ids(text, ids, answered))
    with_repeats(value)
    return value


def packed(notes, runs=None, tables=(), rests=()):
    """Notes of one run, or of `runs`; `tables` and `rests` are of runs, by index."""
    known = answered(
        *(
            (np.array([run for run, _, _ in some], int), np.array([at for _, at, _ in some], int),
             [text.encode() for _, _, text in some])
            for some in (tables, rests)
        )
    )  # fmt: skip
    return pack([encode(note) for note in notes], np.array(runs or [0] * len(notes)), known)


@given(st.lists(st.lists(STATES, max_size=2), min_size=1, max_size=3), st.data())
def test_notes_are_the_same_after_they_were_packed(runs, data):
    notes = [(run, note) for run, some in enumerate(runs) for note in some]
    tables = [(run, index, data.draw(IDS)) for run in range(len(runs)) for index in range(2)]
    rests = [(run, 5, encode(data.draw(PARTS)).decode()) for run in range(len(runs))]
    answers = {(run, at): (table, None) for run, at, table in tables}
    answers |= {(run, at): (None, rest) for run, at, rest in rests}
    ids = [[] for _ in runs]

    found = packed([note for _, note in notes], [run for run, _ in notes], tables, rests)

    for (run, note), (text, new) in zip(notes, found, strict=True):
        if new is None:
            assert text == encode(note)
        else:
            ids[run] += [each.decode() for each in new]
            again = unpacked(text.decode(), ids[run], lambda at, run=run: answers[run, at])
            assert encode(again) == encode(note)
    assert all(len(some) == len(set(some)) for some in ids)


def test_a_snapshot_says_everything_once():
    tables = [{"id": TABLE, "n": 1}, {"id": OTHER, "n": 2}, {"id": TABLET, "n": 3}]
    state = {"tables": tables, "raft": {"digests": [[n, DIGEST] for n in range(6)]}}
    rest = encode({"tablets": [{"id": OTHER}, {"id": TABLET}]}).decode()

    ((text, ids),) = packed(
        [{"masters": {"m1": state, "m2": state | {"term": 2}}}],
        tables=[(0, 7, TABLE), (0, 9, TABLET + "0")],
        rests=[(0, 8, rest)],
    )

    assert msgspec.json.decode(text) == {
        "masters": {
            "m1": {
                "raft": {"digests": {"|": [[0, 1, 2, 3, 4, 5], ["#0"] * 6]}},
                "tables": {"|": {"id": ["@7", "@8.0", "@8.1"], "n": [1, 2, 3]}},
            },
            "m2": {"raft": "=", "tables": "=", "term": 2},
        }
    }
    assert ids == [DIGEST.encode()]


@pytest.mark.parametrize(
    "text",
    ['{"a":"="}', '{"a":"#1"}', '{"@1":1}', '{"a":{"b":{"|":[1]}}}', '{"a":"\\u003d"}', "[1]", "{"],
)
def test_what_could_be_taken_for_a_reference_stays_as_it_is(text):
    none = np.array([], int), np.array([], int), []
    note = {"masters": {"m1": {"id": TABLE}}}

    usual, odd, again = pack(
        [encode(note), text.encode(), encode(note)], np.zeros(3, int), answered(none, none)
    )

    assert odd == (text.encode(), None)
    assert (usual.ids, again.ids) == ([TABLE.encode()], [])


def large(*ids):
    return {"masters": {"m1": {"ids": [*ids]}}, "padding": "x" * PACKED_BYTES_MIN}


HISTORY = History([
    Op(0, 0, 0, OpType.INVOKE, "create", {"name": "t"}),
    Op(1, 1, 0, OpType.OK, "create", {"result": "ok", "table_id": TABLE}),
    Op(2, 2, HARNESS, OpType.INFO, "checkpoints", large(TABLE, TABLET)),
    Op(3, 3, HARNESS, OpType.INFO, "snapshot", large(TABLET, OTHER, TABLE)),
])  # fmt: skip


def test_large_notes_of_a_run_share_their_ids():
    rows = tables_of([source_of(HISTORY, about())])
    events = rows["events"]

    assert events["value_ids"].to_pylist() == [[TABLET], [OTHER]]
    assert [text[:34] for text in events["value_rest"].to_pylist()] == [
        '{"masters":{"m1":{"ids":["@0","#0"',
        '{"masters":{"m1":{"ids":["#0","#1"',
    ]
    assert history_of({**rows, "events": events.take([1, 0])}) == HISTORY


def test_a_lost_note_with_ids_is_noticed():
    rows = tables_of([source_of(HISTORY, about())])

    with pytest.raises(HistoryError, match="make no history"):
        history_of({**rows, "events": rows["events"].slice(1)})


def test_notes_of_a_lake_of_the_first_version_are_as_they_stand():
    rows = tables_of([source_of(HISTORY, about())])
    values = [encode(op.value).decode() for op in HISTORY if op.process == HARNESS]
    names = [name for name in rows["events"].column_names if name != "value_ids"]
    old = rows["events"].select(names)
    old = old.set_column(names.index("value_rest"), "value_rest", [values])

    assert history_of({**rows, "events": old}) == HISTORY


@given(st.lists(STATES, min_size=1, max_size=6), st.integers(1, 2_000))
def test_notes_looked_through_in_parts_are_packed_alike(notes, at_once):
    runs = [number // 2 for number in range(len(notes))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("results.lake.tables.packed._BYTES_AT_ONCE", at_once)
        in_parts = packed(notes, runs)

    assert in_parts == packed(notes, runs)


def test_nodes_that_have_no_members_stand_among_those_that_have():
    same = {"tables": [{"id": TABLE, "name": "a" * 40}] * 4}
    note = {"masters": {"m1": same, "m2": "gone", "m3": same, "m4": None, "m5": [1]}}

    ((text, new),) = packed([note])

    assert unpacked(text.decode(), [each.decode() for each in new]) == note
    assert text.count(b'"m3":{"tables":"="}') == 1
