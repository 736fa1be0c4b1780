"""Schema versions in a tablet's replicated state only increase, equally on every replica."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.flags import Flags
from targets.kudu.tserver.tablet import AlterOutcome, AlterSchemaOp, TabletMachine

KEY = m.Column(0, "key", is_key=True)


def schema(*names: str) -> m.Schema:
    return m.Schema((KEY, *(m.Column(1 + n, name) for n, name in enumerate(names))))


def machine(version: int = 3, changes: list[int] | None = None) -> TabletMachine:
    seen = [] if changes is None else changes
    return TabletMachine(
        table_name="t",
        schema=schema("a"),
        schema_version=version,
        flags=Flags(),
        on_change=lambda: seen.append(1),
        on_timestamp=lambda _: None,
    )


@pytest.mark.parametrize(
    ("version", "columns", "outcome"),
    [
        (2, ("a",), AlterOutcome.OLDER),
        (3, ("a",), AlterOutcome.SAME),
        (3, ("b",), AlterOutcome.MISMATCHED),
        (4, ("a", "b"), AlterOutcome.APPLIED),
        (9, ("a",), AlterOutcome.APPLIED),  # the versions in between never arrived
    ],
)
def test_rules_of_a_schema_change(version, columns, outcome):
    changes: list[int] = []
    tablet = machine(changes=changes)
    operation = AlterSchemaOp(schema(*columns), version)
    assert tablet.judge(operation) is outcome
    assert tablet.apply(1, 1, TabletMachine.encode(operation)) is outcome
    applied = outcome is AlterOutcome.APPLIED
    assert tablet.schema_version == (version if applied else 3)
    assert tablet.schema == (schema(*columns) if applied else schema("a"))
    assert bool(changes) is applied


def test_rename_reaches_the_tablet():
    tablet = machine()
    tablet.apply(1, 1, TabletMachine.encode(AlterSchemaOp(schema("a"), 4, "u")))
    assert tablet.table_name == "u"
    tablet.apply(2, 1, TabletMachine.encode(AlterSchemaOp(schema("a"), 5)))
    assert tablet.table_name == "u"


OPERATIONS = st.lists(
    st.builds(
        AlterSchemaOp,
        st.sampled_from([schema("a"), schema("b"), schema("a", "b")]),
        st.integers(0, 8),
        st.sampled_from([None, "u", "v"]),
    ),
    max_size=12,
)


@given(OPERATIONS, st.integers(0, 12))
def test_replicas_agree_with_and_without_a_snapshot(operations, cut):
    one, other = machine(), machine()
    versions = [one.schema_version]
    for index, operation in enumerate(operations):
        if index == cut:
            data = other.snapshot()
            other = machine(version=0)
            asyncio.run(other.restore(data, index))
        payload = TabletMachine.encode(operation)
        assert one.apply(index, 1, payload) is other.apply(index, 1, payload)
        versions.append(one.schema_version)
    assert one.snapshot() == other.snapshot()
    assert versions == sorted(versions)
    assert (one.table_name, one.schema) == (other.table_name, other.schema)
