"""A tombstone on a slow disk saves its vote before another replica takes its place."""

import asyncio
from typing import Any

from targets.kudu.consensus import consensus_meta as cmeta
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.tombstoned_voting import TombstonedVoter
from targets.kudu.messages import RaftConfig
from tests.support.env import MemoryDisk
from tests.support.virtual import VirtualClock, run


class SlowDisk(MemoryDisk):
    async def replace(self, path: str, data: bytes) -> None:
        await asyncio.sleep(1)
        await super().replace(path, data)


class Surroundings:
    """The parts of `Env` and of the consensus service that a tombstone uses."""

    def __init__(self) -> None:
        self.disk = SlowDisk()
        self.clock = VirtualClock()
        self.serving: dict[str, Any] = {}

    def spawn(self, coro: Any, *, name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coro, name=name)

    def add_tombstone(self, group_id: str, vote: Any, last_logged: msg.OpId) -> None:
        self.serving[group_id] = vote

    def remove(self, group_id: str) -> None:
        del self.serving[group_id]


def test_a_successor_finds_the_pending_vote():
    async def main() -> None:
        around: Any = Surroundings()
        path = cmeta.vote_state_path("f")
        before = cmeta.VoteState(3, None, RaftConfig(-1, ()), msg.OpId(2, 5))
        await cmeta.save(around.disk, path, before)
        voter = TombstonedVoter(
            around, consensus=around, group_id="g", folder="f", local_uuid="uuid-a"
        )
        await voter.start()
        request = msg.RequestConsensusVoteRequest("uuid-a", "g", "uuid-b", 4, msg.OpId(2, 5))
        answer = around.serving["g"](request)

        await voter.stop()

        found = await cmeta.load(around.disk, path, cmeta.VoteState)
        assert found == cmeta.VoteState(4, "uuid-b", RaftConfig(-1, ()), msg.OpId(2, 5))
        assert answer.response.vote_granted
        assert around.serving == {}

    run(main())
