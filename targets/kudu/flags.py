"""The target's flags, under Kudu's names and with Kudu's defaults.

Times keep Kudu's unit in their name. A case may override any of them through the target option
`--kudu-flag NAME=VALUE`, as Kudu's own stress test does to shorten its elections
(`integration-tests/master-stress-test.cc`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from harness.errors import UsageError

__all__ = ["Flags", "draw_flags", "parse_flags"]


class Flags(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every flag of masters and tablet servers."""

    # Raft and log
    raft_heartbeat_interval_ms: int = 500
    leader_failure_max_missed_heartbeat_periods: float = 3.0
    leader_failure_exp_backoff_max_delta_ms: int = 20_000
    raft_enable_pre_election: bool = True
    consensus_rpc_timeout_ms: int = 30_000
    consensus_max_batch_size_bytes: int = 1024 * 1024
    log_force_fsync_all: bool = True  # profile `strict`; Kudu's own default is false
    cmeta_force_fsync: bool = True  # as above
    log_segment_size_kb: int = 512  # Kudu: log_segment_size_mb = 8
    log_min_segments_to_retain: int = 1
    log_max_segments_to_retain: int = 80
    log_cache_size_limit_kb: int = 4096
    master_snapshot_every: int = 60  # entries. Ours, as the next: Kudu flushes by size and time
    tablet_snapshot_every: int = 4  # tablets see little but alters
    # masters and heartbeats
    heartbeat_interval_ms: int = 1000
    heartbeat_rpc_timeout_ms: int = 15_000
    heartbeat_max_failures_before_backoff: int = 3
    tserver_unresponsive_timeout_ms: int = 60_000
    catalog_manager_bg_task_wait_ms: int = 1000
    tablet_creation_timeout_ms: int = 30_000
    master_ts_rpc_timeout_ms: int = 30_000
    unresponsive_ts_rpc_timeout_ms: int = 3_600_000
    master_failover_catchup_timeout_ms: int = 30_000
    master_registration_rpc_timeout_ms: int = 1500
    table_locations_ttl_ms: int = 300_000
    # limits
    default_num_replicas: int = 3
    min_num_replicas: int = 1
    max_num_replicas: int = 7
    max_create_tablets_per_ts: int = 60
    max_num_columns: int = 300
    max_identifier_length: int = 256
    rpc_max_message_size: int = 50 * 1024 * 1024
    remember_responses_ttl_ms: int = 600_000
    # ours
    master_read_confirm_timeout_ms: int = 5000  # strict: how long a read waits for its majority


def parse_flags(text: str) -> Flags:
    """Flags from `NAME=VALUE,NAME=VALUE`; raises `UsageError` for unknown names or bad values."""
    given: dict[str, str] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator:
            raise UsageError(f"the flag {part!r} has no value; write it as NAME=VALUE")
        given[name.strip().lstrip("-")] = value.strip()
    try:
        return msgspec.convert(given, type=Flags, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"bad flags {text!r}: {error}; names and units are in targets/kudu/flags.py"
        ) from error


DRAWN: Final[Mapping[str, Sequence[int]]] = {
    "master_snapshot_every": (10, 30, 60),
    "tablet_snapshot_every": (2, 4, 50),
    "consensus_max_batch_size_bytes": (1024 * 1024, 2000),  # 2000: a few entries of masters
    "log_segment_size_kb": (512, 8),
}
"""Drawn in soaks: how much is in a log or an append, and how often snapshots take its place."""


def draw_flags(rng: random.Random, given: str) -> str:
    """Flags as `parse_flags` reads them: drawn ones, then `given` ones; the last of a name wins."""
    drawn = [f"{name}={choices[rng.randrange(len(choices))]}" for name, choices in DRAWN.items()]
    return ",".join([*drawn, *([given] if given else [])])
