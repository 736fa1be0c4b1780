"""The guarantees of every implementation of the ZooKeeper protocol, with one test each.

Each test is a coroutine over two sessions and a separate path. `CASES` lists the tests, and each
implementation runs all of them.
"""

import asyncio

import pytest

from targets.hive.zookeeper.protocol import (
    BadPathError,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Znode,
)


async def test_a_znode_comes_changes_and_goes(here, there, root):
    path = f"{root}/a"
    assert await here.create(path, b"one") == path
    assert await here.get(path) == Znode(b"one", 0)
    assert await here.set(path, b"two") == 1
    await there.fence()
    assert await there.get(path) == Znode(b"two", 1)
    await there.delete(path)
    await here.fence()
    with pytest.raises(NoNodeError):
        await here.get(path)
    assert await here.create(path, b"") == path
    assert await here.get(path) == Znode(b"", 0)


async def test_what_is_not_there_or_is_there_is_said(here, there, root):
    path = f"{root}/none"
    for call in (
        here.get(path),
        here.set(path, b""),
        here.set(path, b"", 0),
        here.delete(path),
        here.delete(path, 0),
        here.children(path),
        here.create(f"{path}/below", b""),
        here.create(f"{path}/", b"", sequential=True),
    ):
        with pytest.raises(NoNodeError):
            await call
    await here.create(path, b"first")
    with pytest.raises(NodeExistsError):
        await there.create(path, b"second")
    assert (await here.get(path)).data == b"first"


async def test_a_version_that_has_gone_changes_nothing(here, there, root):
    path = f"{root}/v"
    await here.create(path, b"0")
    assert await there.set(path, b"1", 0) == 1
    for call in (here.set(path, b"x", 0), here.set(path, b"x", 7), here.delete(path, 0)):
        with pytest.raises(BadVersionError):
            await call
    await here.fence()
    assert await here.get(path) == Znode(b"1", 1)
    await here.delete(path, 1)


async def test_of_many_writers_of_one_version_one_writes(here, there, root):
    path = f"{root}/race"
    await here.create(path, b"")
    for version in range(3):
        writing = [s.set(path, b"%d" % n, version) for n, s in enumerate((here, there) * 4)]
        ends = await asyncio.gather(*writing, return_exceptions=True)
        assert sorted(str(end) for end in ends if isinstance(end, int)) == [str(version + 1)]
        assert sum(isinstance(end, BadVersionError) for end in ends) == len(ends) - 1
        assert (await here.get(path)).version == version + 1


async def test_children_are_sorted_and_a_parent_of_any_stays(here, there, root):
    for name in ("b", "a", "c"):
        await here.create(f"{root}/{name}", b"")
    await there.fence()
    assert [*await there.children(root)] == ["a", "b", "c"]
    assert [*await there.children(f"{root}/a")] == []
    with pytest.raises(NotEmptyError):
        await there.delete(root)
    for name in ("b", "a", "c"):
        await there.delete(f"{root}/{name}")
    assert [*await there.children(root)] == []
    await there.delete(root)


async def test_a_sequence_never_goes_back(here, there, root):
    numbers = []
    for n, session in enumerate((here, there, here, here, there)):
        path = await session.create(f"{root}/", b"%d" % n, sequential=True)
        number = path.removeprefix(f"{root}/")
        assert len(number) == 10
        numbers.append(int(number))
        if n == 2:
            await session.delete(path)
    named = await here.create(f"{root}/key-", b"", sequential=True)
    numbers.append(int(named.removeprefix(f"{root}/key-")))
    assert numbers == sorted({*numbers})


async def test_sequences_at_once_are_apart(here, there, root):
    creating = (s.create(f"{root}/", b"", sequential=True) for s in (here, there) * 5)
    paths = await asyncio.gather(*creating)
    assert len({*paths}) == 10
    await here.fence()
    assert [*await here.children(root)] == sorted(path.removeprefix(f"{root}/") for path in paths)


async def test_after_a_fence_all_metastores_see_acknowledged_changes(here, there, root):
    path = f"{root}/now"
    await here.create(path, b"")
    for number in range(20):
        writer, reader = (here, there) if number % 2 else (there, here)
        version = await writer.set(path, b"%d" % number)
        await reader.fence()
        assert await reader.get(path) == Znode(b"%d" % number, version)


async def test_data_are_any_bytes(here, there, root):
    data = bytes(range(256)) * 8
    await here.create(f"{root}/bytes", data)
    await there.fence()
    assert (await there.get(f"{root}/bytes")).data == data
    name = "alice@REALM:yarn.service-1_2:3"
    await here.create(f"{root}/{name}", b"")
    assert name in await here.children(root)


async def test_invalid_paths_are_refused(here, there, root):
    del there
    for path in ("", "relative", f"{root}/", f"{root}//a"):
        with pytest.raises(BadPathError):
            await here.create(path, b"")
        with pytest.raises(BadPathError):
            await here.get(path)


CASES = [body for name, body in globals().items() if name.startswith("test_")]
