"""Killed writers and killed upkeep lose no acknowledged run, and upkeep removes their leftovers."""

import contextlib
import os

import pyarrow as pa
import pytest

from results.lake.log.lake import Lake
from results.lake.tables.schema import SCHEMA_VERSION
from tests.results.lake import writers
from tests.results.lake.toy import lake_at
from tests.support.object_store import BUCKET, flaky_proxy, options_for, refused_by, s3_server

pytestmark = [pytest.mark.lake, pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    writers.simulate(folder, 2)
    return folder


@pytest.fixture(scope="module")
def store(folder):
    return writers.originals(folder)


@contextlib.contextmanager
def place(kind, tmp_path):
    """Provide a lake's address, options for direct access, and the proxy for other processes."""
    if kind == "local":
        yield str(tmp_path / "lake"), {}, None
        return
    with s3_server() as server, flaky_proxy(server, seed=1) as proxy:
        yield f"s3://{BUCKET}/lake", options_for(server), proxy


SIZES = [(2, 4, 3), pytest.param((8, 20, 50), marks=pytest.mark.nightly)]


@pytest.mark.parametrize("sizes", SIZES, ids=["few", "many"])
@pytest.mark.parametrize("kind", ["local", pytest.param("s3", marks=pytest.mark.s3)])
def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path, folder, store, kind, sizes):
    count, runs, kills = sizes
    appends = sum(len(writers.plan(number, count, runs)) for number in range(count))
    with place(kind, tmp_path) as (uri, options, proxy):
        indirect = options_for(proxy) if proxy else {}
        environ = {**os.environ, **indirect}
        working = [
            writers.Process(environ, "write", uri, folder, number, count, runs)
            for number in range(count)
        ]
        upkeep = [writers.Process(environ, role, uri) for role in writers.PAUSES]
        try:
            writers.kill_some(working, upkeep, appends, kills)
        finally:
            codes = [process.end() for process in (*working, *upkeep)][:count]
        assert codes == [0] * count
        acknowledged = {key for each in working for line in each.lines for key in line.split()}
        assert len(acknowledged) == count * runs
        lake = Lake.open(uri, storage_options=options)
        losses, _ = writers.judge(lake, store, acknowledged)
        assert losses == {}
        writers.tidy(Lake.open(uri, storage_options=indirect or options))
        assert writers.judge(lake, store, acknowledged) == ({}, [])
        assert proxy is None or refused_by(proxy)


def judged(store, lake, keys, acknowledged):
    for key in keys:
        lake.append(writers.rows_of(store, key))
    return writers.judge(lake, store, set(acknowledged))[0]


KEYS = [writers.key_of(0, number) for number in range(3)]


def doubled(store):
    return writers.copy_of(store[0], KEYS[0], "elsewhere")  # in another partition


def changed(store):
    rows = writers.rows_of(store, KEYS[0])
    return {**rows, "operations": rows["operations"].slice(1)}


@pytest.mark.parametrize(
    ("first", "keys", "losses"),
    [
        (None, KEYS[:2], {"lost": 1}),
        (doubled, KEYS, {"doubled": 1, "other": 1}),
        (changed, KEYS[1:], {"other": 1}),
    ],
)
def test_the_judge_finds_lost_doubled_and_foreign_rows(tmp_path, store, first, keys, losses):
    lake = lake_at(tmp_path / "lake", schemas=None, version=SCHEMA_VERSION)
    if first:
        lake.append(first(store))
    assert judged(store, lake, keys, KEYS) == losses


def test_the_judge_finds_damage(tmp_path, store):
    lake = lake_at(tmp_path / "lake", schemas=None, version=SCHEMA_VERSION)
    assert judged(store, lake, KEYS, KEYS) == {}
    with contextlib.closing(pa.OSFile(lake.files("nodes")[0].uri, "ab")) as file:
        file.write(b"more")
    assert judged(store, lake, [], KEYS) == {"damage": 1}
