"""`bench.results.lake_writers` in small: killed processes lose nothing that they said was there."""

import contextlib
import subprocess
import sys

import pyarrow as pa
import pytest

from bench.measure import ROOT
from bench.results import lake_writers
from results.lake.tables.schema import SCHEMA_VERSION
from results.lake.upkeep.soundness import check
from tests.results.lake.toy import lake_at

pytestmark = [pytest.mark.lake, pytest.mark.slow, pytest.mark.process]

WORDS = ["--writers", "2", "--runs", "4", "--kills", "3", "--seeds", "2"]


@pytest.mark.parametrize(
    "words", [["--local"], pytest.param([], marks=pytest.mark.s3)], ids=["local", "s3"]
)
def test_killed_writers_lose_nothing_that_was_acknowledged(words):
    done = subprocess.run(
        [sys.executable, "-m", "bench.results.lake_writers", *WORDS, *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "acknowledged   8\n" in done.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The rows of a real run."""
    folder = tmp_path_factory.mktemp("store")
    lake_writers.simulate(folder, 1)
    return lake_writers.originals(folder)


def judged(store, lake, keys, acknowledged):
    for key in keys:
        lake.append(lake_writers.rows_of(store, key))
    return lake_writers.judge(lake, store, set(acknowledged))


def lake_in(folder):
    return lake_at(folder / "lake", schemas=None, version=SCHEMA_VERSION)


KEYS = [lake_writers.key_of(0, number) for number in range(3)]


def doubled(store):
    return lake_writers.copy_of(store[0], KEYS[0], "elsewhere")  # another partition


def changed(store):
    rows = lake_writers.rows_of(store, KEYS[0])
    return {**rows, "operations": rows["operations"].slice(1)}


@pytest.mark.parametrize(
    ("first", "keys", "lost_doubled_other"),
    [(None, KEYS[:2], (1, 0, 0)), (doubled, KEYS, (0, 1, 1)), (changed, KEYS[1:], (0, 0, 1))],
)
def test_the_judge_finds_what_is_lost_doubled_or_other(
    tmp_path, store, first, keys, lost_doubled_other
):
    lake = lake_in(tmp_path)
    if first:
        lake.append(first(store))
    found = judged(store, lake, keys, KEYS)
    assert (found.lost, found.doubled, found.other) == lost_doubled_other
    assert (found.damage, found.kept) == (0, False)


def test_the_judge_finds_damage(tmp_path, store):
    lake = lake_in(tmp_path)
    assert judged(store, lake, KEYS, KEYS).kept
    with contextlib.closing(pa.OSFile(lake.files("nodes")[0].uri, "ab")) as file:
        file.write(b"more")
    found = judged(store, lake, [], KEYS)
    assert (found.damage, found.kept) == (1, False)


def test_merges_are_counted_whose_inputs_a_vacuum_removed(tmp_path, store):
    lake = lake_in(tmp_path)
    assert judged(store, lake, KEYS, KEYS).kept
    assert lake_writers.merges_of(lake) == 0
    lake_writers.tidy(lake)
    merged = sum(file.batch is None for table in lake.tables for file in lake.files(table))
    assert lake_writers.merges_of(lake) == merged > 0
    assert not check(lake)
    assert judged(store, lake, [], KEYS).kept
