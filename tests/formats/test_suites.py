"""Histories as public Jepsen suites write them, with the verdicts of their own checkers.

`None` stands for a history that suggests no model. `unknown` is a verdict that no flag decides.
"""

import pytest

from harness.cli.check.guess import guessed
from harness.errors import UsageError
from harness.formats import model_for
from harness.ops import History, ModelSettings
from tests.support.histories import written


def did(process, f, value=None, answer=None):
    return [(f"{process}!", f, value), (f"{process}+", f, value if answer is None else answer)]


def failed(process, f, value=None):
    return [(f"{process}!", f, value), (f"{process}-", f, value)]


def lost(process, f, value=None):
    return [(f"{process}!", f, value), (f"{process}?", f, value)]


def read(process, answer):
    return did(process, "read", None, answer)


def txn(process, value, answer=None):
    return did(process, "txn", value, answer)


def both(f, first, second, *answers):
    """Build two concurrent operations."""
    one, two = answers or (first, second)
    return [("0!", f, first), ("1!", f, second), ("0+", f, one), ("1+", f, two)]


def moved(amount):
    return did(1, "transfer", {"from": 0, "to": 1, "amount": amount})


SEND = [*did(0, "assign", [0]), *did(0, "send", [["send", 0, 1]], [["send", 0, [0, 1]]])]
SENT = [*SEND, *did(0, "send", [["send", 0, 2]], [["send", 0, [1, 2]]])]
LOCK = {"client": "n1", "uid": "u"}
SUITES = {
    "cockroachdb register": ("valid", did(0, "write", [0, 3]) + did(1, "read", [0, None], [0, 3])),
    "cockroachdb register, stale": (
        "invalid",
        did(0, "write", [0, 3]) + did(1, "read", [0, None], [0, 2]),
    ),
    "cockroachdb g2": (
        "invalid",
        did(0, "insert", [1, [2, None]]) + did(1, "insert", [1, [None, 3]]),
    ),
    "cockroachdb bank": ("valid", read(0, [10, 10]) + moved(5) + read(0, [5, 15])),
    "cockroachdb bank, wrong": ("invalid", read(0, [10, 10]) + moved(5) + read(0, [5, 10])),
    "cockroachdb bank, too short": ("unknown", read(0, [20, 0]) + moved(5) + read(0, [20])),
    "cockroachdb comments": (None, did(0, "write", [0, 1]) + did(1, "read", [0, None], [0, [1]])),
    "cockroachdb sequential": (None, did(0, "write", 12) + did(1, "read", 12, [12, ["12_1"]])),
    "cockroachdb sets": ("valid", did(0, "add", 1) + lost(1, "add", 2) + read(0, [1, 2])),
    "cockroachdb sets, twice": ("invalid", did(0, "add", 1) + read(0, [1, 1])),
    "tidb bank": ("valid", read(0, {"0": 5, "1": 5}) + moved(2) + read(0, {"0": 3, "1": 7})),
    "tidb bank, below zero": (
        "unknown",
        read(0, {"0": 5, "1": 5}) + moved(7) + read(0, {"0": -2, "1": 12}),
    ),
    "tidb append": (
        "valid",
        txn(0, [["append", 1, 1]]) + txn(1, [["r", 1, None]], [["r", 1, [1]]]),
    ),
    "tidb append, aborted": (
        "invalid",
        failed(0, "txn", [["append", 1, 1]]) + txn(1, [["r", 1, None]], [["r", 1, [1]]]),
    ),
    "tidb monotonic": (None, did(0, "inc", 1, {"1": 1})),
    "dgraph wr, G2": (
        "invalid",
        both("txn", [["r", 0, None], ["w", 1, 1]], [["r", 1, None], ["w", 0, 2]]),
    ),
    "dgraph upsert": (None, did(0, "upsert", [0, None], [0, "0x1"])),
    "faunadb pages": (None, did(0, "add", [0, [1, 2]]) + did(1, "read", [0, None], [0, [1, 2]])),
    "yugabyte counter": ("valid", did(0, "add", 1) + lost(1, "add", 1) + read(0, 2)),
    "yugabyte counter, too high": ("invalid", did(0, "add", 1) + read(0, 2)),
    "yugabyte counter, stale": ("unknown", did(0, "add", 1) + read(0, 0) + read(0, 1)),
    "redis-raft append, split": (
        "invalid",
        txn(0, [["append", 3, 1]])
        + txn(1, [["append", 3, 2]])
        + txn(0, [["r", 3, None]], [["r", 3, [1]]]),
    ),
    "rabbitmq queue": ("valid", did(0, "enqueue", 1) + did(0, "drain", None, [1])),
    "rabbitmq queue, lost": (
        "invalid",
        did(0, "enqueue", 1) + did(0, "enqueue", 2) + did(0, "drain", None, [1]),
    ),
    "rabbitmq queue, twice": (
        "unknown",
        did(0, "enqueue", 1) + did(1, "dequeue", None, 1) + did(0, "drain", None, [1]),
    ),
    "rabbitmq mutex": ("unknown", did(0, "acquire") + did(1, "acquire")),
    "hazelcast lock": (
        "valid",
        did(0, "acquire", "u", {**LOCK, "fence": 1}) + did(0, "release", "v", {**LOCK, "fence": 0}),
    ),
    "hazelcast lock, falling fence": (
        "unknown",
        did(0, "acquire", "u", {**LOCK, "fence": 2})
        + did(0, "release", "v", {**LOCK, "fence": 0})
        + did(0, "acquire", "u", {**LOCK, "fence": 1}),
    ),
    "hazelcast semaphore": (None, did(0, "acquire", "u", {**LOCK, "fence": 0})),
    "elasticsearch dirty-read": (None, did(0, "write", 1) + did(0, "refresh")),
    "crate lost-updates": (
        "invalid",
        did(0, "add", [0, 1]) + did(1, "add", [0, 2]) + did(0, "read", [0, None], [0, [1]]),
    ),
    "scylla wr, lost": (
        "invalid",
        txn(0, [["w", 3, 1]]) + txn(0, [["w", 3, 2]]) + txn(0, [["r", 3, None]], [["r", 3, 1]]),
    ),
    "redpanda": ("valid", SEND + did(0, "poll", [["poll"]], [["poll", {"0": [[0, 1]]}]])),
    "redpanda, lost": ("invalid", SENT + did(0, "poll", [["poll"]], [["poll", {"0": [[1, 2]]}]])),
    "stolon append, G2": (
        "invalid",
        both("txn", [["r", 0, None], ["append", 1, 1]], [["r", 1, None], ["append", 0, 2]])
        + txn(2, [["r", 0, None], ["r", 1, None]], [["r", 0, [2]], ["r", 1, [1]]]),
    ),
    "stolon ledger": (None, did(0, "transfer", [3, 10])),
    "galera dirty-reads": (None, did(0, "write", 1) + read(1, [1, 1])),
    "maelstrom echo": (None, did(0, "echo", "a", {"echo": "a"})),
    "maelstrom unique-ids": (
        "invalid",
        did(0, "generate", None, "a") + did(1, "generate", None, "a"),
    ),
    "maelstrom broadcast": ("valid", did(0, "broadcast", 1) + read(1, []) + read(1, [1])),
    "maelstrom broadcast, lost": (
        "invalid",
        did(0, "broadcast", 1) + did(0, "broadcast", 2) + read(1, [1, 2]) + read(1, [2]),
    ),
    "long-fork": (
        "valid",
        did(0, "write", [["w", 2, 1]])
        + did(1, "read", [["r", 2, None], ["r", 3, None]], [["r", 2, 1], ["r", 3, None]])
        + did(0, "write", [["w", 3, 1]])
        + did(1, "read", [["r", 2, None], ["r", 3, None]], [["r", 2, 1], ["r", 3, 1]]),
    ),
    "a list": (None, did(0, "add", 1) * 2 + read(1, [1, 1])),
}


@pytest.mark.parametrize("name", SUITES)
def test_no_verdict_contradicts_the_suite(name):
    verdict, lines = SUITES[name]
    history = History(written(*lines), foreign=True)
    if verdict is None:
        with pytest.raises(UsageError):
            model_for("jepsen-edn", history)
        return
    check = guessed(model_for("jepsen-edn", history), history, ModelSettings())
    assert check.check(time_limit_s=60, draw=False)[0].verdict == verdict
