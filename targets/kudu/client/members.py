"""Membership changes by an administrator: masters join and leave, and replicas move.

A client sends a change to a leader once. The operation is `fail` if the leader refused before it
appended anything to its log. It is `info` after a lost answer, or an answer that may mean a change
(`indeterminate`, or ABORTED from a tablet's leader). A request that could not be sent or that
reached a follower did nothing, so the client sends it to the next leader. A read-only request is
also sent again after a lost answer.

A replica moves as in `kudu tablet change_config move_replica`. One configuration change adds the
new server, as a non-voter to be promoted, and marks the old server for replacement. The masters do
the rest. As in Kudu, the client does not begin a move while a replica of the tablet is joining or
leaving, because a second marked replica might never find a replacement server. The leader moves
only if it is the only replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from harness.env import Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request
from harness.vocabularies import members as v
from targets.kudu import messages as m
from targets.kudu.client.classify import error_text, is_of_another, rpc_error_text
from targets.kudu.client.leader import LeaderFinder
from targets.kudu.client.session import Deadline, RetryPolicy
from targets.kudu.consensus import messages as raft
from targets.kudu.rpc import Call, Caller, R_co, RpcError

_LOCATIONS_MAX: Final = 1000
Answer = TypeVar("Answer", bound=m.MasterResponse)


class _Move(NamedTuple):
    tablet_id: str
    leader: m.ReplicaLocation
    source: m.ReplicaLocation
    target: m.TabletServerEntry


def _stays(peer: m.PeerConfig) -> bool:
    return peer.member_type == "VOTER" and not peer.replace


class _AskAnotherError(Exception):
    """The master did nothing, and another master must be asked."""


class MembersClient:
    """The part of a client that changes memberships; `addresses` maps master nodes to addresses."""

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
        """Send the call to a master; return `None` if nothing happened and it can be sent again."""
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
            asked = self._of_masters(call)
            answer = await self._ask_leader(address, asked, deadline, call.mutates)
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

    def _of_masters(
        self, call: v.AddMaster | v.RemoveMaster | v.ListMasters
    ) -> Call[m.MasterResponse]:
        match call:
            case v.AddMaster(node=node):
                return m.AddMasterRequest(self._address(node))
            case v.RemoveMaster(node=node):
                return m.RemoveMasterRequest(self._address(node))
            case _:
                return m.ListMastersRequest()

    def _address(self, node: str) -> str:
        port = next(iter(self._addresses.values())).rpartition(":")[2]
        return self._addresses.get(node, f"{node}:{port}")

    def _value(self, answer: m.MasterResponse) -> dict[str, Any]:
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
        located = m.GetTableLocationsRequest(
            m.TableIdentifier(table_name=table), max_returned_locations=_LOCATIONS_MAX
        )
        where, listed = await asyncio.gather(
            self._ask_leader(master, located, deadline),
            self._ask_leader(master, m.ListTabletServersRequest(), deadline),
        )
        for error in (where.error, listed.error):
            if error is not None:
                return error_text(error)
        rng = self._env.random
        tablets = where.tablets
        tablet = tablets[rng.randrange(len(tablets))] if tablets else None
        leaders = [] if tablet is None else [r for r in tablet.replicas if r.role == "LEADER"]
        if tablet is None or not leaders:
            return f"NO_LEADER: no leader of a tablet of {table!r} is known"
        others = [r for r in tablet.replicas if r.role != "LEADER"] or leaders
        held = {replica.ts_uuid for replica in tablet.replicas}
        free = [server for server in listed.servers if server.uuid not in held]
        if not others or not free:
            return f"NOWHERE: {len(others)} replicas to move, {len(free)} servers without one"
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
        look = raft.GetConsensusStateRequest(move.leader.ts_uuid, move.tablet_id)
        try:
            seen = await self._ask(move.leader.address, look, deadline)
        except RpcError as failure:
            return ended(OpType.FAIL, rpc_error_text(failure))
        config = seen.committed_config
        if seen.error is not None or config is None:
            return ended(OpType.FAIL, "NO_LEADER: the tablet's leader does not know its members")
        if seen.pending_config is not None or not all(map(_stays, config.peers)):
            return ended(OpType.FAIL, "NOT_WELL: a replica of the tablet is being added or removed")
        request = raft.BulkChangeConfigRequest(
            move.leader.ts_uuid, move.tablet_id, changes, config.opid_index
        )
        try:
            answer = await self._ask(move.leader.address, request, deadline)
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
        self, address: str, request: Call[Answer], deadline: Deadline, mutates: bool = False
    ) -> Answer:
        """Send a request to a master, and return the answer if that master leads.

        Raises `_AskAnotherError` if nothing happened, and `RpcError` if a mutation may have
        happened.
        """
        try:
            answer = await self._ask(address, request, deadline)
        except RpcError as failure:
            if failure.sent and mutates:
                raise
            raise _AskAnotherError(rpc_error_text(failure)) from failure
        error = answer.error
        if error is not None and is_of_another(error) and not error.indeterminate:
            raise _AskAnotherError(error_text(error))
        if isinstance(answer, m.ListMastersResponse) and error is None and answer.meta.revision < 0:
            raise _AskAnotherError("NOT_THE_LEADER: its list may lack committed changes")
        return answer

    async def _ask(self, address: str, request: Call[R_co], deadline: Deadline) -> R_co:
        limit_s = deadline.limit_s(self._policy.mutation_attempt_timeout_s)
        return await self._rpc.call(address, request, timeout_s=limit_s)
