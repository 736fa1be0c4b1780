"""Power cuts of real folders remove only unsynced data."""

import asyncio
import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cluster import NodeSpec
from harness.environments.host.disk import RealDisk
from harness.environments.host.power import SUFFIX, beside, cut_power, power_cut
from harness.errors import UsageError
from tests.tiers import examples

PATHS = st.sampled_from(["a", "b", "wal/1", "wal/2", "deep/er/c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "replace"]), PATHS, st.binary(max_size=20)),
        st.tuples(st.just("truncate"), PATHS, st.integers(0, 20)),
        st.tuples(st.sampled_from(["remove", "sync", "reopen"]), PATHS, st.none()),
    ),
    max_size=12,
)


class Model:
    """A model of a file: its content, its synced length, and whether its name was synced."""

    def __init__(self, data=b"", synced=0, *, named=False):
        self.data, self.synced, self.named = data, synced, named


async def do(disk, model, verb, path, value):
    if verb == "replace":
        await disk.replace(path, value)
        model[path] = Model(value, len(value), named=True)
        return
    if verb == "remove":
        await disk.remove(path)
        model.pop(path, None)
        return
    file = await disk.open(path)
    state = model.setdefault(path, Model())
    if verb == "append":
        assert await file.append(value) == len(state.data)
        state.data += value
    elif verb == "truncate" and value <= len(state.data):
        await file.truncate(value)
        state.data, state.synced = state.data[:value], min(state.synced, value)
    elif verb == "sync":
        await file.sync()
        state.synced, state.named = len(state.data), True
    assert file.size() == len(state.data)
    assert await file.read(2, 5) == state.data[2:7]
    file.close()
    file.close()


def left(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in files
        if not path.name.endswith(SUFFIX)
    }


def check(model, found, *, torn):
    assert set(found) <= set(model)
    for path, file in model.items():
        if path not in found:
            assert not file.named
            continue
        assert file.data.startswith(found[path])
        assert len(found[path]) >= file.synced
        if not torn:
            assert len(found[path]) == file.synced


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3), st.booleans(), st.integers(0, 99))
def test_a_power_cut_takes_what_was_not_synced_and_nothing_else(lives, torn, seed):
    async def live(folder, model, steps):
        disk = RealDisk(folder)
        for step in steps:
            await do(disk, model, *step)
            assert await disk.list() == sorted(model)
            assert await disk.list("wal/") == sorted(p for p in model if p.startswith("wal/"))
        for path, file in model.items():
            assert await disk.read(path) == file.data
        disk.close()

    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), {}
        for steps in lives:
            asyncio.run(live(folder, model, steps))
        before = sum(map(len, left(folder).values()))
        lost = cut_power(folder, random.Random(seed), torn=torn)
        contents = left(folder)
        check(model, contents, torn=torn)
        assert lost == before - sum(map(len, contents.values()))
        assert cut_power(folder, random.Random(seed), torn=torn) == 0  # the rest is durable
        assert left(folder) == contents


def test_surviving_data_are_drawn_between_nothing_and_all(tmp_path):
    async def write(folder):
        disk = RealDisk(folder)
        file = await disk.open("log")
        await file.append(b"durable")
        await file.sync()
        await file.append(b"xyz")
        disk.close()

    kept = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        asyncio.run(write(folder))
        cut_power(folder, random.Random(seed), torn=True)
        kept.add((folder / "log").read_bytes())
    assert kept == {b"durable", b"durablex", b"durablexy", b"durablexyz"}


def test_data_appended_during_a_sync_is_not_durable(tmp_path, monkeypatch):
    real, log = os.fsync, tmp_path / "log"

    def fsync(descriptor):
        if log.read_bytes() == b"early":
            os.write(descriptor, b"late")
        return real(descriptor)

    async def write():
        disk = RealDisk(tmp_path)
        file = await disk.open("log")
        await file.append(b"early")
        monkeypatch.setattr(os, "fsync", fsync)
        await file.sync()
        monkeypatch.undo()
        disk.close()

    asyncio.run(write())
    cut_power(tmp_path, random.Random(1), torn=False)
    assert (tmp_path / "log").read_bytes() == b"early"


def test_syncs_of_a_replaced_file_do_not_count_for_the_new_one(tmp_path):
    async def write():
        disk = RealDisk(tmp_path)
        old = await disk.open("state")
        await old.append(b"1")
        await disk.replace("state", b"a new and durable content")
        await old.append(b"2")
        await old.sync()
        disk.close()

    asyncio.run(write())
    assert not beside(tmp_path / "state").exists()
    cut_power(tmp_path, random.Random(1), torn=False)
    assert (tmp_path / "state").read_bytes() == b"a new and durable content"


@pytest.mark.parametrize("word", [b"", b"short"])
def test_a_word_that_was_never_finished_takes_nothing(tmp_path, word):
    (tmp_path / "log").write_bytes(b"data")
    beside(tmp_path / "log").write_bytes(word)
    assert cut_power(tmp_path, random.Random(1), torn=False) == 0
    assert (tmp_path / "log").read_bytes() == b"data"


def test_foreign_programs_are_refused():
    spec = NodeSpec(name="n1", role="x", ports=(), command=("true",))
    assert power_cut(spec, lose_unsynced=False, torn=False) is None
    with pytest.raises(UsageError, match="n1"):
        power_cut(spec, lose_unsynced=True, torn=True)
