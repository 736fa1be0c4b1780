"""Small histories, compared with an oracle that tries every serial order."""

import random
from math import inf

import pytest

from checkers.elle import Transaction, check_list_append
from harness.ops import OpType, Verdict
from tests.elle.stores import LEVELS, run
from tests.support.orders import has_order

KEYS = "xy"


def after(state: dict[str, list[int]], txn: Transaction) -> list[dict[str, list[int]]]:
    """Return the state after executing `txn` serially, if all its reads are as recorded."""
    state = {key: list(held) for key, held in state.items()}
    for f, key, value in txn.value:
        held = state.setdefault(key, [])
        if f == "append":
            held.append(value)
        elif txn.type is OpType.OK and list(value or []) != held:
            return []
    return [state]


def serializable(history: list[Transaction], *, strict: bool) -> bool:
    """Whether a serial order of all ok and some unanswered transactions explains the history."""
    items = [
        (txn.call if strict else 0, inf if txn.type is OpType.INFO else txn.end, txn)
        for txn in history
        if txn.type in {OpType.OK, OpType.INFO}
    ]
    return has_order(items, {}, after)


def mutated(history: list[Transaction], rng: random.Random) -> list[Transaction]:
    changed = list(history)
    places = [
        (i, j)
        for i, txn in enumerate(changed)
        for j, mop in enumerate(txn.value)
        if mop[0] == "r" and txn.type is OpType.OK and mop[2]
    ]
    if places:
        i, j = rng.choice(places)
        txn = changed[i]
        f, key, value = txn.value[j]
        kept = list(value[: rng.randrange(len(value))]) if rng.random() < 0.6 else value[::-1]
        mops = [*txn.value[:j], (f, key, kept), *txn.value[j + 1 :]]
        changed[i] = Transaction(mops, txn.call, txn.end, txn.type, txn.process)
    return changed


@pytest.mark.parametrize("level", LEVELS)
def test_verdicts_are_those_of_the_oracle(level):
    for seed in range(40):
        history = run(level, seed, transactions=5, clients=3, keys=KEYS, final_read=True)
        if seed % 2:
            history = mutated(history, random.Random(seed))
        for model, strict in (("serializable", False), ("strict-serializable", True)):
            result = check_list_append(history, consistency_models=(model,))
            # The last transaction reads everything, so version orders are complete and all cycles
            # visible.
            expected = Verdict.VALID if serializable(history, strict=strict) else Verdict.INVALID
            found = Verdict.VALID if result.verdict is Verdict.UNKNOWN else result.verdict
            assert expected is found, (seed, model, result.reason)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_blamed_that_the_oracle_explains(level):
    for seed in range(30):
        history = run(level, seed, transactions=6, clients=3, keys=KEYS, lost_answers=0.3)
        for model, strict in (("serializable", False), ("strict-serializable", True)):
            if serializable(history, strict=strict):
                result = check_list_append(history, consistency_models=(model,))
                assert result.verdict is not Verdict.INVALID, (seed, result.reason)
