"""What a replica says of itself to checkers and to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from targets.kudu.raft.journal import Journal

if TYPE_CHECKING:
    from targets.kudu.raft.replica import Replica

__all__ = ["describe"]


def describe(replica: Replica, journal: Journal, *, started: bool) -> dict[str, Any]:
    """Plain JSON: state, configuration and what lets logs be compared (see `journal.py`)."""
    data: dict[str, Any] = {
        "group": replica.group_id,
        "uuid": replica.local_uuid,
        "state": replica.state_text,
        "role": replica.role,
        "term": replica.term,
        "leader_uuid": replica.leader_uuid,
        "commit_index": replica.commit_index,
        "applied_index": replica.applied_index,
        "last_index": replica.last_log_index,
        "config": {
            "opid_index": replica.config.opid_index,
            "peers": [msgspec.structs.asdict(peer) for peer in replica.config.peers],
        },
        "committed_config_index": replica.committed_config.opid_index,
    }
    if started:
        core = replica.core
        data["first_index"] = core.log.base.index + 1
        data["durable_index"] = core.durable_index
        data["counters"] = replica.counters()
        data |= journal.dump(core.log)
    return data
