"""The guarantees of every token store, with one test per guarantee.

Each test is a coroutine that takes two handles on one store, as if opened by two metastores. The
in-memory store cannot be shared, so there both handles are the same object. `CASES` lists the
tests, and each kind of store runs all of them.
"""

import asyncio

from targets.hive.tokens.store import MasterKey, StoredToken

ONE, OTHER = StoredToken(1000, "p1"), StoredToken(2000, "p2")
IDENT = "alice:yarn:1:2:3:4"


async def test_a_token_is_seen_by_everybody_until_it_is_removed(here, there):
    assert await there.get(IDENT) is None
    assert await there.all() == {}
    await here.add(IDENT, ONE)
    assert await there.get(IDENT) == ONE
    assert await there.all() == {IDENT: ONE}
    assert await there.remove(IDENT)
    assert await here.get(IDENT) is None
    assert not await here.remove(IDENT)
    assert await here.all() == {}


async def test_an_existing_token_is_not_overwritten(here, there):
    await here.add(IDENT, ONE)
    await there.add(IDENT, OTHER)
    assert await here.get(IDENT) == ONE


async def test_only_existing_rows_are_replaced(here, there):
    assert not await here.replace(IDENT, ONE)
    assert await there.get(IDENT) is None
    await here.add(IDENT, ONE)
    assert await there.replace(IDENT, OTHER)
    assert await here.get(IDENT) == OTHER
    assert await here.replace(IDENT, OTHER)
    await there.remove(IDENT)
    assert not await here.replace(IDENT, ONE)


async def test_changed_rows_are_not_removed_by_their_old_values(here, there):
    await here.add(IDENT, ONE)
    await there.replace(IDENT, OTHER)
    assert not await here.remove(IDENT, only=ONE)
    assert await there.get(IDENT) == OTHER
    assert await here.remove(IDENT, only=OTHER)
    assert not await here.remove(IDENT, only=OTHER)
    assert await there.get(IDENT) is None


async def test_of_many_at_once_one_removes_and_none_is_lost(here, there):
    await here.add(IDENT, ONE)
    both = (here, there)
    removed = await asyncio.gather(*(both[n % 2].remove(IDENT) for n in range(6)))
    assert sum(removed) == 1
    tokens = {f"{IDENT}{n}": StoredToken(n, "p") for n in range(8)}
    adding = (both[n % 2].add(*token) for n, token in enumerate(tokens.items()))
    await asyncio.gather(*adding)
    for store in both:
        assert await store.all() == tokens


async def test_a_replacement_and_a_removal_leave_nothing(here, there):
    for number in range(10):
        ident = f"{IDENT}{number}"
        await here.add(ident, ONE)
        await asyncio.gather(here.replace(ident, OTHER), there.remove(ident))
        assert await here.get(ident) is None


async def test_keys_are_numbered_by_the_store(here, there):
    assert await there.keys() == {}
    keys = [MasterKey(n, f"s{n}") for n in range(4)]
    first = await here.add_key(keys[0])
    rest = await asyncio.gather(*(s.add_key(k) for s, k in zip((there, here, there), keys[1:],
                                                              strict=True)))  # fmt: skip
    numbers = [first, *rest]
    assert len({*numbers}) == 4
    assert first == min(numbers)
    assert await there.keys() == dict(zip(numbers, keys, strict=True))
    assert [*await here.keys()] == sorted(numbers)
    await there.remove_key(first)
    await there.remove_key(first)
    assert [*await here.keys()] == sorted(rest)
    assert await here.add_key(keys[0]) > max(rest)


CASES = [body for name, body in globals().items() if name.startswith("test_")]
