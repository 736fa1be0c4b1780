"""A store that keeps one isolation level and no more, and histories of clients who use it.

Micro-operations of concurrent transactions interleave at random. Lists only: registers are lists of
which the last element shows.
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
    """Lists under keys; each commit makes a version of the whole store."""

    def __init__(self, level: str, rng: random.Random) -> None:
        self.level = level
        self.rng = rng
        self.versions: list[dict[str, list[int]]] = [{}]
        self.writes: list[set[str]] = [set()]
        self.dirty: dict[str, list[int]] = {}
        self.counters: dict[str, int] = {}
        self.locks: dict[str, int] = {}

    def begin(self) -> int:
        """The version a transaction will see; a store that is not strict may show an old one."""
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
        """One micro-operation; whether it could be done (another transaction may hold the lock)."""
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
        """Whether the transaction took effect."""
        self.locks = {key: owner for key, owner in self.locks.items() if owner != client.process}
        since = range(client.start + 1, len(self.versions))
        keys = set(client.own)
        if self.level == "snapshot-isolation":
            if any(self.writes[version] & keys for version in since):
                return False
        elif self.level in {"strict-serializable", "serializable"}:
            # Only what reads an old snapshot and writes nothing may come before others.
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
    """A history of a store that keeps `level`."""
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
                # It shows own writes on top of an old snapshot, which nobody would take for right.
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
                # Locks may wait for each other: the transaction ends with what it has done.
                del client.plan[len(client.done) :]
            continue
        committed = store.commit(client)
        active.remove(client)
        lost = rng.random() < lost_answers
        kind = OpType.INFO if lost else OpType.OK if committed else OpType.FAIL
        history.append(Transaction(client.done, client.call, clock, kind, client.process))
        # A process whose answer was lost is never used again.
        idle.append(client.process + 1000 if lost else client.process)
    if final_read:
        state = store.dirty if level == "read-uncommitted" else store.versions[-1]
        reads = [("r", key, list(state.get(key, []))) for key in keys]
        history.append(Transaction(reads, clock + 1, clock + 2, process=10**6))
    return history


def as_registers(history: list[Transaction]) -> list[Transaction]:
    """The same history over registers: an append becomes a write, a read shows the last element."""
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
