"""Vocabularies define the arguments of each operation, and whether it changes anything."""

import pytest

from harness.errors import UsageError
from harness.ops import Op, OpType
from harness.vocabularies import (
    bank,
    counter,
    ddl,
    follower_reads,
    hms,
    hms_tokens,
    ids,
    inserts,
    locks,
    logs,
    queues,
    register,
    registers,
    rows,
    sets,
)
from harness.vocabularies.kinds import READS, kind_of
from harness.vocabularies.transactions import Txn


def test_an_operation_comes_back_from_its_value():
    create = ddl.Create("t0", "n1", ["v0"], 2, 3)
    asked = create.asked()
    assert list(asked) == ["name", "nonce", "columns", "partitions", "replicas"]
    assert ddl.call_of(create.f, asked) == create
    assert ddl.List().asked() == {}
    assert ddl.call_of("list", None) == ddl.List()
    assert register.Write(5).asked() == {"value": 5}
    assert Txn([["r", "x", None]]).asked() == [["r", "x", None]]


@pytest.mark.parametrize(
    ("f", "value"),
    [
        ("drop", {"name": "t0"}),
        ("get", {}),
        ("get", {"name": 3}),
        ("get", "t0"),
        ("alter", {"name": "t0", "nonce": "n", "steps": "add"}),
        ("create", {"name": "t0", "nonce": "n", "columns": [], "partitions": "2", "replicas": 3}),
    ],
)
def test_what_is_not_in_the_vocabulary_is_refused(f, value):
    with pytest.raises(UsageError, match="vocabulary 'ddl'"):
        ddl.call_of(f, value)


def test_every_operation_changes_something_or_looks():
    assert {"create", "alter", "rename", "delete"} == ddl.MUTATIONS
    assert set(ddl.BY_NAME) == ddl.MUTATIONS | ddl.READS
    assert not ddl.MUTATIONS & ddl.READS
    assert {"create", "alter", "rename", "drop"} == hms.MUTATIONS
    assert {"get", "list", "poll"} == hms.READS
    assert {"issue", "renew", "cancel"} == hms_tokens.MUTATIONS
    assert {"verify"} == hms_tokens.READS
    others = follower_reads.FRESH.keys() | rows.READS | hms.READS | {"list-masters", "verify"}
    others |= logs.CALLS.reads
    assert ddl.READS | others | {"read", "txn r"} == READS
    assert not READS & (rows.BY_NAME.keys() - rows.READS)


@pytest.mark.parametrize(
    ("f", "value", "kind"),
    [
        ("get", {}, "get"),
        ("txn", [["r", "x", None]], "txn r"),
        ("txn", [[":r", "x", None]], "txn r"),
        ("txn", [["r", "x", None], ["append", "x", 1]], "txn"),
        ("txn", [["append", "x", 1]], "txn"),
        ("txn", {"strange": True}, "txn"),
        ("txn", ["r", []], "txn"),
    ],
)
def test_transactions_that_only_read_are_a_kind_of_their_own(f, value, kind):
    assert kind_of(Op(0, 0, 1, OpType.INVOKE, f, value)) == kind


@pytest.mark.parametrize(
    ("calls", "call", "value"),
    [
        (registers.CALLS, registers.Read("k1"), {"key": "k1"}),
        (registers.CALLS, registers.Write("k1", 5), {"key": "k1", "value": 5}),
        (registers.CALLS, registers.Cas("k1", 5, 6), {"key": "k1", "old": 5, "new": 6}),
        (sets.CALLS, sets.Add(3), {"value": 3}),
        (sets.CALLS, sets.Read(), {}),
        (counter.CALLS, counter.Add(-2), {"amount": -2}),
        (bank.CALLS, bank.Transfer(0, 1, 5), {"from": 0, "to": 1, "amount": 5}),
        (queues.CALLS, queues.Enqueue(1), {"value": 1}),
        (queues.CALLS, queues.Dequeue(), {}),
        (queues.CALLS, queues.Drain(), {}),
        (locks.CALLS, locks.Acquire(), {}),
        (locks.CALLS, locks.Release(), {}),
        (ids.CALLS, ids.Generate(), {}),
        (inserts.CALLS, inserts.Insert(1, "a", 7), {"key": 1, "table": "a", "id": 7}),
    ],
)
def test_values_of_requests_are_plain(calls, call, value):
    assert call.asked() == value
    assert calls.call_of(call.f, value) == call
    assert list(call.asked()) == list(call.__struct_encode_fields__)


@pytest.mark.parametrize(
    ("calls", "f", "value"),
    [
        (registers.CALLS, "read", {}),
        (bank.CALLS, "transfer", {"source": 0, "target": 1, "amount": 5}),
        (queues.CALLS, "enqueue", {"value": "x"}),
        (inserts.CALLS, "insert", {"key": 1, "table": "c", "id": 7}),
    ],
)
def test_values_outside_of_a_vocabulary_are_refused(calls, f, value):
    with pytest.raises(UsageError, match=f"vocabulary '{calls.name}'"):
        calls.call_of(f, value)
