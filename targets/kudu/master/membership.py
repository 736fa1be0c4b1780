"""The masters' own membership: AddMaster, RemoveMaster, ListMasters, and auto-join.

The code follows Kudu's `Master::AddMaster` and `RemoveMaster` (`master/master.cc`) and auto-join
(1.16). Each operation changes the configuration of the system tablet's Raft group.

A new master already runs before it is added. It has the members' configuration and an empty log,
cannot become leader, and does not count towards majorities. It is added as a non-voter, receives
the leader's log or snapshot, and is promoted once it has caught up.

A master follows its stored configuration, not the list of masters in its settings. So a master that
was killed in the middle of a migration, and restarts with the old list, remains a member. The page
`/masters` shows which masters have a different list. Kudu compares list and configuration at every
start (`check_start_list`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from harness.errors import UsageError
from targets.kudu.bugs import Bug
from targets.kudu.consensus.errors import ConfigRefusedError, IndeterminateError, NotAppendedError
from targets.kudu.consensus.messages import ChangeType, ConsensusErrorCode, PeerChange
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.context import NodeContext
from targets.kudu.master.errors import (
    RefusedError,
    invalid_argument,
    not_supported,
    not_the_leader,
    write_lost,
)
from targets.kudu.master.leadership import Leadership
from targets.kudu.messages import (
    AddMasterRequest,
    AppStatus,
    ConnectToMasterRequest,
    GetMasterRegistrationRequest,
    GetMasterRegistrationResponse,
    MasterEntry,
    MasterErrorCode,
    PeerConfig,
    RaftConfig,
    RemoveMasterRequest,
)
from targets.kudu.rpc import RpcError, parse_address

LISTS_DIFFER: Final = "the stored masters and the masters given at start-up differ"
"""The start of the error with which a master exits if its list differs from the stored one."""

_AUTO_JOIN_INTERVAL_S: Final = 5.0
_JOIN_TIMEOUT_S: Final = 10.0
_OUTSIDE: Final = "NON_PARTICIPANT"


async def ask_registration(
    node: NodeContext, address: str
) -> GetMasterRegistrationResponse | RpcError:
    """Ask the master at `address` for its registration; return the answer or the call's error."""
    try:
        timeout_s = node.flags.master_registration_rpc_timeout_ms / 1000
        return await node.rpc.call(address, GetMasterRegistrationRequest(), timeout_s=timeout_s)
    except RpcError as error:
        return error


def check_start_list(node: NodeContext, config: RaftConfig, start_list: Sequence[str]) -> None:
    """Compare the masters in `config` with `start_list`, the list in this master's settings.

    `config` is stored or, at the first start, discovered. If the lists differ, the master announces
    an event and follows `config`. If they differ only by this master's own address, they count as
    equal.

    Kudu's master exits if the lists differ by more than one address, or if the stored list is
    longer (`master/sys_catalog.cc`). With the defect STORED-LIST, this function raises `UsageError`
    in these cases.
    """
    stored = sorted({peer.address for peer in config.peers})
    differ = sorted({*stored} ^ {*start_list})
    if differ in ([], [node.address]):
        return
    node.env.event("masters-differ", stored=stored, told=[*start_list], differ=differ)
    if Bug.STORED_LIST in node.bugs and (len(stored) > len({*start_list}) or len(differ) > 1):
        raise UsageError(
            f"{LISTS_DIFFER} by {', '.join(differ)}; start it with {', '.join(stored)}"
        )


class Membership:
    """Addition, removal and listing of masters; only a ready leader adds and removes."""

    def __init__(
        self, node: NodeContext, leadership: Leadership, told_masters: tuple[str, ...]
    ) -> None:
        """Serve the masters' group; `told_masters` are the masters in this master's settings."""
        self.told_masters = told_masters
        self._node = node
        self._leadership = leadership

    async def add(self, request: AddMasterRequest) -> None:
        """Add a master as a non-voter; return once the change is committed.

        Raises `RefusedError`. The code is MASTER_ALREADY_PRESENT if the master is already a member,
        and NOT_THE_LEADER if the change cannot be made now (Kudu: IllegalState, ServiceUnavailable
        and Aborted). The status is INVALID_ARGUMENT for a malformed address.
        """
        self._refuse_if_offline_only("AddMaster")
        replica = self._leader()
        config = replica.committed_config
        if any(peer.address == request.address for peer in config.peers):
            message = f"the master at {request.address} is a member already"
            raise RefusedError(
                MasterErrorCode.MASTER_ALREADY_PRESENT, AppStatus.ALREADY_PRESENT, message
            )
        try:
            parse_address(request.address)
        except ValueError as error:
            raise invalid_argument(str(error)) from error
        newcomer = await ask_registration(self._node, request.address)
        if isinstance(newcomer, RpcError):
            message = f"the new master at {request.address} does not answer: {newcomer}"
            raise RefusedError(MasterErrorCode.UNKNOWN_ERROR, AppStatus.NETWORK_ERROR, message)
        if newcomer.error is not None:
            message = f"the new master at {request.address} is still starting; try again later"
            raise RefusedError(
                MasterErrorCode.UNKNOWN_ERROR, AppStatus.SERVICE_UNAVAILABLE, message
            )
        if not await self._is_ours(request.address, newcomer):
            raise invalid_argument(
                f"the master at {request.address} belongs to a cluster already: "
                "it must start with this cluster's masters and an empty disk"
            )
        peer = PeerConfig(newcomer.meta.master_uuid, request.address, "NON_VOTER", promote=True)
        change = PeerChange(ChangeType.ADD_PEER, peer)
        await _change(replica, config, change, code=MasterErrorCode.NOT_THE_LEADER)

    async def _is_ours(self, address: str, newcomer: GetMasterRegistrationResponse) -> bool:
        """Whether the master at `address` belongs to this cluster, or to none.

        A master that is not a member of any cluster has the configuration of the cluster that it
        found with its settings. That must be this cluster. A master that was removed without
        noticing still considers itself a member. It still has its votes and its log, so it may
        return if its cluster id is that of this cluster.
        """
        if newcomer.member_type == _OUTSIDE:
            config = newcomer.committed_config
            began_with = () if config is None else config.peers
            members = {peer.uuid for peer in self._members()}
            return any(peer.uuid in members for peer in began_with)
        try:
            timeout_s = self._node.flags.master_registration_rpc_timeout_ms / 1000
            request = ConnectToMasterRequest()
            answer = await self._node.rpc.call(address, request, timeout_s=timeout_s)
        except RpcError:
            return False
        return answer.cluster_id != "" and answer.cluster_id == self._leadership.cluster_id

    async def remove(self, request: RemoveMasterRequest) -> None:
        """Remove a master; return once the change is committed.

        Raises `RefusedError`. The status is NOT_FOUND if no member has the address. The status is
        INVALID_ARGUMENT for the leader itself, for the last master, for an unknown uuid, and for a
        request without uuid if several members have the address.
        """
        self._refuse_if_offline_only("RemoveMaster")
        replica = self._leader()
        config = replica.committed_config
        here = [peer for peer in config.peers if peer.address == request.address]
        if not here:
            message = f"no master has the address {request.address}"
            raise RefusedError(MasterErrorCode.UNKNOWN_ERROR, AppStatus.NOT_FOUND, message)
        uuid = request.master_uuid
        if uuid is None and len(here) > 1:
            uuids = ", ".join(peer.uuid for peer in here)
            raise invalid_argument(
                f"{len(here)} masters have the address {request.address}: name one of {uuids}"
            )
        chosen = [peer for peer in here if uuid in {None, peer.uuid}]
        if not chosen:
            raise invalid_argument(f"the master at {request.address} is {here[0].uuid}, not {uuid}")
        if len(config.peers) == 1:
            raise invalid_argument("the last master cannot be removed")
        if chosen[0].uuid == self._node.uuid:
            raise invalid_argument("the leader cannot be removed: make it step down first")
        change = PeerChange(ChangeType.REMOVE_PEER, chosen[0])
        await _change(replica, config, change, code=MasterErrorCode.UNKNOWN_ERROR)

    def _refuse_if_offline_only(self, what: str) -> None:
        if Bug.OFFLINE_MEMBERS in self._node.bugs:
            raise not_supported(f"{what}: masters can change only while the cluster is down")

    def _leader(self) -> Replica:
        self._leadership.ready()
        replica = self._leadership.replica
        assert replica is not None, "the master is ready but has no replica"
        return replica

    async def list(self) -> tuple[MasterEntry, ...]:
        """Return the members in the committed configuration, each with its role or with an error.

        The members do not come from a flag (KUDU-2309).
        """
        return tuple(await asyncio.gather(*(self._entry(peer) for peer in self._members())))

    def _members(self) -> tuple[PeerConfig, ...]:
        replica = self._leadership.replica
        return () if replica is None else replica.committed_config.peers

    async def _entry(self, peer: PeerConfig) -> MasterEntry:
        answer = await ask_registration(self._node, peer.address)
        role, start_ns, error = "UNKNOWN_ROLE", 0, None
        if isinstance(answer, RpcError):
            error = str(answer)
        elif answer.meta.master_uuid != peer.uuid:
            error = f"at {peer.address} is {answer.meta.master_uuid}, not {peer.uuid}"
        elif answer.error is not None:
            error = answer.error.message
        else:
            role, start_ns = answer.role, answer.start_ns
        return MasterEntry(peer.uuid, peer.address, peer.member_type, role, start_ns, error)


async def _change(
    replica: Replica, decided_on: RaftConfig, change: PeerChange, *, code: MasterErrorCode
) -> None:
    """Change the masters' configuration if `decided_on` is still the committed configuration.

    Raises `RefusedError` with `code` if the committed configuration has changed, or if no change
    can be made now.
    """
    try:
        await replica.change_config((change,), cas_config_opid_index=decided_on.opid_index)
    except ConfigRefusedError as error:
        if error.code is ConsensusErrorCode.INVALID_CONFIG:
            raise invalid_argument(str(error)) from error
        raise RefusedError(code, AppStatus.ILLEGAL_STATE, str(error)) from error
    except NotAppendedError as error:
        raise not_the_leader() from error
    except IndeterminateError as error:
        raise write_lost(error) from error


async def auto_join(node: NodeContext, replica: Replica, masters: Sequence[str]) -> None:
    """Get this master added to its cluster if it is not a member, as Kudu 1.16 does.

    Every 5 s, this master asks all other `masters` for their registrations. If all agree on term
    and configuration, and the configuration lacks only this master, it asks their leader for
    AddMaster. The task ends once this master is a member, or if its address belongs to another
    member.
    """
    others = [address for address in masters if address != node.address]
    while all(peer.uuid != node.uuid for peer in replica.config.peers):
        await asyncio.sleep(_AUTO_JOIN_INTERVAL_S)
        outcomes = await asyncio.gather(*(ask_registration(node, address) for address in others))
        answers = [answer for answer in outcomes if not isinstance(answer, RpcError)]
        configs = [answer.committed_config for answer in answers]
        if len(answers) < len(others) or not configs or configs[0] is None:
            continue
        members = {peer.address for peer in configs[0].peers}
        if node.address in members:
            node.env.event("master-replaced", address=node.address)
            return
        agree = all(config == configs[0] for config in configs)
        if not agree or len({answer.meta.term for answer in answers}) > 1:
            continue
        leaders = [answer.address for answer in answers if answer.role == "LEADER"]
        if members == set(others) and len(leaders) == 1:
            await _ask_to_be_added(node, leaders[0])


async def _ask_to_be_added(node: NodeContext, leader: str) -> None:
    try:
        request = AddMasterRequest(node.address)
        answer = await node.rpc.call(leader, request, timeout_s=_JOIN_TIMEOUT_S)
        error = None if answer.error is None else answer.error.message
    except RpcError as failure:
        error = str(failure)
    if error is not None:
        node.env.event("master-not-added", address=node.address, error=error)
