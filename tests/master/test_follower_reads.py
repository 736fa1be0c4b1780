"""Reads with a staleness bound, on a follower whose leader is scripted."""

from typing import Any

import pytest

from targets.kudu import messages as m
from targets.kudu.consensus.messages import (
    ConsensusError,
    ConsensusErrorCode,
    ReadIndexRequest,
    ReadIndexResponse,
)
from tests.master.fakes import FakeMaster, refusal
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
LEADER = m.PeerConfig("b" * 32, "m2:7051")


class Follower(FakeMaster):
    """A follower that has applied the log up to `replica.applied_index`; its leader answers with
    `told`.
    """

    def __init__(self, told: ReadIndexResponse) -> None:
        super().__init__()
        replica: Any = self.replica
        replica.leader_uuid, replica.applied_index = LEADER.uuid, 6
        replica.config = m.RaftConfig(-1, (*replica.config.peers, LEADER))
        self.asked: list[tuple[str, Any]] = []

        async def call(address: str, request: Any, **_: Any) -> Any:
            self.asked.append((address, request))
            return told

        client: Any = self.client
        client.call = call
        self.leadership.on_role_change(self.replica)

    async def read(self) -> m.ListTablesResponse:
        return await self.ask(m.ListTablesRequest(max_staleness_ms=1000))


async def test_a_follower_answers_once_it_has_applied_the_log_of_its_leader():
    master = Follower(ReadIndexResponse(1, 7))
    assert refusal(await master.read()).code is m.MasterErrorCode.TOO_STALE

    replica: Any = master.replica
    replica.applied_index = 7
    answer = await master.read()

    assert answer.error is None
    assert 0 <= answer.meta.bound_ns <= 1e9
    assert {(address, request.dest_uuid) for address, request in master.asked} == {
        (LEADER.address, LEADER.uuid)
    }
    assert {type(request) for _, request in master.asked} == {ReadIndexRequest}


async def test_a_leader_that_cannot_confirm_itself_tells_nothing():
    error = ConsensusError(ConsensusErrorCode.NOT_THE_LEADER, "deposed")
    master = Follower(ReadIndexResponse(error=error))

    assert refusal(await master.read()).code is m.MasterErrorCode.TOO_STALE
