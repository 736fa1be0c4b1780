"""Requests about masters, tablet servers, and the members of Raft groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from harness.ops import NS_PER_S
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.errors import RpcLayerError, consensus_error, master_error
from targets.apache_kudu.wire.protobuf import Values
from targets.apache_kudu.wire.session import Session, state_of, unsent
from targets.apache_kudu.wire.tables import ROLES
from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.rpc import RpcConnectionError

HostOf = Callable[[str], Awaitable[Values]]
"""A function that returns the host and port that the server at "node:port" advertises."""
_MEMBER_TYPES: Final = {0: "NON_VOTER", 1: "VOTER"}
MEMBER_NUMBERS: Final = {name: number for number, name in _MEMBER_TYPES.items()}
_HEALTH: Final = {
    0: m.PeerHealth.FAILED,
    1: m.PeerHealth.HEALTHY,
    2: m.PeerHealth.FAILED_UNRECOVERABLE,
}
_CHANGES: Final = {
    raft.ChangeType.ADD_PEER: 1,
    raft.ChangeType.REMOVE_PEER: 2,
    raft.ChangeType.MODIFY_PEER: 3,
}
_STEP_DOWN_MODES: Final = {raft.StepDownMode.ABRUPT: 1, raft.StepDownMode.GRACEFUL: 2}
_MAINTENANCE: Final = 2
_APPLICATION: Final = 1
_REFUSED: Final = {
    "Invalid argument: ": m.AppStatus.INVALID_ARGUMENT,
    "Not found: ": m.AppStatus.NOT_FOUND,
}
"""Phrases in refusals of AddMaster and RemoveMaster, which arrive as errors of the RPC layer."""


# --- masters ----------------------------------------------------------------------------------


async def connect_to_master(
    s: Session, request: m.ConnectToMasterRequest
) -> m.ConnectToMasterResponse:
    """Ask a master for its role. The term in the answer was read just before the role."""
    del request
    consensus = await s.consensus()
    reply = await s.ask(w.CONNECT_TO_MASTER)
    config = _config(s, consensus.get("committed_config"))
    return m.ConnectToMasterResponse(
        _meta(s, consensus),
        master_error(reply),
        _role(reply),
        () if config is None else tuple(peer.address for peer in config.peers),
        reply.get("cluster_id", ""),
    )


async def get_master_registration(
    s: Session, request: m.GetMasterRegistrationRequest
) -> m.GetMasterRegistrationResponse:
    """Ask a master for its registration, its Raft role, and the members that it knows.

    Role and term come from one answer about its Raft state. The role in the registration is not
    used: combined with a later term, it could make a deposed leader seem to lead in the term of its
    successor.
    """
    del request
    reply = await s.ask(w.GET_MASTER_REGISTRATION)
    consensus = await s.consensus()
    registered = reply.get("registration", {})
    committed = _config(s, consensus.get("committed_config"))
    active = _config(s, consensus.get("pending_config")) or committed
    return m.GetMasterRegistrationResponse(
        _meta(s, consensus),
        master_error(reply),
        address=s.registered_name(s.uuid, registered),
        role="LEADER" if consensus.get("leader_uuid") == s.uuid else "FOLLOWER",
        member_type=_MEMBER_TYPES.get(reply.get("member_type", 1), "VOTER"),
        start_ns=registered.get("start_time", 0) * NS_PER_S,
        committed_config=committed,
        active_index=-1 if active is None else active.opid_index,
        software_version=registered.get("software_version", ""),
    )


async def list_masters(s: Session, request: m.ListMastersRequest) -> m.ListMastersResponse:
    """Ask a leading master for the masters. The revision is the index of their configuration.

    Any master would answer, but only a leader that is ready knows all committed changes.
    """
    del request
    connected = await s.ask(w.CONNECT_TO_MASTER)
    error = master_error(connected)
    if error is None and _role(connected) != "LEADER":
        text = "the master does not lead, or is not ready yet"
        error = m.MasterError(
            m.MasterErrorCode.NOT_THE_LEADER, m.AppStatus.SERVICE_UNAVAILABLE, text
        )
    if error is not None:
        return m.ListMastersResponse(m.Meta(s.uuid), error)
    reply = await s.ask(w.LIST_MASTERS)
    config = _config(s, (await s.consensus()).get("committed_config"))
    revision = -1 if config is None else max(0, config.opid_index)
    peers = () if config is None else config.peers
    entries = _named([_master(s, entry) for entry in reply["masters"]], peers)
    meta = m.Meta(s.uuid, revision=revision)
    return m.ListMastersResponse(meta, master_error(reply), entries)


def _named(
    entries: Sequence[m.MasterEntry], peers: Sequence[m.PeerConfig]
) -> tuple[m.MasterEntry, ...]:
    """Complete the entries of masters that did not answer the leader.

    Such an entry contains only an error. It must belong to a member that no other entry names.
    Raises `RpcConnectionError` if the numbers of entries and members differ.
    """
    stated = {entry.uuid for entry in entries if entry.uuid}
    rest = [peer for peer in peers if peer.uuid not in stated]
    if len(stated) == len(entries):
        return tuple(entries)
    if len(stated) + len(rest) != len(entries) or len(entries) != len(peers):
        raise RpcConnectionError("the list does not name a master that is down", sent=True)
    silent = iter(rest)
    return tuple(entry if entry.uuid else _silent(entry, next(silent)) for entry in entries)


def _silent(entry: m.MasterEntry, peer: m.PeerConfig) -> m.MasterEntry:
    return msgspec.structs.replace(
        entry, uuid=peer.uuid, address=peer.address, member_type=peer.member_type
    )


def _master(s: Session, entry: Values) -> m.MasterEntry:
    registered = entry.get("registration", {})
    uuid = entry.get("instance", {}).get("uuid", "")
    error = entry.get("error")
    return m.MasterEntry(
        uuid,
        s.registered_name(uuid, registered),
        _MEMBER_TYPES.get(entry.get("member_type", -1), "UNKNOWN_MEMBER_TYPE"),
        _role(entry, "UNKNOWN_ROLE"),
        registered.get("start_time", 0) * NS_PER_S,
        None if error is None else str(error.get("message", "")),
    )


async def add_master(
    s: Session, request: m.AddMasterRequest, host_of: HostOf
) -> m.AddMasterResponse:
    """Add a running master, by the address that it advertises."""
    where = await unsent(host_of(request.address))
    error = await _change_masters(s, w.ADD_MASTER, {"rpc_addr": where})
    return m.AddMasterResponse(m.Meta(s.uuid), error)


async def remove_master(s: Session, request: m.RemoveMasterRequest) -> m.RemoveMasterResponse:
    """Remove a master, by the address and the uuid in the leader's configuration."""
    consensus = await unsent(s.consensus())
    wanted = request.master_uuid or s.uuid_of(request.address)
    peers = consensus.get("committed_config", {}).get("peers", ())
    peer = next((p for p in peers if p.get("uuid") == wanted), None)
    if peer is None:
        error = m.MasterError(
            m.MasterErrorCode.UNKNOWN_ERROR,
            m.AppStatus.NOT_FOUND,
            f"no member of the masters is at {request.address}",
        )
        return m.RemoveMasterResponse(m.Meta(s.uuid), error)
    change = {"rpc_addr": peer["address"], "master_uuid": peer["uuid"]}
    changed = await _change_masters(s, w.REMOVE_MASTER, change)
    return m.RemoveMasterResponse(m.Meta(s.uuid), changed)


async def _change_masters(s: Session, method: w.Method, change: Values) -> m.MasterError | None:
    try:
        return master_error(await s.ask(method, change))
    except RpcLayerError as error:
        for text, status in _REFUSED.items():
            if error.code == _APPLICATION and f": {text}" in str(error):
                return m.MasterError(m.MasterErrorCode.UNKNOWN_ERROR, status, str(error))
        raise


async def list_tablet_servers(
    s: Session, request: m.ListTabletServersRequest
) -> m.ListTabletServersResponse:
    """Ask a master, leading or not, for the tablet servers that sent it heartbeats."""
    del request
    reply = await s.ask(w.LIST_TABLET_SERVERS, {"include_states": True})
    servers = tuple(
        m.TabletServerEntry(
            entry["instance"]["uuid"],
            s.registered_name(entry["instance"]["uuid"], entry.get("registration", {})),
            entry.get("millis_since_heartbeat", 0),
            0,
            entry.get("state") == _MAINTENANCE,
        )
        for entry in reply["servers"]
    )
    return m.ListTabletServersResponse(m.Meta(s.uuid), master_error(reply), servers)


# --- Raft groups ------------------------------------------------------------------------------


async def get_consensus_state(
    s: Session, request: raft.GetConsensusStateRequest
) -> raft.GetConsensusStateResponse:
    """Ask a server for its view of a Raft group."""
    reply = await s.raft(request.tablet_id, health=True)
    error = consensus_error(reply)
    state = state_of(reply, request.tablet_id)
    if state is None:
        error = error or raft.ConsensusError(
            raft.ConsensusErrorCode.TABLET_NOT_FOUND, f"no replica of {request.tablet_id} is here"
        )
        return raft.GetConsensusStateResponse(s.uuid, error=error)
    leader = state.get("leader_uuid") or None
    peers = state.get("committed_config", {}).get("peers", ())
    return raft.GetConsensusStateResponse(
        s.uuid,
        state.get("current_term", 0),
        "LEADER" if leader == s.uuid else "FOLLOWER",
        leader,
        _config(s, state.get("committed_config")),
        _config(s, state.get("pending_config")),
        peer_health={
            peer["uuid"]: _HEALTH.get(peer["health"].get("overall", -1), m.PeerHealth.UNKNOWN)
            for peer in peers
            if "health" in peer
        },
        error=error,
    )


async def leader_step_down(
    s: Session, request: raft.LeaderStepDownRequest
) -> raft.LeaderStepDownResponse:
    """Ask a leader to give up its role."""
    values = {
        "tablet_id": request.tablet_id,
        "dest_uuid": request.dest_uuid or s.uuid,
        "mode": _STEP_DOWN_MODES[request.mode],
        "new_leader_uuid": request.new_leader_uuid,
    }
    return raft.LeaderStepDownResponse(consensus_error(await s.ask(w.LEADER_STEP_DOWN, values)))


async def bulk_change_config(
    s: Session, request: raft.BulkChangeConfigRequest
) -> raft.ChangeConfigResponse:
    """Ask a group's leader for several membership changes. New members must be known servers."""
    changes = []
    for change in request.changes:
        peer = change.peer
        host, _, port = peer.address.rpartition(":")
        if change.type is raft.ChangeType.ADD_PEER:
            where = s.memory.hosts.get(peer.uuid, {"host": host, "port": int(port or 0)})
        else:
            where = None
        changes.append({"type": _CHANGES[change.type], "peer": peer_values(peer, where)})
    asked = {
        "dest_uuid": request.dest_uuid or s.uuid,
        "tablet_id": request.tablet_id,
        "changes": changes,
        "cas_config_opid_index": request.cas_config_opid_index,
    }
    return raft.ChangeConfigResponse(
        error=consensus_error(await s.ask(w.BULK_CHANGE_CONFIG, asked))
    )


# --- parts of messages ------------------------------------------------------------------------


def _meta(s: Session, consensus: Values) -> m.Meta:
    return m.Meta(s.uuid, consensus.get("current_term", 0))


def _role(reply: Values, missing: str = "FOLLOWER") -> str:
    return ROLES.get(reply["role"], "UNKNOWN_ROLE") if "role" in reply else missing


def peer_values(peer: m.PeerConfig, where: Values | None) -> Values:
    """Encode a member of a Raft group. `where` is the host and port at which it is reached."""
    return {
        "uuid": peer.uuid,
        "member_type": MEMBER_NUMBERS[peer.member_type],
        "address": where,
        "attrs": {"promote": peer.promote, "replace": peer.replace},
    }


def _config(s: Session, config: Values | None) -> m.RaftConfig | None:
    if config is None:
        return None
    peers = tuple(
        m.PeerConfig(
            peer.get("uuid", ""),
            s.name_of(peer.get("uuid", ""), peer.get("address")),
            _MEMBER_TYPES.get(peer.get("member_type", 1), "VOTER"),
            peer.get("attrs", {}).get("promote", False),
            peer.get("attrs", {}).get("replace", False),
        )
        for peer in config["peers"]
    )
    return m.RaftConfig(config.get("opid_index", -1), peers)
