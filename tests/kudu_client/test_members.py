"""The client asks masters to change members, and proves the outcome from their answers."""

from typing import Any

import msgspec
import pytest

from harness.ops import OpType
from harness.plugins import Completion, Request
from targets.kudu import messages as m
from targets.kudu.client import KuduClient
from targets.kudu.consensus import messages as raft
from targets.kudu.rpc import RpcError
from tests.kudu_client.fakes import FakeEnv, FakeRpc, Silence, connect
from tests.support.virtual import run

META = m.Meta("uuid-1", 7, 42)
M1, M2 = MASTERS = ("m1:7051", "m2:7051")
TS = tuple(f"t{number}:7050" for number in (1, 2, 3, 4))
ADD = ("add-master", {"node": "m4"})
LIST = ("list-masters", {})
MOVE = ("move-replica", {"table": "t"})
CODE, STATUS = m.MasterErrorCode, m.AppStatus
INDEX = 11  # index of the tablet's configuration
Script = dict[tuple[str, str], list[Any]]

ADDED = m.AddMasterResponse(META)
LISTED = m.ListMastersResponse(META, masters=(m.MasterEntry("u", M1, "VOTER", "LEADER"),))
NOT_LEADING = m.MasterError(CODE.NOT_THE_LEADER, STATUS.ILLEGAL_STATE, "no more")
NOT_SENT, LOST = RpcError("no route", sent=False), RpcError("broke", sent=True)


def led_by_both_in_turn() -> Script:
    """Script two leaders: the first search finds one of them, all later ones the other."""
    return {
        (M1, "ConnectToMaster"): [connect(7, "LEADER"), connect(8)],
        (M2, "ConnectToMaster"): [connect(7), connect(8, "LEADER")],
    }


def invoke(requests: list[tuple[str, Any]], script: Script) -> tuple[list[Completion], FakeRpc]:
    async def main() -> tuple[list[Completion], FakeRpc]:
        rpc = FakeRpc(led_by_both_in_turn() | script)
        client = KuduClient(FakeEnv(), rpc, masters=MASTERS, process=3)
        return [await client.invoke(Request(*r), timeout_s=2.0) for r in requests], rpc

    return run(main())


def asked(rpc: FakeRpc, method: str) -> list[str]:
    return [address for address, name, _ in rpc.sent if name == method]


@pytest.mark.parametrize("answer", [NOT_SENT, m.AddMasterResponse(META, NOT_LEADING)])
def test_a_change_that_did_nothing_is_asked_of_the_next_leader(answer):
    script = {(M1, "AddMaster"): [answer], (M2, "AddMaster"): [ADDED]}
    (completion,), rpc = invoke([ADD], script)
    assert (completion.type, completion.value) == (OpType.OK, {"result": "ok", "term": 7})
    assert asked(rpc, "AddMaster") == [M1, M2]
    assert [attempt.node for attempt in completion.attempts] == ["m1", "m2"]
    assert rpc.requests("AddMaster")[0].address == "m4:7051"


ABORTED = m.MasterError(CODE.NOT_THE_LEADER, STATUS.ABORTED, "while writing", indeterminate=True)
MEMBER = m.MasterError(CODE.MASTER_ALREADY_PRESENT, STATUS.ALREADY_PRESENT, "it is a member")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, OpType.INFO),
        (Silence(), OpType.INFO),
        (m.AddMasterResponse(META, ABORTED), OpType.INFO),
        (m.AddMasterResponse(META, MEMBER), OpType.FAIL),
    ],
)
def test_a_change_that_was_refused_or_may_have_happened_is_asked_once(answer, kind):
    script = {(address, "AddMaster"): [answer] for address in MASTERS}
    (completion,), rpc = invoke([ADD], script)
    assert (completion.type, completion.value) == (kind, None)
    assert asked(rpc, "AddMaster") == [M1]


def test_after_a_silent_leader_the_next_operation_looks_for_another():
    script = {(M1, "AddMaster"): [LOST], (M2, "AddMaster"): [ADDED]}
    completions, rpc = invoke([ADD, ADD], script)
    assert [completion.type for completion in completions] == [OpType.INFO, OpType.OK]
    assert asked(rpc, "AddMaster") == [M1, M2]


def test_requests_without_a_leader_fail_at_the_deadline():
    script = {(address, "AddMaster"): [NOT_SENT] for address in MASTERS}
    (completion,), rpc = invoke([ADD], script)
    assert (completion.type, completion.value) == (OpType.FAIL, None)
    assert len(rpc.requests("AddMaster")) == len(completion.attempts) > 2


NO_REVISION = m.ListMastersResponse(m.Meta("u", 7))


@pytest.mark.parametrize("answer", [NOT_SENT, LOST, NO_REVISION])
def test_a_list_is_asked_for_until_a_leader_answers(answer):
    script = {(M1, "ListMasters"): [answer], (M2, "ListMasters"): [LISTED]}
    (completion,), rpc = invoke([LIST], script)
    assert completion.value == {
        "result": "ok", "masters": [["m1", "LEADER", "VOTER"]], "term": 7,
    }  # fmt: skip
    assert asked(rpc, "ListMasters") == [M1, M2]


# --- replicas --------------------------------------------------------------------------------


def located(leader: int | None = 0, *, count: int = 3) -> m.GetTableLocationsResponse:
    replicas = tuple(
        m.ReplicaLocation(f"u{n}", address, "LEADER" if n == leader else "FOLLOWER", "VOTER")
        for n, address in enumerate(TS[:count])
    )
    tablet = m.TabletLocations("T", m.Partition(b"", b""), replicas)
    return m.GetTableLocationsResponse(META, table_id="id", tablets=(tablet,))


def servers(count: int = 4) -> m.ListTabletServersResponse:
    found = tuple(m.TabletServerEntry(f"u{n}", TS[n], 0, 0) for n in range(count))
    return m.ListTabletServersResponse(META, servers=found)


def peers(**of_the_last: Any) -> m.RaftConfig:
    *others, last = (m.PeerConfig(f"u{n}", TS[n]) for n in range(3))
    return m.RaftConfig(INDEX, (*others, msgspec.structs.replace(last, **of_the_last)))


def consensus(config: m.RaftConfig, **also: Any) -> raft.GetConsensusStateResponse:
    return raft.GetConsensusStateResponse("u0", committed_config=config, **also)


def moving(answer: Any, state: Any = None) -> Script:
    known: Script = {(address, "GetTableLocations"): [located()] for address in MASTERS}
    known |= {(address, "ListTabletServers"): [servers()] for address in MASTERS}
    known[TS[0], "GetConsensusState"] = [state or consensus(peers())]
    return {**known, (TS[0], "BulkChangeConfig"): [answer]}


def test_a_move_adds_a_replica_and_marks_the_leaving_one():
    (completion,), rpc = invoke([MOVE], moving(raft.ChangeConfigResponse()))
    assert completion.value["result"] == "ok"
    assert completion.value["target"] == "t4"
    (request,) = rpc.requests("BulkChangeConfig")
    assert request.cas_config_opid_index == INDEX
    added, leaving = request.changes
    newcomer = added.peer
    assert (newcomer.uuid, newcomer.member_type, newcomer.promote) == ("u3", "NON_VOTER", True)
    assert leaving.peer.uuid in {"u1", "u2"}  # a move never removes the leader
    assert leaving.peer.replace


def test_the_only_replica_of_a_tablet_moves_though_it_leads():
    alone = consensus(m.RaftConfig(INDEX, (m.PeerConfig("u0", TS[0]),)))
    known = {(address, "GetTableLocations"): [located(count=1)] for address in MASTERS}
    (completion,), rpc = invoke([MOVE], moving(raft.ChangeConfigResponse(), alone) | known)
    assert (completion.type, completion.value["source"]) == (OpType.OK, "t1")
    (request,) = rpc.requests("BulkChangeConfig")
    added, leaving = request.changes
    assert added.peer.uuid in {"u1", "u2", "u3"}
    assert (leaving.peer.uuid, leaving.peer.member_type, leaving.peer.replace) == (
        "u0", "VOTER", True
    )  # fmt: skip


def changed(code: raft.ConsensusErrorCode) -> raft.ChangeConfigResponse:
    return raft.ChangeConfigResponse(error=raft.ConsensusError(code, "because"))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, OpType.INFO),
        (Silence(), OpType.INFO),
        (changed(raft.ConsensusErrorCode.ABORTED), OpType.INFO),
        (NOT_SENT, OpType.FAIL),
        (changed(raft.ConsensusErrorCode.ILLEGAL_STATE), OpType.FAIL),
        (changed(raft.ConsensusErrorCode.NOT_THE_LEADER), OpType.FAIL),
    ],
)
def test_outcomes_of_a_move(answer, kind):
    (completion,), rpc = invoke([MOVE], moving(answer))
    assert completion.type is kind
    assert len(rpc.requests("BulkChangeConfig")) == 1


@pytest.mark.parametrize(
    "state",
    [
        NOT_SENT,
        LOST,
        Silence(),
        raft.GetConsensusStateResponse("u0"),
        consensus(peers(member_type="NON_VOTER")),
        consensus(peers(replace=True)),
        consensus(peers(), pending_config=peers(replace=True)),
        consensus(
            peers(), error=raft.ConsensusError(raft.ConsensusErrorCode.TABLET_NOT_FOUND, "copied")
        ),
    ],
)
def test_no_move_starts_during_another_or_without_a_known_state(state):
    (completion,), rpc = invoke([MOVE], moving(raft.ChangeConfigResponse(), state))
    assert completion.type is OpType.FAIL
    assert not rpc.requests("BulkChangeConfig")


@pytest.mark.parametrize("answer", [NOT_SENT, LOST, m.GetTableLocationsResponse(META, NOT_LEADING)])
def test_locations_of_replicas_are_asked_of_the_leader(answer):
    script = moving(raft.ChangeConfigResponse()) | {(M1, "GetTableLocations"): [answer]}
    (completion,), rpc = invoke([MOVE], script)
    assert completion.type is OpType.OK
    assert asked(rpc, "GetTableLocations") == [M1, M2]


@pytest.mark.parametrize(
    "known",
    [
        {(M1, "GetTableLocations"): [located(leader=None)]},
        {(M1, "ListTabletServers"): [servers(3)]},
    ],
)
def test_a_move_from_or_to_nowhere_failed(known):
    (completion,), rpc = invoke([MOVE], moving(raft.ChangeConfigResponse()) | known)
    assert completion.type is OpType.FAIL
    assert rpc.requests("BulkChangeConfig") == []
