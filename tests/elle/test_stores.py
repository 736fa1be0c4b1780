"""The checker never blames a store at its own isolation level, but soon blames a stronger one."""

import os
import random

import pytest

from checkers.elle import check_list_append, check_rw_register
from checkers.elle.models import UNKNOWN_TYPES, canonical, impossible_models
from harness.ops import Verdict
from tests.elle.stores import as_registers, run

# level of the store -> (model that holds, model that soon turns out to be violated)
LEVELS = {
    "strict-serializable": ("strict-serializable", None),
    "serializable": ("serializable", "strict-serializable"),
    "snapshot-isolation": ("strong-snapshot-isolation", "serializable"),
    "no-first-committer": ("read-atomic", "snapshot-isolation"),
    "read-committed": ("read-committed", "snapshot-isolation"),
    "read-uncommitted": ("strong-read-uncommitted", "read-committed"),
}
SEEDS = range(12)
# level of the store -> the anomaly types that it may show under strict serializability
ALLOWED: dict[str, set[str]] = {
    "strict-serializable": set(),
    "serializable": {"G-single-item-realtime", "G-nonadjacent-item-realtime", "G2-item-realtime"},
    "snapshot-isolation": {"G2-item", "G2-item-realtime"},
}
HISTORIES = int(os.environ.get("HARNESS_ELLE_HISTORIES", "20"))


@pytest.mark.parametrize("level", LEVELS)
def test_no_level_is_blamed_for_its_own_guarantees(level):
    kept, _ = LEVELS[level]
    for seed in SEEDS:
        history = run(level, seed, lost_answers=0.05 * (seed % 2))
        result = check_list_append(history, consistency_models=(kept,))
        assert (result.verdict, dict(result.anomalies)) == (Verdict.VALID, {}), seed


@pytest.mark.parametrize("level", LEVELS)
def test_many_shapes_of_histories(level):
    kept, _ = LEVELS[level]
    for seed in range(HISTORIES):
        rng = random.Random(f"shape {seed}")
        history = run(
            level,
            seed + 1000,
            transactions=rng.choice((10, 30, 60)),
            clients=rng.choice((2, 3, 5, 8)),
            keys="xyzuv"[: rng.randint(1, 5)],
            lost_answers=rng.choice((0, 0, 0.05, 0.2)),
            final_read=rng.random() < 0.5,
        )
        strict = check_list_append(history)
        told = set(strict.anomalies) - UNKNOWN_TYPES
        assert level not in ALLOWED or told <= ALLOWED[level], seed
        assert canonical(kept) not in impossible_models(told), seed
        assert check_list_append(history, consistency_models=(kept,)).verdict is not Verdict.INVALID


@pytest.mark.parametrize("level", [level for level in LEVELS if LEVELS[level][1]])
def test_every_level_is_found_out(level):
    _, broken = LEVELS[level]
    assert broken is not None
    verdicts = [
        check_list_append(run(level, seed), consistency_models=(broken,)).verdict for seed in SEEDS
    ]

    assert verdicts.count(Verdict.INVALID) >= len(SEEDS) // 2


def test_snapshot_isolation_shows_write_skew_and_nothing_worse():
    kinds: set[str] = set()
    for seed in SEEDS:
        kinds |= set(check_list_append(run("snapshot-isolation", seed)).anomalies)

    assert {"G2-item", "G2-item-realtime"} == kinds


def test_lost_updates_are_the_mark_of_a_store_without_first_committer_wins():
    results = [check_list_append(run("no-first-committer", seed)) for seed in SEEDS]

    assert any("lost-update" in result.anomalies for result in results)
    assert all("G1c" not in result.anomalies for result in results)


@pytest.mark.parametrize(
    "options",
    [{}, {"wfr_keys": True}, {"sequential_keys": True}, {"linearizable_keys": True},
     {"linearizable_keys": True, "wfr_keys": True, "sequential_keys": True}],
    ids=str,
)  # fmt: skip
def test_registers_of_a_strict_store_are_never_blamed(options):
    for seed in SEEDS:
        history = as_registers(run("strict-serializable", seed, lost_answers=0.05 * (seed % 2)))
        result = check_rw_register(history, **options, unknown_writes=bool(seed % 3))
        assert (result.verdict, dict(result.anomalies)) == (Verdict.VALID, {}), seed


def test_registers_of_weaker_stores_are_found_out():
    for level in ("serializable", "snapshot-isolation", "read-committed"):
        results = [
            check_rw_register(as_registers(run(level, seed)), linearizable_keys=True)
            for seed in SEEDS
        ]
        assert any(result.verdict is Verdict.INVALID for result in results), level
