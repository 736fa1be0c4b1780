"""The model that a history's operations suggest, and histories that suggest none."""

import pytest

from harness.errors import UsageError
from harness.formats import model_for
from harness.ops import History
from tests.support.histories import written

SET = "#{}"


def suggested(*lines):
    return model_for("jepsen-edn", History(written(*lines), foreign=True))


def did(f, value, answer=None):
    """Build an operation that completes at once; without an `answer`, its value is confirmed."""
    return [("0!", f, value), ("0+", f, value if answer is None else answer)]


ADDED = did("add", 1)


@pytest.mark.parametrize(
    ("lines", "model"),
    [
        ([], "cas-register"),  # all ops are of the nemesis
        ([*ADDED, *did("read", None, [1])], "set"),
        ([*ADDED, *did("read", None, {SET: [1]})], "set"),
        ([*ADDED, ("1!", "read", None)], "set"),  # no answer, so nothing is judged
        ([*did("add", [0, 1]), *did("read", [0, None], [0, {SET: [1]}])], "set"),
        (did("acquire", [0, None]) + did("release", [0, None]), "mutex"),
        (did("broadcast", 1) + did("read", None, [1]), "set-full"),
        (did("broadcast", 1), "set-full"),
        (did("acquire", {}, {"result": "ok"}) + did("release", {}, {"result": "ok"}), "mutex"),
        (did("acquire", "u1", "c1") + did("release", "u2"), "mutex"),
        (did("acquire", {"lease_ms": 9}, {"value": 7}) + did("release", {}), "lease"),
        (did("acquire", "u1", {"client": "c", "fence": 3, "uid": "u1"}), "fenced-mutex"),
        (did("write", [0, 1]) + did("read", [0, None], [0, 1]), "cas-register"),
        (did("cas", [[0, 1], 2]), "cas-register"),
        (did("cas", [7, [0, 1]]), "cas-register"),
        (did("write", {"value": 1}) + did("read", {}, {"value": 1}), "cas-register"),
        (did("put", [1, "a"]) + did("get", [1, None], [1, "a"]), "kv-string"),
        (did("put", [7, [1, "a"]]) + did("get", [7, [1, None]], [7, [1, "a"]]), "kv-string"),
        (did("txn", [7, [["append", "x", 1]]]), "list-append"),
        (did("txn", [7, [["w", "x", 1]]]), "rw-register"),
        (did("txn", [["r", "x", None], ["append", "x", 1]]), "list-append"),
        ([*ADDED, *did("read", None, 1)], "counter"),
        ([*did("add", [0, 1]), *did("read", [0, None], [0, 1])], "counter"),
        ([*did("add", [1, 1]), *did("read", [0, None], [0, 0])], "counter"),  # each key occurs once
        ([*did("add", [1, 1]), *did("read", [0, None], [0, [2]])], "set"),
        ([*did("add", [1, 1]), *did("read", None, [[1, 1]])], "set"),
        ([*ADDED * 2_000, *did("read", None, 2_000)], "counter"),
        (did("read", None, {"0": 10}) + did("transfer", {"from": 0}), "bank"),
        (did("read", None, [10, 10]) + did("transfer", {"from": 0}), "bank"),
        ([*ADDED, *ADDED, *did("read", None, [1])], "set"),
        ([*ADDED, *did("read", None, [1, 1])], "set"),
        (
            did("txn", [["w", 1, 2]])
            + did("txn", [["r", 1, None], ["r", 2, None]], [["r", 1, 2], ["r", 2, None]]),
            "rw-register",
        ),
        (
            did("txn", [["w", 1, 1]]) + did("txn", [["r", 1, None]], [["r", 1, 1]]),
            "rw-register",
        ),
        (did("generate", None, 7), "unique-ids"),
        (did("enqueue", 1) + did("drain", None, [1]), "total-queue"),
        (did("insert", [1, [7, None]]), "g2"),
        (did("send", [["send", 1, 5]]) + did("poll", [["poll"]], [["poll", {"1": []}]]), "kafka"),
        (did("assign", [1]) + did("txn", [[":poll"], [":send", 1, 5]]), "kafka"),
        (did("txn", [["send", 1, 5]]), "kafka"),
        (did("read-init", None, 0) + did("write", 1), "causal"),
        (did("read-init", [7, None], [7, 0]) + did("write", [7, 1]), "causal"),
        (
            did("write", [["w", 1, 1]])
            + did("read", [["r", 1, None], ["r", 2, None]], [["r", 1, 1], ["r", 2, None]]),
            "long-fork",
        ),
    ],
)
def test_values_and_answers_agree_with_the_model(lines, model):
    assert suggested(*lines) == model


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([*did("add", "a"), *did("read", None, 1)], "a read is answered with 1"),
        ([*ADDED, *did("remove", 1), *did("read", None, 1)], "'remove' belongs to a set"),
        ([*ADDED, *did("read", None, {"a": 1})], "answered with a map"),
        # groups of elements, as in FaunaDB's test of pages
        ([*did("add", [1, 2]), *did("read", None, {SET: [1, 2]})], "'add' has values such as"),
        ([*did("add", [7, [1]]), *did("read", [7, None], [7, [1]])], "'add' has values such as"),
        # keys only in requests
        ([*did("add", [0, 1]), *did("read", [0, None], [1])], "'add' has values such as"),
        # rows with timestamps, as in CockroachDB's monotonic test
        ([*did("add", None, {"val": 1}), *did("read", None, [{"val": 1}])], "asks for nothing"),
        ([*ADDED, *ADDED, ("1!", "read", None)], "as to a counter"),
        (did("read", None, {"0": 10, "1": 5}), "may be a bank"),
        (did("txn", [[":sent", 1, 2]], [[":sent", 1, [0, 2]]]), "micro-operations such as"),
        (did("read", 4, [4, ["4_0", None, "4_2"]]), "is a collection"),
        (did("broadcast", 1) + did("read", None, 1), "lists no messages"),
        # a list, or a bag
        ([*ADDED, *ADDED, *did("read", None, [1, 1])], "as in a list"),
        (did("broadcast", 1) * 2 + did("read", None, [1, 2, 1]), "as in a list"),
        # the ledger of Stolon's test
        (did("transfer", [3, 10]), "not a transfer between two accounts"),
        # CockroachDB's comments
        (did("write", [0, 1]) + did("read", [0, None], [0, {SET: [1]}]), "causal-reverse"),
        # as in Hazelcast's tests: no fence, a semaphore, a lock that returns a token, tryLock
        (did("acquire", "u1", {"client": "c", "fence": 0, "uid": "u1"}), "may name clients"),
        (did("acquire", {"permits": 2}), "may name clients"),
        (did("acquire", [0, None], [0, 7]) + did("release", [0, None]), "answered with 7"),
        (did("acquire", None, False), "answered with False"),
        # long-fork with the operation txn
        (
            did("txn", [["w", 1, 1]])
            + did("txn", [["r", 1, None], ["r", 2, None]], [["r", 1, 1], ["r", 2, None]]),
            "long-fork, which permits more",
        ),
        (did("poll", [[":read", 1, 2]]), "their values are not micro-operations"),
        (did("read", None, [[0, 10]]) + did("transfer", {"from": 0}), "does not map accounts"),
        (did("insert", [1, 2]), "is not a .key .a b.. of the model g2"),
        (did("write", [7, 0]) + did("read", [7, None], [7, {SET: [0]}]), "is a collection"),
        (did("write", 7) + did("read", None, [7]), "is a collection"),
        (did("write", [["w", 1, 1]]), "their values are transactions"),  # a write of long-fork
        (did("read", [["r", 1, None]], [["r", 1, 2]]), "their values are transactions"),
        (did("go", [["append", 1, 1]]), "their values are transactions"),
        (did("read-last", None, 0) + did("write", 1), "no model knows the operation 'read-last'"),
        (did("enqueue", 1) + did("dequeue", None, 1), "queue or unordered-queue"),
        (did("put", [1, 2]), r"\[1, 2\] is not a \[key string\]"),
        (did("put", [1, "a"]) + did("delete", 1), "no model knows the operation 'put'|'delete'"),
        (did("txn", [["append", 1, 1], ["w", 2, 1]]), "list-append and rw-register are mixed"),
        (did("add", 1) + did("write", 1), "no model knows all of them"),
    ],
)
def test_what_cannot_be_defended_is_not_guessed(lines, words):
    with pytest.raises(UsageError, match=words):
        suggested(*lines)
