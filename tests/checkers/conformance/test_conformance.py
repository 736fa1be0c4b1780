"""Each supplied history gets its expected verdict with a proof, and is never undecided."""

import pytest

from checkers.linearizability import Result, certify, check_operations
from checkers.linearizability.models.keyvalue import KeyValue
from tests.checkers.conformance.formats import CONFORMANCE, Row, by_folder, load, rows

ROWS = [
    row
    for row in rows()
    if row.model
    in {"etcd-cas-register", "kv-string", "cas-register", "multi-register", "register", "catalog"}
]
WANTED = {"valid": Result.OK, "invalid": Result.ILLEGAL}
PROVEN_MAX = 2_000
"""The verdict of a history with at most this many operations must also be proven."""

pytestmark = pytest.mark.skipif(
    not ROWS, reason=f"no conformance data at {CONFORMANCE}; set HARNESS_CONFORMANCE"
)


FOLDERS = by_folder(ROWS)


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=[pytest.mark.slow] * (folder == "generated/catalog"))
        for folder in FOLDERS
    ],
)
def test_verdicts(folder):
    for row in FOLDERS[folder]:
        verdict_is_as_expected(row)


def verdict_is_as_expected(row: Row) -> None:
    model, operations = load(row)
    outcome = check_operations(model, operations)
    assert outcome.result is WANTED[row.expected], row
    if len(operations) > PROVEN_MAX:
        return
    proof = certify(model, operations, outcome)
    assert proof is not None, row
    assert proof.verdict is WANTED[row.expected], row
    assert proof.confirmed_by.startswith("the verifier"), row
    assert len(proof.core) <= 12, row


def test_the_data_set_is_whole():
    assert len(ROWS) == 130


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.model == "kv-string"], ids=lambda row: row.file
)
def test_key_value_histories_give_the_same_verdict_without_partitions(row):
    _, operations = load(row)
    outcome = check_operations(KeyValue(partitioned=False), operations)
    assert outcome.result is WANTED[row.expected]
