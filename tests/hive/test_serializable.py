"""Interleaved serializable transactions have a serial order, compared with all permutations."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from targets.hive.sql.engine import Engine, SessionState
from targets.hive.sql.protocol import (
    Begin,
    Commit,
    Delete,
    Insert,
    Isolation,
    Rollback,
    Select,
    SqlError,
    Update,
    equal,
)
from targets.hive.sql.schema import PARAMETERS
from targets.hive.sql.store import Store
from tests.tiers import examples

KEYS = ("a", "b")


def statement(f, key, value):
    where = equal(PARAM_KEY=key)
    match f:
        case "get":
            return Select(PARAMETERS, where)
        case "all":
            return Select(PARAMETERS)
        case "lock":
            return Select(PARAMETERS, where, for_update=True)
        case "put":
            return Insert(PARAMETERS, {"TBL_ID": 1, "PARAM_KEY": key, "PARAM_VALUE": value})
        case "set":
            return Update(PARAMETERS, {"PARAM_VALUE": value}, where)
        case "move":
            return Update(PARAMETERS, {"PARAM_KEY": "b" if key == "a" else "a"}, where)
        case _:
            return Delete(PARAMETERS, where)


def seen(answer):
    if isinstance(answer, list):
        return sorted((row["PARAM_KEY"], row["PARAM_VALUE"]) for row in answer)
    return answer


def play(order):
    """Run these transactions serially; return all answers, and the rows at the end."""
    state, answers = {}, []
    for transaction in order:
        for f, key, value in transaction:
            if f in {"get", "lock", "all"}:
                rows = [(k, v) for k, v in state.items() if f == "all" or k == key]
                answers.append(sorted(rows))
            elif f == "put":
                if key in state:
                    return None
                state[key] = value
                answers.append(None)
            else:
                answers.append(int(key in state))
                if f == "move" and key in state:
                    other = "b" if key == "a" else "a"
                    if other in state:
                        return None
                    state[other] = state.pop(key)
                elif f == "set" and key in state:
                    state[key] = value
                elif f == "drop":
                    state.pop(key, None)
    return answers, state


async def run(transactions, choices):
    """Run transactions concurrently; return the committed ones in commit order, and the rows."""
    store = Store()

    async def write(changes):
        del changes
        await asyncio.sleep(0)  # other tasks run while a commit is made durable

    engine = Engine(store, write)
    done = {}

    async def one(number, turns):
        session, answers = SessionState(), []
        try:
            await engine.execute(session, Begin(Isolation.SERIALIZABLE))
            for step in transactions[number]:
                await turns.get()
                answers.append(seen(await engine.execute(session, statement(*step))))
            await turns.get()
            await engine.execute(session, Commit())
            done[number] = answers
        except SqlError:
            await engine.execute(session, Rollback())

    turns = [asyncio.Queue() for _ in transactions]
    tasks = [asyncio.ensure_future(one(n, queue)) for n, queue in enumerate(turns)]
    for choice in [*choices, *range(len(transactions) * 6)]:
        turns[choice % len(transactions)].put_nowait(None)
        for _ in range(6):
            await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    return done, dict(seen(list(store.rows[PARAMETERS].values())))


STEPS = st.tuples(
    st.sampled_from(["get", "all", "lock", "put", "set", "move", "drop"]), st.sampled_from(KEYS)
)


@pytest.mark.slow
@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.lists(STEPS, min_size=1, max_size=3), min_size=2, max_size=4),
    st.lists(st.integers(0, 3), max_size=16),
)
def test_whatever_commits_has_a_serial_order(plans, choices):
    transactions = [
        [(f, key, f"v{number}.{place}") for place, (f, key) in enumerate(plan)]
        for number, plan in enumerate(plans)
    ]
    done, rows = asyncio.run(run(transactions, choices))
    orders = (
        (order, play([transactions[number] for number in order]))
        for order in itertools.permutations(done)
    )
    assert any(
        played is not None
        and played[1] == rows
        and played[0] == [answer for number in order for answer in done[number]]
        for order, played in orders
    )
    alone = asyncio.run(run(transactions[:1], []))
    if play(transactions[:1]) is not None:
        assert alone[0], "no other transaction ran at the same time"
