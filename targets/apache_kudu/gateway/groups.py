"""Calls that both masters and tablet servers answer: their state, and their Raft groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from targets.apache_kudu.gateway.link import Handler, Link, Request
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.members import peer_values
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.protobuf import Values
from targets.kudu import messages as m
from targets.kudu.consensus.messages import GetConsensusStateRequest
from targets.kudu.context import SOFTWARE_VERSION
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID

_VERSION: Final = f"kudu {SOFTWARE_VERSION}"


async def _get_status(link: Link, request: Request) -> Values:
    del request
    return {
        "status": {"instance": {"uuid": link.uuid}, "version_info": {"version_string": _VERSION}}
    }


async def _master_groups(link: Link, request: Request) -> Values:
    return await _groups(link, request, request.values.get("tablet_ids") or [SYSTEM_TABLET_ID])


async def _tserver_groups(link: Link, request: Request) -> Values:
    asked = request.values.get("tablet_ids")
    if asked:
        return await _groups(link, request, asked)
    answer = await link.ask(m.ListTabletsRequest(), request)
    return {
        "tablets": [
            {
                "tablet_id": tablet.tablet_id,
                "state": {"current_term": tablet.term, "leader_uuid": tablet.leader_uuid or ""},
            }
            for tablet in answer.tablets
            if tablet.data_state == "READY"
        ]
    }


async def _groups(link: Link, request: Request, asked: Sequence[str]) -> Values:
    return {"tablets": [state for each in asked for state in await _group(link, request, each)]}


async def _group(link: Link, request: Request, tablet_id: str) -> list[Values]:
    uuid = request.values.get("dest_uuid", link.uuid)
    answer = await link.ask(GetConsensusStateRequest(uuid, tablet_id), request)
    if answer.error is not None:
        return []
    state: Values = {
        "current_term": answer.current_term,
        "leader_uuid": answer.leader_uuid or "",
        "committed_config": _config(link, answer.committed_config),
        "pending_config": _config(link, answer.pending_config),
    }
    return [{"tablet_id": tablet_id, "state": state}]


def _config(link: Link, config: m.RaftConfig | None) -> Values | None:
    if config is None:
        return None
    peers = [peer_values(peer, link.host_port(peer.address)) for peer in config.peers]
    return {"opid_index": config.opid_index, "peers": peers}


MASTER_GROUP_CALLS: Final[Mapping[Method, Handler]] = {
    w.GET_STATUS: _get_status,
    w.GET_CONSENSUS_STATE: _master_groups,
}
TSERVER_GROUP_CALLS: Final[Mapping[Method, Handler]] = {
    w.GET_STATUS: _get_status,
    w.GET_CONSENSUS_STATE: _tserver_groups,
}
