"""Follower reads are answered or refused, and wrong staleness bounds are detected."""

from __future__ import annotations

import asyncio

import pytest

from harness.case import Case
from harness.nodes.faults import DRIFT_PPM_MAX
from harness.ops import OpType
from targets.kudu.master.follower_reads import FollowerReads
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy
from tests.support import cases

SEEDS = range(1, 5)


def judged(seed: int):
    case = Case(
        seed=seed,
        workload="follower-reads",
        nemeses=("partition-leader", "pause-random"),
        interval_s=3.0,
        duration_s=2.5,
        time_limit_s=12.0,
    )
    return cases.judged(case)


def test_no_answer_is_older_than_it_says():
    judgement = judged(SEEDS[0])
    assert judgement.verdict == "valid", judgement


def no_check(self: FollowerReads) -> int | None:
    """A replacement for the check of a staleness bound. It accepts every state."""
    return 0 if self._leadership.replica is not None else None


def asked_after(self: FollowerReads) -> int | None:
    """A replacement that returns a staleness bound twenty times too small."""
    age_ns = None if self._asked_ns is None else self._clock.monotonic_ns() - self._asked_ns
    return None if age_ns is None else age_ns // 20


@pytest.mark.slow
@pytest.mark.parametrize("defect", [no_check, asked_after])
def test_a_bound_that_lies_is_caught(monkeypatch, defect):
    monkeypatch.setattr(FollowerReads, "_bound_ns", defect)
    found = [cases.convicting(judged(seed)) for seed in SEEDS]
    assert any("staleness" in each for each in found)
    assert any("linearizable-catalog" in each for each in found)


async def _get(cluster: Deployed, allowed_ms: int, timeout_s: float = 3.0):
    client = cluster.new_client()
    return await cluster.do(
        client, "get-stale", name="t", max_staleness_ms=allowed_ms, timeout_s=timeout_s
    )


@on(deploy)
async def test_any_master_answers(cluster):
    made = await cluster.ok(cluster.new_client(), "create", name="t")
    answers = [await _get(cluster, 2000) for _ in range(12)]
    assert {answer.type for answer in answers} == {OpType.OK}
    assert {answer.value["table_id"] for answer in answers} == {made["table_id"]}
    assert all(0 <= answer.value["bound_ns"] <= 2e9 for answer in answers)
    assert {answer.node for answer in answers} == {"m1", "m2", "m3"}
    missing = await cluster.do(
        cluster.new_client(), "get-stale", name="none", max_staleness_ms=1000
    )
    assert (missing.type, missing.value["result"]) == (OpType.OK, "not-found")


async def _left_alone(cluster: Deployed) -> str:
    """Kill both other masters, and return a follower that has answered before."""
    await cluster.ok(cluster.new_client(), "create", name="t")
    leader = await cluster.leader()
    alone = next(node for node in ("m1", "m2", "m3") if node != leader)
    while (await _get(cluster, 2000)).node != alone:
        pass
    for other in {"m1", "m2", "m3"} - {alone}:
        await cluster.session.cluster.kill(other)
    return alone


@on(deploy)
async def test_a_follower_that_is_cut_off_answers_as_long_as_its_state_is_new_enough(cluster):
    alone = await _left_alone(cluster)
    await asyncio.sleep(5.0)
    old = await _get(cluster, 60_000)
    assert (old.type, old.node) == (OpType.OK, alone), old
    assert old.value["bound_ns"] >= 5e9
    young = await _get(cluster, 1000)
    assert young.type is OpType.FAIL, young


@on(deploy)
async def test_a_clock_that_runs_slow_makes_no_answer_look_newer_than_it_is(cluster):
    alone = await _left_alone(cluster)
    await cluster.session.cluster.skew(alone, offset_ns=0, drift_ppm=-DRIFT_PPM_MAX)
    await asyncio.sleep(5.0)

    old = await _get(cluster, 60_000)

    assert (old.type, old.node) == (OpType.OK, alone), old
    assert old.value["bound_ns"] >= 5e9
