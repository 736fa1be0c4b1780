"""Histories with predicate reads from simulated stores, compared with all serial orders."""

import os
import random
from collections import Counter
from math import inf
from typing import Any

import pytest

from checkers.elle import Transaction, check_closed_predicate
from checkers.elle.models import UNKNOWN_TYPES, canonical, impossible_models
from harness.ops import OpType, Verdict
from tests.elle.predicates import LEVELS, matching, run
from tests.support.orders import has_order

HISTORIES = int(os.environ.get("HARNESS_ELLE_HISTORIES", "30"))
TINY = 40 * HISTORIES
"""The number of tiny histories per level."""

# level of the store -> (model that it guarantees, anomaly types that it may show)
KEEPS = {
    "strict": ("strict-serializable", set()),
    "stale": ("serializable", {"G-single-item-realtime", "G-single-realtime", "G2-realtime",
                               "G-nonadjacent-realtime", "G-nonadjacent-item-realtime",
                               "G2-item-realtime"}),
    "phantoms": ("strong-snapshot-isolation", {"G2", "G2-realtime"}),
    "snapshot": ("strong-snapshot-isolation",
                 {"G2", "G2-realtime", "G2-item", "G2-item-realtime"}),
    "committed": ("strong-read-committed", None),
}  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_a_store_shows_only_anomalies_of_its_level(level):
    kept, allowed = KEEPS[level]
    for seed in range(HISTORIES):
        universe, history = run(
            level,
            seed,
            keys="uvwxyzabcdef"[: 3 + seed % 9],
            once=seed % 2 == 0,
            lost_answers=0.1 * (seed % 3 == 0),
        )
        strict = check_closed_predicate(history, universe=universe)
        told = set(strict.anomalies) - UNKNOWN_TYPES
        assert allowed is None or told <= allowed, (seed, told)
        assert canonical(kept) not in impossible_models(told), seed
        if level == "phantoms":
            assert canonical("repeatable-read") not in impossible_models(told), seed
        asked = check_closed_predicate(history, universe=universe, consistency_models=(kept,))
        assert asked.verdict is not Verdict.INVALID, seed


@pytest.mark.parametrize(
    ("level", "broken", "mark"),
    [
        ("stale", "strict-serializable", "G-single-realtime"),
        ("phantoms", "serializable", "G2"),
        ("snapshot", "repeatable-read", "G2-item"),
        ("committed", "snapshot-isolation", "G-single"),
    ],
)
def test_every_weaker_store_is_found_out(level, broken, mark):
    found: Counter[str] = Counter()
    for seed in range(100):
        universe, history = run(level, seed, keys="uvwxyzabc", once=True)
        result = check_closed_predicate(history, universe=universe)
        found.update(set(result.anomalies))
        found[broken] += canonical(broken) in impossible_models(result.anomalies)
        if min(found[mark], found[broken]) >= 3:
            break

    assert found[mark] >= 3
    assert found[broken] >= 3


def invented(rng: random.Random) -> tuple[dict[str, int], list[Transaction]]:
    """Build a history whose reads show arbitrary possible values."""
    keys = "xyz"[: rng.randint(1, 3)]
    universe = {key: 0 for key in keys if rng.random() < 0.5}
    values = {key: [None, *([0] if key in universe else [])] for key in keys}
    plans: list[list[list[Any]]] = []
    value = 0
    for _ in range(rng.randint(2, 4)):
        plan: list[list[Any]] = []
        for _ in range(rng.randint(1, 3)):
            kind, key = rng.choice(("r", "rp", "rp", "insert", "w", "delete")), rng.choice(keys)
            if kind in {"insert", "w"}:
                value += 1
                values[key].append(value)
                plan.append([kind, key, value])
            elif kind == "rp":
                plan.append([kind, rng.choice(["true", ["=", rng.randint(0, 3)], ["mod", 2, 1]])])
            else:
                plan.append([kind, key])
        plans.append(plan)
    history = []
    for number, plan in enumerate(plans):
        for mop in plan:
            if mop[0] == "rp":
                rows = {key: rng.choice(values[key]) for key in keys}
                mop.append(matching(mop[1], {k: v for k, v in rows.items() if v is not None}))
            elif mop[0] == "r":
                mop.append(rng.choice(values[mop[1]]))
        type_ = rng.choice((OpType.OK, OpType.OK, OpType.OK, OpType.INFO, OpType.FAIL))
        history.append(Transaction(plan, number, 100 + number, type_, number))
    return universe, history


def after(rows: dict[str, int], txn: Transaction) -> list[dict[str, int]]:
    """Return the rows after a transaction, if its reads match the rows before it."""
    rows = dict(rows)
    for mop in txn.value:
        if mop[0] in {"insert", "w"}:
            rows[mop[1]] = mop[2]
        elif mop[0] == "delete":
            rows.pop(mop[1], None)
        elif txn.type is OpType.OK and mop[2] != (
            matching(mop[1], rows) if mop[0] == "rp" else rows.get(mop[1])
        ):
            return []
    return [rows]


def serializable(universe: dict[str, int], history: list[Transaction]) -> bool:
    """Whether all ok transactions and some lost ones have a serial order, by trying all orders."""
    ends = {OpType.OK: 0, OpType.INFO: inf}
    items = [(0, ends[txn.type], txn) for txn in history if txn.type in ends]
    return has_order(items, universe, after)


def test_no_history_is_refuted_that_has_a_serial_order():
    seen: Counter[tuple[bool, Verdict]] = Counter()
    types: Counter[str] = Counter()
    for seed in range(TINY):
        universe, history = invented(random.Random(f"invented {seed}"))
        result = check_closed_predicate(
            history, universe=universe, consistency_models=("serializable",)
        )
        truth = serializable(universe, history)
        assert result.verdict is not Verdict.INVALID or not truth, seed
        seen[truth, result.verdict] += 1
        types.update(set(result.anomalies))

    # The checker finds most violations, of many kinds; the others depend on orders that no read
    # reveals.
    refuted, missed = seen[False, Verdict.INVALID], sum(
        count for (truth, verdict), count in seen.items()
        if not truth and verdict is not Verdict.INVALID
    )  # fmt: skip
    assert refuted > 10 * missed
    assert seen[True, Verdict.VALID] > TINY // 50
    assert len(types) >= 10
