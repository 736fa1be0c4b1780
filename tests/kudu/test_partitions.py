"""Encoded keys sort like their values, and every key belongs to exactly one tablet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.partitions import (
    decode_key,
    encode_key,
    fits,
    owns,
    partition_count,
    partition_key,
    partitions_of,
    tablet_position,
)

VALUES = {
    "INT8": st.integers(-128, 127),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "STRING": st.text(st.characters(codec="utf-8", max_codepoint=0x300), max_size=4),
    "BINARY": st.binary(max_size=4) | st.lists(st.sampled_from([0, 1]), max_size=5).map(bytes),
}


@st.composite
def keys(draw, number: int) -> tuple[tuple[m.Column, ...], list[tuple[m.Value, ...]]]:
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    columns = tuple(m.Column(n, f"k{n}", kind, is_key=True) for n, kind in enumerate(types))
    return columns, [tuple(draw(VALUES[kind]) for kind in types) for _ in range(number)]


def sortable(key: tuple[m.Value, ...]) -> list[object]:
    return [value.encode() if isinstance(value, str) else value for value in key]


@given(keys(2))
def test_keys_sort_as_their_values_do_and_come_back(drawn):
    columns, (one, two) = drawn
    encoded = [encode_key(columns, key) for key in (one, two)]
    assert [one, two] == [decode_key(columns, key) for key in encoded]
    assert (sortable(one) < sortable(two)) is (encoded[0] < encoded[1])
    assert (one == two) is (encoded[0] == encoded[1])


@given(keys(6), st.integers(1, 4), st.data())
def test_every_key_belongs_to_one_tablet(drawn, buckets, data):
    columns, rows = drawn
    names = [column.name for column in columns]
    hashed = tuple(data.draw(st.lists(st.sampled_from(names), unique=True)))
    ranged = tuple(data.draw(st.lists(st.sampled_from(names), unique=True)))
    splits: tuple[bytes, ...] = ()
    if ranged:
        chosen = [columns[names.index(name)] for name in ranged]
        by_name = [tuple(row[names.index(name)] for name in ranged) for row in rows[:3]]
        splits = tuple(sorted({encode_key(chosen, values) for values in by_name} - {b""}))
    schema = m.PartitionSchema(buckets, hashed, ranged, splits)
    partitions = partitions_of(schema)
    assert partition_count(schema) == len(partitions)
    starts = [partition.start for partition in partitions]
    assert sorted(set(starts)) == starts
    assert [p.end for p in partitions] == [*starts[1:], b""]
    for row in rows:
        key = partition_key(schema, columns, row)
        owners = [n for n, partition in enumerate(partitions) if owns(partition, key)]
        assert [tablet_position(starts, key)] == owners


def test_buckets_and_ranges_spread_keys():
    column = m.Column(0, "key", is_key=True)
    schema = m.PartitionSchema(3, ("key",), ("key",), (b"k5",))
    starts = [partition.start for partition in partitions_of(schema)]
    found = {
        tablet_position(starts, partition_key(schema, (column,), (f"k{n}",))) for n in range(50)
    }
    assert set(range(6)) == found


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (127, "INT8", True),
        (128, "INT8", False),
        (True, "INT8", False),
        (True, "BOOL", True),
        ("a", "BINARY", False),
        (b"a", "STRING", False),
        (1, "DOUBLE", False),
        (1.5, "DOUBLE", True),
        (1e300, "FLOAT", False),
        (None, "STRING", False),
    ],
)
def test_values_fit_columns_of_their_type(value, kind, expected):
    assert expected is fits(value, kind)


def test_keys_that_do_not_fit_are_quoted():
    with pytest.raises(ValueError, match="7"):
        encode_key((m.Column(0, "key", is_key=True),), (7,))
    with pytest.raises(ValueError, match="needs 1"):
        encode_key((m.Column(0, "key", is_key=True),), ())
