"""A store that guarantees exactly one isolation level, and histories of its clients.

Micro-operations of concurrent transactions interleave at random. The store has only lists; a
register is a list whose reads show only the last element.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from checkers.elle import Transaction
from harness.ops import OpType

LEVELS = (
    "strict-serializable",
    "serializable",
    "snapshot-isolation",
    "no-first-committer",
    "read-committed",
    "read-uncommitted",
)


@dataclass
class _Client:
    process: int
    plan: list[tuple[str, str]]
    call: int
    start: int  # the version of the store that a snapshot shows
    done: list[tuple[str, str, Any]] = field(default_factory=list)
    own: dict[str, list[int]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)


class Store:
    """Lists by key; each commit creates a version of the whole store."""

    def __init__(self, level: str, rng: random.Random) -> None:
        self.level = level
        self.rng = rng
        self.versions: list[dict[str, list[int]]] = [{}]
        self.writes: list[set[str]] = [set()]
        self.dirty: dict[str, list[int]] = {}
        self.counters: dict[str, int] = {}
        self.locks: dict[str, int] = {}

    def begin(self) -> int:
        """Return the version that a transaction will see; an old one if the store is not strict."""
        newest = len(self.versions) - 1
        if self.level == "serializable" and self.rng.random() < 0.3:
            return max(0, newest - self.rng.randint(1, 3))
        return newest

    def _base(self, client: _Client, key: str) -> list[int]:
        if self.level == "read-uncommitted":
            return self.dirty.setdefault(key, [])
        if self.level == "read-committed":
            return self.versions[-1].get(key, [])
        return self.versions[client.start].get(key, [])

    def step(self, client: _Client) -> bool:
        """Try one micro-operation; return false if another transaction holds the lock."""
        f, key = client.plan[len(client.done)]
        if f == "r":
            seen = self._base(client, key)
            if self.level != "read-uncommitted":
                seen = seen + client.own.get(key, [])
            client.read.setdefault(key, client.start)
            client.done.append(("r", key, list(seen)))
            return True
        locking = self.level in {"read-committed", "read-uncommitted"}
        if locking and self.locks.setdefault(key, client.process) != client.process:
            return False
        self.counters[key] = value = self.counters.get(key, 0) + 1
        client.own.setdefault(key, []).append(value)
        if self.level == "read-uncommitted":
            self.dirty.setdefault(key, []).append(value)
        client.done.append(("append", key, value))
        return True

    def commit(self, client: _Client) -> bool:
        self.locks = {key: owner for key, owner in self.locks.items() if owner != client.process}
        since = range(client.start + 1, len(self.versions))
        keys = set(client.own)
        if self.level == "snapshot-isolation":
            if any(self.writes[version] & keys for version in since):
                return False
        elif self.level in {"strict-serializable", "serializable"}:
            # Only a read-only transaction on an old snapshot may be ordered before other
            # transactions.
            touched = keys | set(client.read)
            late = any(self.writes[version] & touched for version in since)
            if late and (keys or self.level == "strict-serializable"):
                return False
        if self.level == "read-uncommitted":
            return True
        if keys:
            state = {key: list(value) for key, value in self.versions[-1].items()}
            for key, values in client.own.items():
                state.setdefault(key, []).extend(values)
            self.versions.append(state)
            self.writes.append(keys)
        return True


def run(
    level: str,
    seed: int,
    *,
    transactions: int = 60,
    clients: int = 4,
    keys: str = "xyz",
    lost_answers: float = 0.0,
    final_read: bool = False,
) -> list[Transaction]:
    rng = random.Random(f"{level}/{seed}")
    store = Store(level, rng)
    history: list[Transaction] = []
    active: list[_Client] = []
    idle = list(range(clients))
    clock = started = 0
    while started < transactions or active:
        clock += 1
        if idle and started < transactions and rng.random() < 0.5:
            plan = [
                (rng.choice(("r", "append")), rng.choice(keys)) for _ in range(rng.randint(1, 4))
            ]
            if level == "no-first-committer":
                # Appends come last: on an old snapshot, a read would show the transaction's own
                # appends, which no level allows.
                plan.sort(reverse=True)
            process = idle.pop(rng.randrange(len(idle)))
            active.append(_Client(process, plan, clock, store.begin()))
            started += 1
            continue
        if not active:
            continue
        client = rng.choice(active)
        if len(client.done) < len(client.plan):
            if not store.step(client):
                # In a deadlock, the transaction ends with the operations done so far.
                del client.plan[len(client.done) :]
            continue
        committed = store.commit(client)
        active.remove(client)
        lost = rng.random() < lost_answers
        kind = OpType.INFO if lost else OpType.OK if committed else OpType.FAIL
        history.append(Transaction(client.done, client.call, clock, kind, client.process))
        # A process that lost an answer is retired.
        idle.append(client.process + 1000 if lost else client.process)
    if final_read:
        state = store.dirty if level == "read-uncommitted" else store.versions[-1]
        reads = [("r", key, list(state.get(key, []))) for key in keys]
        history.append(Transaction(reads, clock + 1, clock + 2, process=10**6))
    return history


def as_registers(history: list[Transaction]) -> list[Transaction]:
    """Convert lists into registers: appends become writes, and reads show the last element."""
    return [
        Transaction(
            [
                ("w", key, value) if f == "append" else (f, key, value[-1] if value else None)
                for f, key, value in txn.value
            ],
            txn.call,
            txn.end,
            txn.type,
            txn.process,
        )
        for txn in history
    ]
