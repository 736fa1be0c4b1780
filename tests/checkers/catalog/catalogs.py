"""Random histories of an atomic catalog, functions that corrupt them, and a brute-force oracle."""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness.ops import History, Op, OpType, Pair
from tests.support.orders import has_order

NODES = ("m1", "m2", "m3")


@dataclass
class Table:
    ident: str | None
    nonce: str
    versions: list[list[str]]

    @property
    def version(self) -> int:
        return len(self.versions) - 1


@dataclass
class PlainCatalog:
    """The specification of the catalog in its plainest form: a dict of tables."""

    tables: dict[str, Table] = field(default_factory=dict)
    made: int = 0

    def apply(
        self, f: str, call: dict[str, Any], applied_lag: int = 0
    ) -> tuple[str, dict[str, Any]]:
        if f == "list":
            rows = [[n, t.ident, t.version] for n, t in sorted(self.tables.items())]
            return "ok", {"result": "ok", "tables": rows}
        name = call["name"]
        table = self.tables.get(name)
        if f == "create":
            if table is not None:
                return "fail", {"result": "exists"}
            self.made += 1
            table = Table(f"id{self.made}", call["nonce"], [list(call["columns"])])
            self.tables[name] = table
        elif table is None:
            return ("fail" if f in {"alter", "rename", "delete"} else "ok"), {"result": "not-found"}
        elif f == "alter":
            columns = plain_steps(table.versions[-1], call["steps"])
            if columns is None:
                return "fail", {"result": "invalid"}
            table.versions.append(columns)
        elif f == "rename":
            if call["new_name"] in self.tables:
                return "fail", {"result": "exists"}
            self.tables[call["new_name"]] = self.tables.pop(name)
            table.versions.append(list(table.versions[-1]))
        elif f == "delete":
            del self.tables[name]
        value: dict[str, Any] = {
            "result": "ok",
            "table_id": table.ident,
            "schema_version": table.version,
        }
        if f == "get":
            shown = max(0, table.version - applied_lag)
            value |= {
                "applied_schema_version": shown,
                "columns": list(table.versions[shown]),
                "comment": table.nonce,
            }
        elif f == "is-alter-done":
            value["done"] = applied_lag == 0
        return "ok", value


def plain_steps(columns: list[str], steps: list[list[str]]) -> list[str] | None:
    result = list(columns)
    for step in steps:
        if step[0] == "add":
            if step[1] in result:
                return None
            result.append(step[1])
        elif step[0] == "drop":
            if step[1] not in result:
                return None
            result.remove(step[1])
        else:
            if step[1] not in result or step[2] in result:
                return None
            result[result.index(step[1])] = step[2]
    return result


def random_call(rng: random.Random, names: list[str], number: int) -> tuple[str, dict[str, Any]]:
    f = rng.choices(
        ["create", "alter", "rename", "delete", "get", "list", "locate", "is-alter-done"],
        [20, 12, 12, 15, 22, 8, 6, 5],
    )[0]
    call: dict[str, Any] = {}
    if f != "list":
        call["name"] = rng.choice(names)
    if f in {"create", "alter", "rename", "delete"}:
        call["nonce"] = f"n{number}"
    if f == "create":
        call["columns"] = rng.sample(["a", "b", "c"], rng.randint(1, 2))
        call |= {"partitions": 2, "replicas": 3}
    elif f == "alter":
        column = rng.choice(["a", "b", "c", "d"])
        call["steps"] = [rng.choice([["add", column], ["drop", column], ["rename", column, "e"]])]
    elif f == "rename":
        call["new_name"] = rng.choice(names)
    return f, call


def random_history(
    seed: int,
    *,
    count: int,
    names: int = 3,
    processes: int = 4,
    lost: float = 0.2,
    rest: float = 1.0,
) -> History:
    """Build a linearizable history; operations without an answer take effect later or never."""
    rng = random.Random(seed)
    catalog = PlainCatalog()
    universe = [f"t{n}" for n in range(names)]
    timeline: list[tuple[float, int, str, int]] = []
    calls: dict[int, tuple[int, str, dict[str, Any]]] = {}
    clock = [rng.random() for _ in range(processes)]
    process_ids = list(range(processes))
    for number in range(count):
        slot = min(range(processes), key=clock.__getitem__)
        f, call = random_call(rng, universe, number)
        start = clock[slot]
        effect = start + rng.expovariate(1.0)
        end = effect + rng.expovariate(1.0)
        calls[number] = (process_ids[slot], f, call)
        timeline.append((start, number, "invoke", 0))
        if f in {"create", "alter", "rename", "delete"} and rng.random() < lost:
            if rng.random() < 0.6:
                timeline.append((start + rng.expovariate(0.3), number, "effect", 0))
            if rng.random() < 0.9:
                timeline.append((end, number, "info", 0))
            process_ids[slot] = max(process_ids) + 1
        else:
            timeline.append((effect, number, "effect", 1))
            timeline.append((end, number, "complete", 0))
        clock[slot] = end + rest * rng.expovariate(1.0)
    answers: dict[int, tuple[str, dict[str, Any]]] = {}
    ops: list[Op] = []
    for when, number, kind, _ in sorted(timeline):
        process, f, call = calls[number]
        at = int(when * 1e7)
        if kind == "invoke":
            ops.append(Op(len(ops), at, process, OpType.INVOKE, f, call))
        elif kind == "effect":
            answers[number] = catalog.apply(f, call, applied_lag=rng.randrange(2))
        elif kind == "info":
            ops.append(Op(len(ops), at, process, OpType.INFO, f, None, "TIMED_OUT: no answer"))
        else:
            outcome, value = answers[number]
            node = NODES[number % 3]
            kind_of = OpType.OK if outcome == "ok" else OpType.FAIL
            ops.append(Op(len(ops), at, process, kind_of, f, copy.deepcopy(value), None, node))
    return History(ops)


def spoil(history: History, rng: random.Random) -> History:
    """Change one to three answers so that they may no longer be true."""
    ops = list(history)
    targets = [n for n, op in enumerate(ops) if op.type in {OpType.OK, OpType.FAIL} and op.value]
    changes = rng.randint(1, 3)
    for _ in range(20):
        if not targets or not changes:
            break
        at = rng.choice(targets)
        changed = _spoiled(ops[at], [ops[n] for n in targets], rng)
        if changed != ops[at]:
            ops[at] = changed
            changes -= 1
    return History(ops)


def _spoiled(op: Op, answers: list[Op], rng: random.Random) -> Op:
    value, kind = copy.deepcopy(op.value), op.type
    choice = rng.randrange(5)
    if choice == 0:
        other = rng.choice([o for o in answers if o.f == op.f])
        value, kind = copy.deepcopy(other.value), other.type
    elif choice == 1 and "schema_version" in value:
        value["schema_version"] = max(0, value["schema_version"] + rng.choice([-1, 1]))
    elif choice == 2 and op.f == "list" and value["tables"]:
        value["tables"].pop(rng.randrange(len(value["tables"])))
    elif choice == 3 and op.f != "list" and value.get("result") == "ok":
        is_read = op.f not in {"create", "alter", "rename", "delete"}
        value = {"result": "exists" if op.f == "create" else "not-found"}
        kind = OpType.OK if is_read else OpType.FAIL
    elif choice == 4 and "table_id" in value and op.f not in {"create", "get"}:
        value["table_id"] = f"id{rng.randint(1, 4)}"
    return msgspec.structs.replace(op, value=value, type=kind)


# --- the oracle --------------------------------------------------------------------------------


def oracle(history: History) -> bool:
    """Whether some order of at most a dozen operations explains all answers."""
    ids: dict[str, str] = {}
    nonces: dict[str, str] = {}
    todo: list[tuple[Pair, float]] = []
    for pair in history.pairs:
        done = pair.completion
        if pair.type is OpType.INFO:
            if pair.invoke.f in {"create", "alter", "rename", "delete"}:
                todo.append((pair, float("inf")))
            continue
        assert done is not None
        value = done.value or {}
        result = value.get("result")
        if pair.type is OpType.FAIL and result not in {"exists", "not-found"}:
            continue
        todo.append((pair, done.index))
        if pair.type is OpType.OK and result == "ok":
            nonce = pair.invoke.value.get("nonce") if done.f == "create" else value.get("comment")
            if done.f in {"create", "get"}:
                assert isinstance(nonce, str)
                if ids.setdefault(value["table_id"], nonce) != nonce:
                    return False
                if nonces.setdefault(nonce, value["table_id"]) != value["table_id"]:
                    return False

    def after(held: tuple[State, frozenset[str]], pair: Pair) -> list[Any]:
        return _outcomes(pair, pair.type is OpType.INFO, *held, nonces)

    items = [(pair.invoke.index, end, pair) for pair, end in todo]
    return has_order(items, ({}, frozenset()), after)


State = dict[str, tuple[str, str | None, tuple[tuple[str, ...], ...]]]  # nonce, id, versions


def _outcomes(
    pair: Pair, unknown: bool, state: State, used: frozenset[str], nonces: dict[str, str]
) -> list[tuple[State, frozenset[str]]]:
    f, call = pair.invoke.f, pair.invoke.value
    value = {} if unknown else (pair.completion.value or {})  # type: ignore[union-attr]
    name = call.get("name")
    result = value.get("result", "ok")
    entry = state.get(name)
    if f == "list":
        seen = [(r[0], r[1], r[2]) for r in value["tables"]]
        if len({r[0] for r in seen}) != len(seen) or sorted(state) != sorted(r[0] for r in seen):
            return []
        after, marked = dict(state), used
        for shown, ident, version in seen:
            bound = _bind_id(after[shown], ident, marked, nonces)
            if bound is None or len(after[shown][2]) - 1 != version:
                return []
            after[shown] = bound
            marked |= {ident}
        return [(after, marked)]
    if result == "not-found":
        return [(state, used)] if entry is None and f != "create" else []
    if result == "exists":
        ok = entry is not None and (f == "create" or call.get("new_name") in state)
        return [(state, used)] if ok and f in {"create", "rename"} else []
    after = dict(state)
    key = name
    if f == "create":
        if entry is not None:
            return [(state, used)] if unknown else []
        nonce = call["nonce"]
        after[name] = (nonce, nonces.get(nonce), (tuple(call["columns"]),))
    elif entry is None:
        return [(state, used)] if unknown else []
    elif f == "delete":
        if not unknown:
            bound = _bind_id(entry, value["table_id"], used, nonces)
            if bound is None or value["schema_version"] != len(entry[2]) - 1:
                return []
            used |= {value["table_id"]}
        del after[name]
        return [(after, used)]
    elif f == "alter":
        columns = plain_steps(list(entry[2][-1]), call["steps"])
        if columns is None:
            return [(state, used)] if unknown else []
        after[name] = (entry[0], entry[1], (*entry[2], tuple(columns)))
    elif f == "rename":
        if call["new_name"] in state:
            return [(state, used)] if unknown else []
        key = call["new_name"]
        del after[name]
        after[key] = (entry[0], entry[1], (*entry[2], entry[2][-1]))
    if unknown:
        return [(after, used)]
    table = after[key]
    bound = _bind_id(table, value["table_id"], used, nonces)
    if bound is None or value["schema_version"] != len(table[2]) - 1:
        return []
    if f == "get":
        applied = value["applied_schema_version"]
        if value["comment"] != table[0] or applied >= len(table[2]):
            return []
        if tuple(value["columns"]) != table[2][applied]:
            return []
    after[key] = bound
    return [(after, used | {value["table_id"]})]


def _bind_id(
    table: tuple[str, str | None, Any], ident: str, used: frozenset[str], nonces: dict[str, str]
) -> Any:
    if table[1] is not None:
        return table if table[1] == ident else None
    if ident in used or ident in nonces.values():
        return None
    return (table[0], ident, table[2])
