"""Tombstones: replicas whose data were removed, but which still vote (KUDU-871).

A tombstone consists of the vote state alone: term, vote, committed configuration, and the last
entry of the removed log. A tombstone votes for no candidate whose log ends before that entry, so
the entries that the removed replica acknowledged remain safe. A replica that is later created in
the tombstone's place follows the same rule. It does not run for leader until its own log has
reached that entry.

Without the votes of tombstones, a group of three could be left without a leader: if one member is
lost for good, and a delayed DeleteTablet call turns a second member into a tombstone.
"""

from __future__ import annotations

import asyncio

from harness.env import Env
from targets.kudu.consensus import consensus_meta as cmeta
from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.consensus_service import ConsensusService
from targets.kudu.consensus.raft_core import RaftCore
from targets.kudu.rpc import Answer


class TombstonedVoter:
    """Votes on behalf of a tombstone, from `start` to `stop`.

    While a vote is being saved, other vote requests are answered with CONSENSUS_BUSY.
    """

    def __init__(
        self, env: Env, *, consensus: ConsensusService, group_id: str, folder: str, local_uuid: str
    ) -> None:
        self._env = env
        self._consensus = consensus
        self._group_id = group_id
        self._path = cmeta.vote_state_path(folder)
        self._local_uuid = local_uuid
        self._core: RaftCore | None = None
        self._last_logged = msg.OpId(0, 0)
        self._saving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the vote state and start to answer; without a vote state, answer no requests."""
        state = await cmeta.load(self._env.disk, self._path, cmeta.VoteState)
        if state is None:
            return
        self._last_logged = state.last_logged
        self._core = RaftCore(
            self._local_uuid,
            self._group_id,
            term=state.current_term,
            voted_for=state.voted_for,
            config=state.committed_config,
            base=msg.OpId(0, 0),
            last_logged=state.last_logged,
        )
        self._consensus.add_tombstone(self._group_id, self._vote, state.last_logged)

    async def stop(self) -> None:
        """Stop answering, and wait until a vote in progress is saved. Safe to call twice."""
        if self._core is not None:
            self._core = None
            self._consensus.remove(self._group_id)
        if self._saving is not None:
            await self._saving

    def _vote(self, request: msg.RequestConsensusVoteRequest) -> Answer:
        answer = Answer()
        core = self._core
        assert core is not None, "the voter is stopped"
        if self._saving is not None and not self._saving.done():
            busy = msg.ConsensusError(msg.ConsensusErrorCode.CONSENSUS_BUSY, "it is voting")
            answer.set(msg.RequestConsensusVoteResponse(core.uuid, core.term, False, busy))
            return answer
        effects = core.step(ev.VoteRequested(request, answer), self._env.clock.monotonic_ns())
        if any(isinstance(effect, ev.SaveMeta) for effect in effects):
            self._saving = self._env.spawn(self._save(effects), name=f"vote of {self._group_id}")
        else:
            _reply(effects)
        return answer

    async def _save(self, effects: list[ev.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ev.SaveMeta):
                state = cmeta.VoteState(
                    effect.term, effect.voted_for, effect.committed_config, self._last_logged
                )
                await cmeta.save(self._env.disk, self._path, state)
        _reply(effects)


def _reply(effects: list[ev.Effect]) -> None:
    for effect in effects:
        if isinstance(effect, ev.Reply):
            effect.reply.set(effect.response)
