"""Packed notes are what they were, and say nothing twice."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HistoryError
from harness.ops import HARNESS, History, Op, OpType
from results.lake import history_of
from results.lake.packed import PACKED_BYTES_MIN, Packer, with_ids, with_repeats
from results.lake.rows import tables_of
from results.lake.source import source_of
from tests.results.lake.histories import IDS, STATES, about

encode = msgspec.json.Encoder(order="sorted").encode
TABLE, TABLET, OTHER, DIGEST = "12" * 16, "34" * 16, "56" * 16, "78" * 8


def unpacked(text, ids, answered=lambda index: (None, None)):
    value = msgspec.json.decode(with_ids(text, ids, answered))
    with_repeats(value)
    return value


@given(st.lists(STATES, min_size=1, max_size=3), st.dictionaries(st.integers(0, 3), IDS))
def test_notes_are_the_same_after_they_were_packed(notes, tables):
    packer, ids = Packer(), []
    for index, table in tables.items():
        packer.answered_table(index, table.encode())

    for note in notes:
        packed = packer.pack(encode(note))
        if packed is not None:
            text, new = packed
            ids += [found.decode() for found in new]
            assert encode(unpacked(text.decode(), ids, lambda at: (tables[at], None))) == encode(
                note
            )
    assert len(ids) == len(set(ids))


def test_a_snapshot_says_everything_once():
    tables = [{"id": TABLE, "n": 1}, {"id": OTHER, "n": 2}, {"id": TABLET, "n": 3}]
    state = {"tables": tables, "raft": {"digests": [[0, DIGEST], [1, DIGEST], [2, DIGEST]]}}
    packer = Packer()
    packer.answered_table(7, TABLE.encode())
    packer.answered_rest(8, encode({"tablets": [{"id": OTHER}, {"id": TABLET}]}).decode())

    packed = packer.pack(encode({"masters": {"m1": state, "m2": state | {"term": 2}}}))

    assert packed is not None
    assert msgspec.json.decode(packed[0]) == {
        "masters": {
            "m1": {
                "raft": {"digests": {"|": [[0, 1, 2], ["#0", "#0", "#0"]]}},
                "tables": {"|": {"id": ["@7", "@8.0", "@8.1"], "n": [1, 2, 3]}},
            },
            "m2": {"raft": "=", "tables": "=", "term": 2},
        }
    }
    assert packed[1] == [DIGEST.encode()]


@pytest.mark.parametrize(
    "text",
    ['{"a":"="}', '{"a":"#1"}', '{"@1":1}', '{"a":{"b":{"|":[1]}}}', '{"a":"\\u003d"}', "[1]", "{"],
)
def test_what_could_be_taken_for_a_reference_stays_as_it_is(text):
    assert Packer().pack(text.encode()) is None


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
