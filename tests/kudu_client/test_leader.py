"""The client asks all masters for the leader, and compares their terms."""

import asyncio

import pytest

from targets.kudu import messages as m
from targets.kudu.client.leader import LeaderFinder, MasterAnswer, choose_leader, first_leader
from targets.kudu.client.session import Deadline, RetryPolicy
from targets.kudu.rpc import RpcError
from tests.kudu_client.fakes import FakeEnv, FakeRpc, Late, Silence, connect
from tests.support.virtual import run

MASTERS = ("m1:7051", "m2:7051", "m3:7051")
UNINITIALISED = m.MasterError(
    m.MasterErrorCode.CATALOG_MANAGER_NOT_INITIALIZED, m.AppStatus.SERVICE_UNAVAILABLE, "starting"
)


def find(answers: dict[str, list], *, limit_s: float = 5.0, masters=MASTERS, policy=None):
    async def main():
        rpc = FakeRpc({(a, "ConnectToMaster"): answers[a] for a in masters})
        env = FakeEnv()
        finder = LeaderFinder(env, rpc, masters, policy or RetryPolicy())
        leader = await finder.find(Deadline(env.clock, limit_s))
        return leader, env.clock.monotonic_ns() / 1e9, rpc

    return run(main())


@pytest.mark.parametrize(
    ("answers", "masters", "expected"),
    [
        ([], 3, None),
        ([("m1", 1, True)], 1, "m1"),
        ([("m1", 5, True)], 3, None),  # one of three masters is not a majority
        ([("m1", 5, True), ("m2", 5, False)], 3, "m1"),
        ([("m1", 5, True), ("m2", 6, False)], 3, None),  # m2 knows of a newer term
        ([("m1", 5, True), ("m2", 6, True)], 3, "m2"),
        ([("m1", 5, True), ("m2", 5, False)], 5, None),
        ([("m1", 5, True), ("m2", 5, False)], 4, None),
        ([("m1", 5, False), ("m2", 5, False), ("m3", 5, False)], 3, None),
    ],
)
def test_choice(answers, masters, expected):
    asked = [f"m{number}" for number in range(1, masters + 1)]
    chosen = choose_leader([MasterAnswer(*a) for a in answers], asked)
    assert (chosen.address if chosen else None) == expected


def test_a_majority_of_the_members_it_names_is_enough_and_needed():
    two = MasterAnswer("m1", 5, True, ("m1", "m2", "m3")), MasterAnswer("m2", 5, False)
    assert choose_leader(two, ["m1", "m2", "m3", "m4", "m5"]) == two[0]
    others = MasterAnswer("m1", 5, True, ("m1", "m2", "m3")), MasterAnswer("m4", 5, False)
    assert choose_leader(others, ["m1", "m4"]) is None


@pytest.mark.loop(run=run)
async def test_members_are_learnt_from_answers():
    rpc = FakeRpc({(a, "ConnectToMaster"): [connect(3)] for a in MASTERS})
    rpc.script["m1:7051", "ConnectToMaster"] = [connect(3, members=MASTERS)]
    rpc.script["m3:7051", "ConnectToMaster"] = [connect(3, "LEADER", members=MASTERS)]
    env = FakeEnv()
    finder = LeaderFinder(env, rpc, MASTERS[:1], RetryPolicy())
    assert await finder.find(Deadline(env.clock, 1.0)) == "m3:7051"


@pytest.mark.loop(run=run)
@pytest.mark.parametrize(("relearn_s", "found"), [(2.0, "m2:7051"), (None, None)])
async def test_later_members_are_known_when_the_only_known_leader_is_lost(relearn_s, found):
    alone, more = MASTERS[:1], MASTERS
    rpc = FakeRpc({(a, "ConnectToMaster"): [connect(3, members=more)] for a in MASTERS})
    rpc.script["m1:7051", "ConnectToMaster"] = [
        connect(3, "LEADER", members=alone),
        connect(3, "LEADER", members=more),
    ]
    env = FakeEnv()
    finder = LeaderFinder(env, rpc, alone, RetryPolicy(relearn_s=relearn_s))
    for _ in range(5):
        assert await finder.find(Deadline(env.clock, 1000.0)) == "m1:7051"
        await asyncio.sleep(1.0)
    assert len(rpc.sent) <= 5  # it asks again every two seconds at most, not for each operation
    rpc.script["m1:7051", "ConnectToMaster"] = [RpcError("refused", sent=False)]
    rpc.script["m2:7051", "ConnectToMaster"] = [connect(4, "LEADER", members=more)]
    finder.forget()
    assert await finder.find(Deadline(env.clock, 10.0)) == found


@pytest.mark.loop(run=run)
async def test_all_masters_are_asked_at_once_and_the_leader_is_remembered():
    rpc = FakeRpc({(a, "ConnectToMaster"): [connect(3)] for a in MASTERS})
    rpc.script["m2:7051", "ConnectToMaster"] = [connect(3, "LEADER")]
    env = FakeEnv()
    finder = LeaderFinder(env, rpc, MASTERS, RetryPolicy())
    assert await finder.find(Deadline(env.clock, 1.0)) == "m2:7051"
    asked = len(rpc.sent)
    assert await finder.find(Deadline(env.clock, 1.0)) == "m2:7051"
    assert asked == len(rpc.sent) <= 3
    finder.forget()
    assert await finder.find(Deadline(env.clock, 1.0)) == "m2:7051"
    assert len(rpc.sent) > asked


SILENT, REFUSED = [Silence()], [RpcError("refused", sent=False)]


@pytest.mark.parametrize(
    ("answers", "expected", "least_s", "most_s"),
    [
        # a stale leader loses, even if it answers first
        ([[connect(4, "LEADER")], [Late(0.05, connect(5, "LEADER"))], [Late(0.02, connect(5))]],
         "m2:7051", 0, 1.0),
        # a stale leader is not accepted while its successor is silent
        ([[connect(4, "LEADER")], SILENT, [connect(5)]], None, 2.99, 3.01),
        # a silent minority does not delay the leader
        ([SILENT, [connect(5)], [connect(5, "LEADER")]], "m3:7051", 0, 0.01),
        # the search waits for an election in progress
        ([REFUSED, [connect(4), connect(4), connect(5, "LEADER")],
          [connect(4, error=UNINITIALISED), connect(4), connect(5)]], "m2:7051", 0.1, 2.0),
        # after a majority without a leader, the search waits only briefly for the others
        ([SILENT, [connect(4), connect(5)], [connect(4), connect(5, "LEADER")]],
         "m3:7051", 0, 0.5),
        # the deadline ends the search
        ([SILENT] * 3, None, 2.99, 3.01),
        # a single master needs no other answer
        ([[connect(1, "LEADER")]], "m1:7051", 0, 0.01),
    ],
)  # fmt: skip
def test_a_search(answers, expected, least_s, most_s):
    by_master = dict(zip(MASTERS, answers, strict=False))
    leader, took_s, _ = find(by_master, limit_s=3.0, masters=tuple(by_master))
    assert leader == expected
    assert least_s <= took_s <= most_s


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(RetryPolicy(), "m2:7051"), (RetryPolicy(first_leader_wins=True), "m1:7051")],
)
def test_switch_leader_pick_believes_the_first_that_claims_to_lead(policy, expected):
    answers = {
        "m1:7051": [connect(1, "LEADER")] * 9,
        "m2:7051": [Late(0.3, connect(2, "LEADER"))] * 9,
        "m3:7051": [Late(0.2, connect(2))] * 9,
    }
    leader, _, _ = find(answers, policy=policy)
    assert leader == expected
    followers = [MasterAnswer("m1", 3, False)]
    assert first_leader(followers) is None
