"""Short notations for histories with predicate reads, and a store that produces them.

The store keeps versions of rows. At `strict`, a transaction commits only if its reads by keys and
by predicates would still return the same. Each weaker level omits one rule: `stale` may show an old
version, `phantoms` does not check predicates, `snapshot` does not check keys either, and
`committed` keeps no snapshot.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

from checkers.elle import Transaction
from harness.ops import OpType

LEVELS = ("strict", "stale", "phantoms", "snapshot", "committed")


def mops(text: str) -> list[list[Any]]:
    """Parse "i x 1; w x 2; d y; r x nil; rp = 1 {x 1}; rp mod 2 0 {}" into micro-operations."""
    found: list[list[Any]] = []
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        f, *rest = part.split()
        if f == "rp":
            condition, _, shown = part.removeprefix("rp ").partition(" {")
            words = shown.rstrip("}").split()
            seen = {key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)}
            name, *numbers = condition.split()
            found.append(["rp", [name, *map(int, numbers)] if numbers else name, seen])
        elif f == "d":
            found.append(["delete", rest[0]])
        else:
            value = None if rest[1] == "nil" else int(rest[1])
            found.append([{"i": "insert"}.get(f, f), rest[0], value])
    return found


def at_once(*texts: str) -> list[Transaction]:
    """Build transactions that all overlap; "fail:" and "info:" mark those that are not ok."""
    made = []
    for number, text in enumerate(texts):
        kind, _, rest = text.rpartition(":")
        made.append(Transaction(mops(rest), number, 100 + number, OpType(kind or "ok"), number))
    return made


def timed(*txns: tuple[str, int, int, int]) -> list[Transaction]:
    """Build transactions from (text, call, end, process)."""
    return [
        Transaction(mops(text), call=call, end=end, process=process)
        for text, call, end, process in txns
    ]


@dataclass
class _Client:
    process: int
    call: int
    start: int
    plan: list[list[Any]]
    done: list[list[Any]] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    conditions: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)


def matching(condition: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """Return the rows that match, by code that is independent of the checker's."""
    if condition == "true":
        return dict(rows)
    if condition[0] == "=":
        return {key: value for key, value in rows.items() if value == condition[1]}
    return {key: value for key, value in rows.items() if value % condition[1] == condition[2]}


class Store:
    """A store of row versions; each commit creates the next version."""

    def __init__(self, level: str, rng: random.Random, universe: dict[str, int]) -> None:
        self.level, self.rng = level, rng
        self.versions: list[dict[str, Any]] = [dict(universe)]
        self.writes: list[set[str]] = [set()]

    def begin(self) -> int:
        newest = len(self.versions) - 1
        behind = self.rng.randint(0, 3) if self.level == "stale" else 0
        return max(0, newest - behind)

    def rows(self, client: _Client) -> dict[str, Any]:
        base = self.versions[-1 if self.level == "committed" else client.start]
        seen = {**base, **client.own}
        return {key: value for key, value in seen.items() if value is not None}

    def step(self, client: _Client) -> None:
        """Execute one micro-operation, unless it would change nothing."""
        mop = client.plan.pop()
        rows = self.rows(client)
        f, name = mop[0], mop[1]
        if f == "rp":
            shown = matching(name, rows)
            client.conditions.append((name, matching(name, self.versions[client.start])))
            client.done.append(["rp", name, shown])
        elif f == "r":
            client.keys.add(name)
            client.done.append(["r", name, rows.get(name)])
        elif (f == "insert") != (name in rows):
            # The transaction has also observed whether the row exists.
            client.keys.add(name)
            client.own[name] = None if f == "delete" else mop[2]
            client.done.append(mop)

    def commit(self, client: _Client) -> bool:
        late: set[str] = set().union(*self.writes[client.start + 1 :])
        if self.level != "committed" and late & set(client.own):
            return False
        if self.level in {"strict", "stale", "phantoms"}:
            readonly = self.level == "stale" and not client.own
            if not readonly and late & client.keys:
                return False
            if not readonly and self.level != "phantoms":
                now = self.versions[-1]
                if any(matching(name, now) != seen for name, seen in client.conditions):
                    return False
        if client.own:
            state = {**self.versions[-1], **client.own}
            self.versions.append({key: value for key, value in state.items() if value is not None})
            self.writes.append(set(client.own))
        return True


def run(
    level: str,
    seed: int,
    *,
    transactions: int = 30,
    clients: int = 4,
    keys: str = "uvwxyz",
    once: bool = False,
    lost_answers: float = 0.0,
) -> tuple[dict[str, int], list[Transaction]]:
    """Build the initial rows of a store (the universe) and a history of its clients.

    With `once`, each key is written once.
    """
    rng = random.Random(f"{level}/{seed}")
    universe = {key: rng.randint(0, 1) for key in keys if rng.random() < 0.5}
    store = Store(level, rng, universe)
    history: list[Transaction] = []
    active: list[_Client] = []
    idle = list(range(clients))
    fresh = list(keys)
    rng.shuffle(fresh)
    value = 1
    clock = started = 0

    def plan() -> list[list[Any]]:
        nonlocal value
        made: list[list[Any]] = []
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(("r", "rp", "rp", "write"))
            if kind == "rp":
                made.append(["rp", rng.choice(["true", ["=", rng.randint(0, 3)], ["mod", 2, 0],
                                               ["mod", 2, 1]])])  # fmt: skip
            elif kind == "r":
                made.append(["r", rng.choice(keys)])
            elif fresh or not once:
                key = fresh.pop() if once else rng.choice(keys)
                value += 1
                f = rng.choice(("insert", "w", "delete"))
                if once:
                    f = rng.choice(("w", "delete")) if key in universe else "insert"
                made.append(["delete", key] if f == "delete" else [f, key, value])
        return made

    while started < transactions or active:
        clock += 1
        if idle and started < transactions and rng.random() < 0.5:
            process = idle.pop(rng.randrange(len(idle)))
            active.append(_Client(process, clock, store.begin(), plan()))
            started += 1
            continue
        if not active:
            continue
        client = rng.choice(active)
        if client.plan:
            store.step(client)
            continue
        committed = store.commit(client)
        active.remove(client)
        lost = rng.random() < lost_answers
        kind = OpType.INFO if lost else OpType.OK if committed else OpType.FAIL
        history.append(Transaction(client.done, client.call, clock, kind, client.process))
        idle.append(client.process + 1000 if lost else client.process)
    return universe, history


def without(history: list[Transaction], number: int, place: int | None = None) -> list[Transaction]:
    """Return the history without one transaction, or without one of its micro-operations."""
    txn = history[number]
    if place is None:
        return [*history[:number], *history[number + 1 :]]
    less = replace(txn, value=[*txn.value[:place], *txn.value[place + 1 :]])
    return [*history[:number], less, *history[number + 1 :]]
