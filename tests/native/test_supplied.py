"""All supplied histories: the expected verdict on the native core, and equal outcomes."""

from __future__ import annotations

import pytest

from checkers.linearizability import Model, Operation, Result, check_operations
from checkers.linearizability.models.keyvalue import KeyValue
from checkers.linearizability.native import is_native, native_status
from tests.checkers.conformance.formats import CONFORMANCE, READERS, Row, load, rows

ROWS = [row for row in rows() if row.model in READERS]
WANTED = {"valid": Result.OK, "invalid": Result.ILLEGAL}

pytestmark = [
    pytest.mark.skipif(not is_native(), reason=native_status()),
    pytest.mark.skipif(
        not ROWS, reason=f"no conformance data at {CONFORMANCE}; set HARNESS_CONFORMANCE"
    ),
]


def assert_equal(
    model: Model[object, object, object],
    operations: list[Operation[object, object]],
    expected: str,
    patch: pytest.MonkeyPatch,
) -> None:
    ours = check_operations(model, operations, explained=False)
    assert ours.result is WANTED[expected]
    patch.setenv("HARNESS_NATIVE", "0")
    assert check_operations(model, operations, explained=False) == ours


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_outcomes_are_equal(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    model, operations = load(row)
    assert_equal(model, operations, row.expected, monkeypatch)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.model == "kv-string"], ids=lambda row: row.file
)
def test_outcomes_are_equal_without_partitions(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    _, operations = load(row)
    assert_equal(KeyValue(partitioned=False), operations, row.expected, monkeypatch)
