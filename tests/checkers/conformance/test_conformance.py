"""Verdicts on the supplied histories: exactly the expected ones, and none unknown."""

from __future__ import annotations

import pytest

from checkers.linearizability import Result, check_operations
from checkers.linearizability.models.keyvalue import KeyValue
from tests.checkers.conformance.formats import CONFORMANCE, Row, load, rows

ROWS = [
    row
    for row in rows()
    if row.model
    in {"etcd-cas-register", "kv-string", "cas-register", "multi-register", "register", "catalog"}
]
WANTED = {"valid": Result.OK, "invalid": Result.ILLEGAL}

pytestmark = pytest.mark.skipif(
    not ROWS, reason=f"no conformance data at {CONFORMANCE}; set HARNESS_CONFORMANCE"
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_verdict(row: Row) -> None:
    model, operations = load(row)
    assert check_operations(model, operations).result is WANTED[row.expected]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.model == "kv-string"], ids=lambda row: row.file
)
def test_key_value_histories_give_the_same_verdict_without_partitions(row: Row) -> None:
    _, operations = load(row)
    outcome = check_operations(KeyValue(partitioned=False), operations)
    assert outcome.result is WANTED[row.expected]
