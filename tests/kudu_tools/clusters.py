"""Healthy clusters for tests of cluster checks, and clusters with a single change."""

from __future__ import annotations

from typing import Any

import msgspec

from targets.kudu.tools.ksck_judge import Observed, ObservedTable, ObservedTablet
from targets.kudu.tools.ksck_results import (
    ConfigType,
    ConsensusState,
    MasterConsensusState,
    ReplicaSummary,
    ServerHealth,
    ServerSummary,
)


def uuid(name: str) -> str:
    """Return a uuid that starts with `name`: `m1` is `m1000...`."""
    return name.ljust(32, "0")


def server(name: str, health: ServerHealth = ServerHealth.HEALTHY) -> ServerSummary:
    port = 7051 if name.startswith("m") else 7050
    status = "OK" if health is ServerHealth.HEALTHY else "Network error: refused"
    version = "1.0" if health is ServerHealth.HEALTHY else None
    return ServerSummary(
        uuid=uuid(name), address=f"{name}:{port}", health=health, status=status, version=version
    )


def state(leader: str | None, *voters: str, **changes: Any) -> ConsensusState:
    given: dict[str, Any] = {
        "type": ConfigType.COMMITTED,
        "term": 3,
        "opid_index": 10,
        "leader_uuid": leader and uuid(leader),
        "voter_uuids": tuple(map(uuid, voters)),
    }
    return ConsensusState(**{**given, **changes})


def replica(name: str, *, leader: str, voters: tuple[str, ...]) -> ReplicaSummary:
    return ReplicaSummary(
        ts_uuid=uuid(name),
        ts_address=f"{name}:7050",
        ts_healthy=True,
        is_leader=name == leader,
        is_voter=True,
        state="RUNNING",
        data_state="READY",
        consensus_state=state(leader, *voters),
    )


def tablet(*names: str, tablet_id: str = "tab") -> ObservedTablet:
    record = state(names[0], *names, type=ConfigType.MASTER, term=None, opid_index=None)
    replicas = tuple(replica(name, leader=names[0], voters=names) for name in names)
    return ObservedTablet(id=uuid(tablet_id), master_cstate=record, replicas=replicas)


def change(found: ObservedTablet, position: int, **changes: Any) -> ObservedTablet:
    replicas = list(found.replicas)
    replicas[position] = msgspec.structs.replace(replicas[position], **changes)
    return msgspec.structs.replace(found, replicas=tuple(replicas))


def cluster(*tablets: ObservedTablet, replicas: int = 3, **changes: Any) -> Observed:
    """Build three masters, three tablet servers and a table of these tablets, all healthy."""
    masters = ("m1", "m2", "m3")
    states = tuple(
        MasterConsensusState(uuid=uuid(name), consensus_state=state("m1", *masters))
        for name in masters
    )
    table = ObservedTable(
        id=uuid("tbl"), name="metrics", replication_factor=replicas, tablets=tablets
    )
    found = Observed(
        masters=tuple(map(server, masters)),
        master_states=states,
        tservers=tuple(map(server, ("t1", "t2", "t3"))),
        tables=(table,) if tablets else (),
    )
    return msgspec.structs.replace(found, **changes)
