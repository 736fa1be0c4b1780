"""The native core gives supplied histories the expected verdict, and Python's outcome."""

import pytest

from checkers.linearizability import Model, Operation, Result, check_operations
from checkers.linearizability.models.keyvalue import KeyValue
from checkers.linearizability.native import is_native, native_status
from tests.checkers.conformance.formats import CONFORMANCE, READERS, Row, by_folder, load, rows

ROWS = [row for row in rows() if row.model in READERS]
WANTED = {"valid": Result.OK, "invalid": Result.ILLEGAL}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_native(), reason=native_status()),
    pytest.mark.skipif(
        not ROWS, reason=f"no conformance data at {CONFORMANCE}; set HARNESS_CONFORMANCE"
    ),
]


def assert_equal(
    row: Row,
    model: Model[object, object, object],
    operations: list[Operation[object, object]],
    patch: pytest.MonkeyPatch,
) -> None:
    ours = check_operations(model, operations, explained=False)
    assert ours.result is WANTED[row.expected], row
    with patch.context() as switched:
        switched.setenv("HARNESS_NATIVE", "0")
        assert check_operations(model, operations, explained=False) == ours, row


# compared only nightly, because Python is slow; shorter histories are always compared
LONGEST = "generated/catalog/n10000_c8_k20_x0_b1.tsv"
FOLDERS = by_folder([row for row in ROWS if row.file != LONGEST])


@pytest.mark.parametrize("folder", FOLDERS)
def test_outcomes_are_equal(folder, monkeypatch):
    for row in FOLDERS[folder]:
        assert_equal(row, *load(row), monkeypatch)


@pytest.mark.nightly
def test_outcomes_of_the_longest_are_equal(monkeypatch):
    (row,) = (row for row in ROWS if row.file == LONGEST)
    assert_equal(row, *load(row), monkeypatch)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.model == "kv-string"], ids=lambda row: row.file
)
def test_outcomes_are_equal_without_partitions(row, monkeypatch):
    _, operations = load(row)
    assert_equal(row, KeyValue(partitioned=False), operations, monkeypatch)
