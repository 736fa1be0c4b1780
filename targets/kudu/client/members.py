"""Membership, as an administrator changes it: masters come and go, replicas move.

A change is sent once to whoever leads. It is `fail` where it was refused before anything was
appended. Only what says `indeterminate` (or ABORTED, by a tablet's leader), or is not answered,
leaves it open. What did nothing for certain, since it could not be sent or "not the leader" is the
answer, is no attempt at all: the next leader is asked, and so it is for what only looks.

A replica moves as `kudu tablet change_config move_replica` has it: one change of the tablet's
configuration adds the new server without a vote, to be promoted, and marks the old one to be
replaced; the masters see to the rest. As there, the tablet must be well before: no replica of it is
on its way in or out. A second one on its way out may never be replaced, for want of a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.env import Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request
from harness.vocabularies import members as v
from targets.kudu import messages as m
from targets.kudu.client.caller import Caller
from targets.kudu.client.classify import error_text, is_of_another, rpc_error_text
from targets.kudu.client.leader import LeaderFinder
from targets.kudu.client.policy import RetryPolicy
from targets.kudu.client.time import Deadline
from targets.kudu.consensus import messages as raft
from targets.kudu.rpc import RpcError

_LOCATIONS_MAX: Final = 1000


class _Move(NamedTuple):
    """A replica that is to go to another server."""

    tablet_id: str
    leader: m.ReplicaLocation
    source: m.ReplicaLocation
    target: m.TabletServerEntry


def _stays(peer: m.PeerConfig) -> bool:
    return peer.member_type == "VOTER" and not peer.replace


class _AskAnotherError(Exception):
    """The master that was asked did nothing, and is not the one to ask."""


class MembersClient:
    """Membership as one client process changes it; `addresses` are those of masters by node."""

    def __init__(
        self,
        env: Env,
        rpc: Caller,
        leader: LeaderFinder,
        policy: RetryPolicy,
        addresses: Mapping[str, str],
    ) -> None:
        self._env = env
        self._rpc = rpc
        self._leader = leader
        self._policy = policy
        self._addresses = addresses

    async def invoke(self, request: Request, deadline: Deadline) -> Completion:
        """Do one operation; raises `UsageError` for values outside the vocabulary."""
        call = v.call_of(request.f, request.value)
        attempts: list[Attempt] = []
        while True:
            address = await self._leader.find(deadline)
            if address is None or deadline.left_s <= 0:
                error = attempts[-1].outcome if attempts else "NO_LEADER: no master leads"
                return Completion(OpType.FAIL, None, error, None, tuple(attempts))
            done = await self._once(call, address, deadline, attempts)
            if done is not None:
                return done
            await deadline.pause(self._policy.backoff_s(len(attempts)))

    async def _once(
        self, call: v.MembersCall, address: str, deadline: Deadline, attempts: list[Attempt]
    ) -> Completion | None:
        """Ask the master at `address`; `None` where that did nothing and another is to be asked."""
        node, start_ns = address.partition(":")[0], self._env.clock.monotonic_ns()

        def ended(kind: OpType, outcome: str, value: dict[str, Any] | None = None) -> Completion:
            attempts.append(Attempt(node, start_ns, self._env.clock.monotonic_ns(), outcome))
            if kind is OpType.OK and deadline.left_s < 0:
                kind = OpType.INFO if call.mutates else OpType.FAIL
                outcome = "TIMED_OUT: the answer came after the deadline"
            error = None if kind is OpType.OK else outcome
            return Completion(kind, value if error is None else None, error, node, tuple(attempts))

        try:
            if isinstance(call, v.MoveReplica):
                move = await self._plan_move(call.table, address, deadline)
                if not isinstance(move, _Move):
                    return ended(OpType.FAIL, move)
                return await self._move(move, deadline, ended)
            method, asked = self._of_masters(call)
            answer = await self._ask_leader(address, method, asked, deadline, call.mutates)
        except _AskAnotherError as why:
            self._leader.forget()
            ended(OpType.FAIL, str(why))
            return None
        except RpcError as failure:
            self._leader.forget()
            return ended(OpType.INFO, rpc_error_text(failure))
        if answer.error is None:
            return ended(OpType.OK, "ok", {"result": "ok", **self._value(answer)})
        kind = OpType.INFO if answer.error.indeterminate else OpType.FAIL
        return ended(kind, error_text(answer.error))

    def _of_masters(self, call: v.AddMaster | v.RemoveMaster | v.ListMasters) -> tuple[str, Any]:
        match call:
            case v.AddMaster(node=node):
                return "MasterService.AddMaster", m.AddMasterRequest(self._address(node))
            case v.RemoveMaster(node=node):
                return "MasterService.RemoveMaster", m.RemoveMasterRequest(self._address(node))
            case _:
                return "MasterService.ListMasters", m.ListMastersRequest()

    def _address(self, node: str) -> str:
        """Where a node is: they all have one port."""
        port = next(iter(self._addresses.values())).rpartition(":")[2]
        return self._addresses.get(node, f"{node}:{port}")

    def _value(self, answer: Any) -> dict[str, Any]:
        if not isinstance(answer, m.ListMastersResponse):
            return {"term": answer.meta.term}
        return {
            "masters": [
                [entry.address.partition(":")[0], entry.role, entry.member_type]
                for entry in answer.masters
            ],
            "term": answer.meta.term,
        }

    # --- replicas ----------------------------------------------------------------------------

    async def _plan_move(self, table: str, master: str, deadline: Deadline) -> _Move | str:
        """Some replica that does not lead, and some server that has none; or why there is none."""
        located = m.GetTableLocationsRequest(
            m.TableIdentifier(table_name=table), max_returned_locations=_LOCATIONS_MAX
        )
        listed = m.ListTabletServersRequest()
        where, known = await asyncio.gather(
            self._ask_leader(master, "MasterService.GetTableLocations", located, deadline),
            self._ask_leader(master, "MasterService.ListTabletServers", listed, deadline),
        )
        for answer in (where, known):
            if answer.error is not None:
                return error_text(answer.error)
        rng = self._env.random
        tablets: Sequence[m.TabletLocations] = where.tablets
        tablet = tablets[rng.randrange(len(tablets))] if tablets else None
        leaders = [] if tablet is None else [r for r in tablet.replicas if r.role == "LEADER"]
        if tablet is None or not leaders:
            return f"NO_LEADER: no leader of a tablet of {table!r} is known"
        others = [r for r in tablet.replicas if r.role != "LEADER"]
        held = {replica.ts_uuid for replica in tablet.replicas}
        free = [server for server in known.servers if server.uuid not in held]
        if not others or not free:
            return f"NOWHERE: {len(others)} replicas might move, to {len(free)} servers"
        source, target = others[rng.randrange(len(others))], free[rng.randrange(len(free))]
        return _Move(tablet.tablet_id, leaders[0], source, target)

    async def _move(
        self, move: _Move, deadline: Deadline, ended: Callable[..., Completion]
    ) -> Completion:
        newcomer = m.PeerConfig(move.target.uuid, move.target.address, "NON_VOTER", promote=True)
        leaving = m.PeerConfig(move.source.ts_uuid, "", "VOTER", replace=True)
        changes = (
            raft.PeerChange(raft.ChangeType.ADD_PEER, newcomer),
            raft.PeerChange(raft.ChangeType.MODIFY_PEER, leaving),
        )
        method, state = "ConsensusService.GetConsensusState", raft.GetConsensusStateResponse
        look = raft.GetConsensusStateRequest(move.leader.ts_uuid, move.tablet_id)
        try:
            seen = await self._ask(move.leader.address, method, look, state, deadline)
        except RpcError as failure:
            return ended(OpType.FAIL, rpc_error_text(failure))
        config: m.RaftConfig | None = seen.committed_config
        if seen.error is not None or config is None:
            return ended(OpType.FAIL, "NO_LEADER: the tablet's leader does not know its members")
        if seen.pending_config is not None or not all(map(_stays, config.peers)):
            return ended(OpType.FAIL, "NOT_WELL: a replica of the tablet is on its way in or out")
        request = raft.BulkChangeConfigRequest(
            move.leader.ts_uuid, move.tablet_id, changes, config.opid_index
        )
        method = "ConsensusService.BulkChangeConfig"
        try:
            answer = await self._ask(
                move.leader.address, method, request, raft.ChangeConfigResponse, deadline
            )
        except RpcError as failure:
            kind = OpType.INFO if failure.sent else OpType.FAIL
            return ended(kind, rpc_error_text(failure))
        error = answer.error
        if error is not None:
            lost = error.code is raft.ConsensusErrorCode.ABORTED
            text = f"{error.code.name}: {error.message}"
            return ended(OpType.INFO if lost else OpType.FAIL, text)
        value = {
            "result": "ok",
            "tablet": move.tablet_id,
            "source": move.source.address.partition(":")[0],
            "target": move.target.address.partition(":")[0],
        }
        return ended(OpType.OK, "ok", value)

    # --- RPC ---------------------------------------------------------------------------------

    async def _ask_leader(
        self, address: str, method: str, request: Any, deadline: Deadline, mutates: bool = False
    ) -> Any:
        """The answer of a master that leads. Raises `_AskAnotherError`, and `RpcError` where the
        change that was asked for may have happened.
        """
        try:
            answer = await self._ask(address, method, request, m.METHODS[method][1], deadline)
        except RpcError as failure:
            if failure.sent and mutates:
                raise
            raise _AskAnotherError(rpc_error_text(failure)) from failure
        error: m.MasterError | None = answer.error
        if error is not None and is_of_another(error) and not error.indeterminate:
            raise _AskAnotherError(error_text(error))
        if isinstance(answer, m.ListMastersResponse) and error is None and answer.meta.revision < 0:
            raise _AskAnotherError("NOT_THE_LEADER: its list may lack what has committed")
        return answer

    async def _ask(
        self, address: str, method: str, request: Any, response_type: Any, deadline: Deadline
    ) -> Any:
        limit_s = deadline.limit_s(self._policy.mutation_attempt_timeout_s)
        return await self._rpc.call(address, method, request, response_type, timeout_s=limit_s)
