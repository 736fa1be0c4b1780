"""Random histories of a simple row store with skewed clocks, and ways to corrupt them."""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness.ops import History, Op, OpType
from harness.vocabularies.rows import KINDS

TABLE = "id-r"
NAME = "r"


def apply(row: dict[str, Any] | None, kind: str, cells: dict[str, Any]) -> tuple[str, Any]:
    """Apply one row operation by the simplest specification; return the result and the new row."""
    if kind == "insert" and row is not None:
        return "already-present", row
    if kind in {"update", "delete"} and row is None:
        return "not-found", row
    if kind == "delete":
        return "ok", None
    return "ok", {**(row or {}), **cells}


@dataclass
class PlainTablet:
    """A store of row versions by timestamp; no write gets a timestamp at which rows were read."""

    name: str
    skew: int
    last: int = 0
    versions: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    first: dict[int, tuple[int, list[str]]] = field(default_factory=dict)

    def at(self, key: str, timestamp: int) -> Any:
        rows = [row for stamp, row in self.versions.get(key, []) if stamp <= timestamp]
        return rows[-1] if rows else None

    def write(self, request: int, rows: list[Any], now: int, known: int) -> tuple[int, list[str]]:
        if request in self.first:
            return self.first[request]
        self.last = max(self.last + 1, now + self.skew, known + 1)
        results = []
        for kind, key, cells in rows:
            result, row = apply(self.at(key, self.last), kind, cells)
            self.versions.setdefault(key, []).append((self.last, row))
            results.append(result)
        self.first[request] = (self.last, results)
        return self.first[request]

    def scan(self, timestamp: int) -> list[list[Any]]:
        self.last = max(self.last, timestamp)
        rows = [(key, self.at(key, timestamp)) for key in sorted(self.versions)]
        return [[key, row] for key, row in rows if row is not None]


def tablet_of(key: str, count: int) -> int:
    return ord(key[-1]) % count


def random_history(
    seed: int,
    *,
    count: int = 40,
    keys: int = 4,
    processes: int = 4,
    tablets: int = 2,
    lost: float = 0.2,
    deletes: bool = True,
    bank: bool = False,
) -> History:
    """Build a history of the store's clients.

    A write takes effect between its call and its return. If its answer is lost, the write takes
    effect later or never.
    """
    rng = random.Random(seed)
    store = [PlainTablet(f"T{n}", rng.randrange(-30, 31)) for n in range(tablets)]
    lines: list[Op] = []
    highest: dict[int, int] = {}
    flights: dict[int, tuple[str, Any, int]] = {}
    later: list[tuple[int, PlainTablet, int, list[Any], int]] = []
    past: list[int] = []
    free = list(range(processes))
    newest = processes
    kinds = [kind for kind in KINDS if deletes or kind != "delete"]

    def log(process: int, kind: OpType, f: str, value: Any) -> None:
        lines.append(Op(len(lines), len(lines) * 1000, process, kind, f, value))

    asked = 0
    while asked < count or flights:
        now = 100 + len(lines) * 2
        for item in [each for each in later if rng.random() < 0.1]:
            later.remove(item)
            item[1].write(item[2], item[3], now, item[4])
        if asked < count and free and (not flights or rng.random() < 0.5):
            process = free.pop(rng.randrange(len(free)))
            f, call = random_call(rng, asked, keys, kinds, past, bank=bank)
            flights[process] = (f, call, asked)
            log(process, OpType.INVOKE, f, call)
            asked += 1
            continue
        process = rng.choice(sorted(flights))
        f, call, number = flights.pop(process)
        seen = highest.get(process, 0)
        if f == "write":
            kind, value, stamps = written(rng, store, call, number, now, seen, lost, later)
        else:
            kind, value, stamps = OpType.OK, *looked(rng, store, f, call, now, seen)
            past.extend(stamps)
        highest[process] = max([seen, *stamps])
        log(process, kind, f, value)
        if kind is OpType.INFO:
            free.append(newest)
            newest += 1
        else:
            free.append(process)
    return History(lines)


def random_call(
    rng: random.Random, number: int, keys: int, kinds: list[str], past: list[int], *, bank: bool
) -> tuple[str, Any]:
    choice = rng.random()
    if choice < 0.55:
        if bank:
            amount = rng.randrange(11)
            cells = [
                {"v0": f"n{number}.{n}", "balance": str(b)}
                for n, b in enumerate((amount, 10 - amount))
            ]
            rows = [["upsert", f"k{n}", cells[n]] for n in range(2)]
            return "write", {"table": NAME, "nonce": f"n{number}", "rows": rows}
        rows = []
        for position in range(rng.randint(1, 3)):
            kind, value = rng.choice(kinds), f"n{number}.{position}"
            cells = {} if kind == "delete" else {"v0": value, "v1": value}
            if kind == "update":
                del cells[rng.choice(["v0", "v1"])]
            rows.append([kind, f"k{rng.randrange(keys)}", cells])
        return "write", {"table": NAME, "nonce": f"n{number}", "rows": rows}
    if choice < 0.7:
        return "read", {"table": NAME, "key": f"k{rng.randrange(keys)}"}
    mode = rng.choice(["latest", "snapshot", "snapshot", "read-your-writes"])
    at = rng.choice(past) if mode == "snapshot" and past and rng.random() < 0.5 else None
    return "scan", {
        "table": NAME, "mode": mode, "replica": "leader", "at": at, "start": None, "end": None
    }  # fmt: skip


def written(rng, store, call, number, now, seen, lost, later):
    by_tablet: dict[int, list[int]] = {}
    for position, row in enumerate(call["rows"]):
        by_tablet.setdefault(tablet_of(row[1], len(store)), []).append(position)
    results: list[Any] = [None] * len(call["rows"])
    parts, stamps = [], []
    for place, positions in sorted(by_tablet.items()):
        tablet, rows = store[place], [call["rows"][position] for position in positions]
        stamp, part = None, {"tablet": tablet.name, "node": "t1", "rows": positions}
        if rng.random() < lost:
            if rng.random() < 0.6:
                later.append((now, tablet, number, rows, seen))
        else:
            stamp, done = tablet.write(number, rows, now, seen)
            for position, result in zip(positions, done, strict=True):
                results[position] = result
            if rng.random() < 0.3:
                again = tablet.write(number, rows, now, seen)
                part["again"] = [list(again)]
            stamps.append(stamp)
        parts.append({**part, "timestamp": stamp})
    kind = OpType.INFO if None in results else OpType.OK
    if kind is OpType.INFO and rng.random() < 0.3:
        return kind, None, []  # the client only knows that it got no answer in time
    return kind, {"table_id": TABLE, "rows": results, "parts": parts}, stamps


def looked(rng, store, f, call, now, seen):
    if f == "read":
        tablet = store[tablet_of(call["key"], len(store))]
        row = tablet.at(call["key"], tablet.last)
        value = {"table_id": TABLE, "tablet": tablet.name, "timestamp": tablet.last, "row": row}
        return copy.deepcopy(value), [tablet.last]
    at = call["at"]
    if call["mode"] == "read-your-writes" or (call["mode"] == "snapshot" and at is None):
        at = max(seen, now + store[0].skew)
    parts = []
    for tablet in store:
        stamp = tablet.last if call["mode"] == "latest" else at
        parts.append(
            {"tablet": tablet.name, "node": "t1", "timestamp": stamp, "rows": tablet.scan(stamp)}
        )
    stamps = {part["timestamp"] for part in parts}
    value = {
        "table_id": TABLE, "timestamp": min(stamps) if len(stamps) == 1 else None, "parts": parts
    }  # fmt: skip
    return copy.deepcopy(value), sorted(stamps)


def spoiled(history: History, rng: random.Random) -> History | None:
    """Return the history with one answer changed; `None` if no answer is suitable."""
    lines = list(history)
    answers = [n for n, op in enumerate(lines) if op.type is OpType.OK]
    if not answers:
        return None
    place = rng.choice(answers)
    op = lines[place]
    value = copy.deepcopy(op.value)
    if op.f == "write":
        position = rng.randrange(len(value["rows"]))
        value["rows"][position] = rng.choice(["ok", "already-present", "not-found"])
        lines[place] = msgspec.structs.replace(op, value=value)
        return History(lines)
    shown = [
        found
        for other in lines
        if other.type is OpType.OK and other.f == "scan"
        for part in other.value["parts"]
        for found in part["rows"]
    ]
    if op.f == "read":
        key = lines[
            next(n for n in range(place - 1, -1, -1) if lines[n].process == op.process)
        ].value["key"]
        value["row"] = rng.choice([None, *(row for k, row in shown if k == key)])
    else:
        part = rng.choice(value["parts"])
        rows = dict(map(tuple, part["rows"]))
        if rows and rng.random() < 0.4:
            del rows[rng.choice(sorted(rows))]
        else:
            fitting = [
                f for f in shown if f"T{tablet_of(f[0], len(value['parts']))}" == part["tablet"]
            ]
            if not fitting:
                return None
            key, row = rng.choice(fitting)
            rows[key] = row
        part["rows"] = sorted(map(list, rows.items()))
    lines[place] = msgspec.structs.replace(op, value=value)
    return History(lines)
