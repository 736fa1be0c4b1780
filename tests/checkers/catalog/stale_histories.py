"""Random histories in which some deposed masters still answer reads, and a brute-force oracle."""

import copy
import random
from typing import Any

import msgspec

from harness.ops import HARNESS, NEMESIS, History, Op, OpType, Pair
from harness.permits import Permit, fact_of
from harness.timeline import power_cuts
from tests.checkers.catalog.catalogs import PlainCatalog, _outcomes, random_call

CHANGES = {"create", "alter", "rename", "delete"}
WHY = {
    "stale-read": "leaders answer without asking a majority",
    "torn-list": "lists are read table by table",
    "name-gap": "the name map is switched before the record",
    "ddl-twice": "there are no request ids",
}


def permits_fact(*names: str, profile: str = "modern", **given: Any) -> Op:
    permits = [Permit(name=name, why=WHY.get(name, "it says so"), **given) for name in names]
    return Op(0, 0, HARNESS, OpType.INFO, "permits", fact_of(profile, permits))


def permitting(history: History, *names: str, **given: Any) -> History:
    """Return the same history as if the profile of its run had these permits."""
    ops = [msgspec.structs.replace(op, index=op.index + 1) for op in history]
    return History([permits_fact(*names, **given), *ops])


def stale_history(
    seed: int, *, count: int, names: int = 2, stale: float = 0.5, cuts: int = 0
) -> History:
    """Build a history in which m1 to m3 lead in turn, and deposed masters still answer reads.

    Operations take effect between call and return. A deposed leader answers reads from its own
    state; it refuses changes based on that state, or never answers them. At each power cut, the
    catalog falls back to an earlier state.
    """
    rng = random.Random(seed)
    now = PlainCatalog()
    views: list[tuple[int, str, PlainCatalog, int]] = []
    term, revision = 1, 0
    universe = [f"t{n}" for n in range(names)]
    timeline: list[tuple[float, int, str]] = []
    calls: dict[int, tuple[int, str, dict[str, Any]]] = {}
    clock = [rng.random() for _ in range(3)]
    processes = list(range(3))
    for number in range(count):
        slot = min(range(3), key=clock.__getitem__)
        f, call = random_call(rng, universe, number)
        start = clock[slot]
        effect = start + rng.expovariate(1.0)
        end = effect + rng.expovariate(1.0)
        calls[number] = (processes[slot], f, call)
        timeline += [(start, number, "invoke"), (effect, number, "effect"), (end, number, "end")]
        clock[slot] = end + rng.expovariate(2.0)
    answers: dict[int, Any] = {}
    ops: list[Op] = []
    retired = 10
    owner: dict[int, int] = {}
    earlier = [(copy.deepcopy(now), revision)]
    timeline += [(rng.uniform(0, max(clock)), -1 - cut, "cut") for cut in range(cuts)]
    for when, number, kind in sorted(timeline):
        at = int(when * 1e6)
        if kind == "cut":
            made = now.made
            now, revision = copy.deepcopy(rng.choice(earlier))
            now.made, term, views = made, term + 1, []
            cut = {"action": "inject", "fault": f"f{number}", "targets": ["m1"]}
            ops.append(
                Op(len(ops), at, NEMESIS, OpType.INFO, "power-cut", cut | {"kind": "power-cut"})
            )
            continue
        process, f, call = calls[number]
        process = owner.get(process, process)
        if kind == "invoke":
            ops.append(Op(len(ops), at, process, OpType.INVOKE, f, call))
        elif kind == "effect":
            if rng.random() < 0.25:
                views.append((term, f"m{1 + term % 3}", copy.deepcopy(now), revision))
                term += 1
                views = [view for view in views if view[1] != f"m{1 + term % 3}"]
            if views and rng.random() < stale:
                then, node, view, seen = rng.choice(views)
                tried = copy.deepcopy(view)
                outcome, value = tried.apply(f, call)
                if f in CHANGES and value["result"] not in {"exists", "not-found"}:
                    answers[number] = None
                else:
                    answers[number] = (outcome, value | {"revision": seen}, then, node)
            else:
                outcome, value = now.apply(f, call, applied_lag=rng.randrange(2))
                revision += f in CHANGES and value["result"] == "ok"
                value["revision"] = revision
                earlier.append((copy.deepcopy(now), revision))
                answers[number] = (outcome, value, term, f"m{1 + term % 3}")
        elif answers[number] is None:
            ops.append(Op(len(ops), at, process, OpType.INFO, f, None, "TIMED_OUT: no answer"))
            retired += 1
            owner[calls[number][0]] = retired
        else:
            outcome, value, then, node = answers[number]
            done = OpType.OK if outcome == "ok" else OpType.FAIL
            value = copy.deepcopy(value) | {"term": then}
            ops.append(Op(len(ops), at, process, done, f, value, None, node))
    return History(ops)


# --- the oracle --------------------------------------------------------------------------------


def stale_oracle(history: History, *, stale: bool = True, lossy: bool = False) -> bool:
    """Whether some order that respects real time explains the history; tries all such orders.

    If `stale`, a read may miss the effects of changes in later terms. If `lossy`, the catalog may
    return to an earlier state of the order at any time after each power cut.
    """
    ids: dict[str, str] = {}
    nonces: dict[str, str] = {}
    todo: list[Pair] = []
    for pair in history.pairs:
        done = pair.completion
        if pair.type is OpType.INFO:
            todo += [pair] if pair.invoke.f in CHANGES else []
            continue
        assert done is not None
        value = done.value or {}
        if pair.type is OpType.FAIL and value.get("result") not in {"exists", "not-found"}:
            continue
        todo.append(pair)
        if value.get("result") == "ok" and done.f in {"create", "get"}:
            nonce = pair.invoke.value["nonce"] if done.f == "create" else value["comment"]
            if ids.setdefault(value["table_id"], nonce) != nonce:
                return False
            if nonces.setdefault(nonce, value["table_id"]) != value["table_id"]:
                return False
    if not lossy:
        return _search(todo, {}, frozenset(), nonces, set())
    cuts = tuple(cut.index for cut in power_cuts(history))
    return _lossy_search(todo, cuts, (({}, frozenset(), None),), nonces, stale)


def _must_precede(one: Pair, other: Pair, stale: bool = True) -> bool:
    if one.type is OpType.INFO or other.type is OpType.INFO:
        info = one.type is OpType.INFO
        return not info and one.completion.index < other.invoke.index  # type: ignore[union-attr]
    first, second = one.completion, other.completion
    assert first is not None
    assert second is not None
    if first.index > other.invoke.index:
        return False
    observes = second.f not in CHANGES or second.type is OpType.FAIL
    terms = first.value.get("term"), second.value.get("term")
    if None in terms or not observes or not stale:
        return True
    return not (terms[0] > terms[1] and first.node != second.node)


def _search(todo: Any, state: Any, used: Any, nonces: Any, seen: set[Any]) -> bool:
    if all(pair.type is OpType.INFO for pair in todo):
        return True
    key = (tuple(pair.invoke.index for pair in todo), tuple(sorted(state.items())), used)
    if key in seen:
        return False
    seen.add(key)
    for position, pair in enumerate(todo):
        rest = todo[:position] + todo[position + 1 :]
        if any(_must_precede(other, pair) for other in rest):
            continue
        unknown = pair.type is OpType.INFO
        for after, after_used in _outcomes(pair, unknown, state, used, nonces):
            if _search(rest, after, after_used, nonces, seen):
                return True
    return False


def _lossy_search(todo: Any, cuts: Any, path: Any, nonces: Any, stale: bool) -> bool:
    """Search like `_search`. `path` has (state, used ids, operation) for each step so far."""
    state, used, _ = path[-1]
    if all(pair.type is OpType.INFO for pair in todo):
        return True
    for position, pair in enumerate(todo):
        rest = todo[:position] + todo[position + 1 :]
        if any(_must_precede(other, pair, stale) for other in rest):
            continue
        unknown = pair.type is OpType.INFO
        for after, after_used in _outcomes(pair, unknown, state, used, nonces):
            if _lossy_search(rest, cuts, (*path, (after, after_used, pair)), nonces, stale):
                return True
    for cut in cuts:
        if any(pair.type is not OpType.INFO and pair.completion.index < cut for pair in todo):
            continue
        left = tuple(other for other in cuts if other != cut)
        for place, (old, old_used, _) in enumerate(path[:-1]):
            undone = [pair for _, _, pair in path[place + 1 :] if pair is not None]
            if any(pair.invoke.index > cut and _is_kept(pair, nonces) for pair in undone):
                continue
            if (old, old_used) != (state, used) and _lossy_search(
                todo, left, (*path, (old, old_used, None)), nonces, stale
            ):
                return True
    return False


def _is_kept(pair: Pair, nonces: Any) -> bool:
    """Whether a later power cut alone may undo the operation: a client knows its effect."""
    if pair.type is OpType.INFO:
        return pair.invoke.value.get("nonce") in nonces
    value = pair.completion.value  # type: ignore[union-attr]
    tables = value.get("tables", ())
    shown = {*(ident for _, ident, _ in tables), value.get("table_id")} - {None}
    changes = pair.invoke.f in CHANGES and value["result"] == "ok"
    return changes or not shown <= set(nonces.values())
