"""The target's flags, under Kudu's names and with Kudu's defaults.

Names contain the unit of times, as in Kudu. A case may override a flag with the target option
`--kudu-flag NAME=VALUE`, as Kudu's own stress test does to shorten its elections
(`integration-tests/master-stress-test.cc`).

Each numeric flag has a range. With all flags within their ranges, a correct cluster works. Outside,
the target would be blamed for its settings, for example because elections never end. Limits of
requests may be arbitrarily narrow, because the target may refuse requests that exceed them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple, get_args, get_type_hints

import msgspec

from harness.errors import UsageError, choices_near


class Within(NamedTuple):
    """The minimum and the maximum of a flag, both included."""

    least: float
    most: float


class Flags(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All flags of masters and tablet servers."""

    # Raft and log
    raft_heartbeat_interval_ms: Annotated[int, Within(50, 1000)] = 500
    leader_failure_max_missed_heartbeat_periods: Annotated[float, Within(1, 6)] = 3.0
    leader_failure_exp_backoff_max_delta_ms: Annotated[int, Within(10_000, 30_000)] = 20_000
    raft_enable_pre_election: bool = True
    raft_enable_tombstoned_voting: bool = True
    follower_unavailable_considered_failed_sec: Annotated[float, Within(1, 86_400)] = 300.0
    consensus_rpc_timeout_ms: Annotated[int, Within(500, 600_000)] = 30_000
    consensus_max_batch_size_bytes: Annotated[int, Within(1, 50 * 1024 * 1024)] = 1024 * 1024
    log_force_fsync_all: bool = True  # profile `strict`; Kudu's own default is false
    cmeta_force_fsync: bool = True  # profile `strict`; Kudu's own default is false
    # Kudu: log_segment_size_mb = 8
    log_segment_size_kb: Annotated[int, Within(8, 1024 * 1024)] = 512
    log_min_segments_to_retain: Annotated[int, Within(1, 20)] = 1
    log_max_segments_to_retain: Annotated[int, Within(80, 10_000)] = 80
    log_cache_size_limit_kb: Annotated[int, Within(64, 64 * 1024)] = 4096
    # Not in Kudu, which flushes by size and time: the number of log entries between snapshots
    master_snapshot_every: Annotated[int, Within(1, 100)] = 60
    tablet_snapshot_every: Annotated[int, Within(1, 1000)] = 50
    # If true, a replacement adds a replica first (3-4-3 replicas). If false, it evicts a replica
    # first (3-2-3), as before Kudu 1.7.
    raft_prepare_replacement_before_eviction: bool = True
    # Masters and heartbeats
    heartbeat_interval_ms: Annotated[int, Within(10, 3000)] = 1000
    heartbeat_rpc_timeout_ms: Annotated[int, Within(500, 30_000)] = 15_000
    # Not in Kudu: tablet servers and clients also use the masters that a master's answer names.
    heartbeat_names_masters: bool = True
    heartbeat_max_failures_before_backoff: Annotated[int, Within(1, 100)] = 3
    tserver_unresponsive_timeout_ms: Annotated[int, Within(10_000, 3_600_000)] = 60_000
    catalog_manager_bg_task_wait_ms: Annotated[int, Within(10, 5000)] = 1000
    tablet_creation_timeout_ms: Annotated[int, Within(10_000, 60_000)] = 30_000
    master_ts_rpc_timeout_ms: Annotated[int, Within(1000, 60_000)] = 30_000
    unresponsive_ts_rpc_timeout_ms: Annotated[int, Within(600_000, 86_400_000)] = 3_600_000
    master_failover_catchup_timeout_ms: Annotated[int, Within(3000, 60_000)] = 30_000
    master_auto_join_cluster: bool = True
    master_registration_rpc_timeout_ms: Annotated[int, Within(100, 60_000)] = 1500
    enable_metadata_cleanup_for_deleted_tables_and_tablets: bool = True  # Kudu's default is false
    metadata_for_deleted_table_and_tablet_reserved_secs: Annotated[int, Within(30, 2**31 - 1)] = (
        3600
    )
    table_locations_ttl_ms: Annotated[int, Within(1, 86_400_000)] = 300_000
    # Moves of replicas to emptier tablet servers, by the leading master
    auto_rebalancing_enabled: bool = False
    auto_rebalancing_interval_seconds: Annotated[int, Within(1, 3600)] = 30
    auto_rebalancing_max_moves_per_server: Annotated[int, Within(1, 100)] = 1
    auto_rebalancing_prefer_follower_replica_moves: bool = True
    auto_rebalancing_rpc_timeout_seconds: Annotated[int, Within(1, 600)] = 60
    auto_rebalancing_wait_for_replica_moves_seconds: Annotated[int, Within(1, 60)] = 1
    # Limits of requests
    default_num_replicas: Annotated[int, Within(1, 7)] = 3
    min_num_replicas: Annotated[int, Within(1, 7)] = 1
    max_num_replicas: Annotated[int, Within(1, 7)] = 7
    max_create_tablets_per_ts: Annotated[int, Within(1, 10_000)] = 60
    # If false, a create may ask for more replicas than there are live tablet servers. The table's
    # tablets then wait until enough servers are alive.
    catalog_manager_check_ts_count_for_create_table: bool = True
    max_num_columns: Annotated[int, Within(1, 10_000)] = 300
    max_identifier_length: Annotated[int, Within(1, 65_535)] = 256
    # Not in Kudu: the number of answers that masters keep for resent requests. It must exceed the
    # number of changes during the longest delay of a frame or an operation.
    master_replies_max: Annotated[int, Within(128, 100_000)] = 4096
    rpc_max_message_size: Annotated[int, Within(1024 * 1024, 2**31 - 1)] = 50 * 1024 * 1024
    remember_responses_ttl_ms: Annotated[int, Within(60_000, 86_400_000)] = 600_000
    remember_clients_ttl_ms: Annotated[int, Within(60_000, 86_400_000)] = 3_600_000
    # Rows and their history
    safe_time_max_lag_ms: Annotated[int, Within(500, 600_000)] = 30_000
    max_clock_sync_error_usec: Annotated[int, Within(0, 3_600_000_000)] = 10_000_000
    tablet_history_max_age_sec: Annotated[int, Within(1, 30 * 86_400)] = 7 * 86_400
    # Not in Kudu: above this size, a tablet's oldest history is dropped before its maximum age
    tablet_history_max_kb: Annotated[int, Within(16, 1024 * 1024)] = 4096
    # Kudu's own default is 100; a request may ask for fewer rows.
    scanner_batch_size_rows: Annotated[int, Within(1, 10_000)] = 10_000
    # Not in Kudu: the number of rows that a server loads from a snapshot before it does other work.
    rows_loaded_at_once: Annotated[int, Within(1, 100_000)] = 2000
    # The next two flags are not in Kudu: how long a read waits for a majority, in `strict`
    master_follower_read_timeout_ms: Annotated[int, Within(50, 60_000)] = 1000
    master_read_confirm_timeout_ms: Annotated[int, Within(500, 60_000)] = 5000


def parse_flags(text: str, usual: Mapping[str, bool] = MappingProxyType({})) -> Flags:
    """Parse `NAME=VALUE,NAME=VALUE`. Raises `UsageError` for unknown flags or bad values.

    `usual` has the flags for which the profile's default differs from `strict`.
    """
    texts: dict[str, str | bool] = dict(usual)
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator:
            raise UsageError(f"the flag {part!r} has no value; write it as NAME=VALUE")
        name = name.strip().lstrip("-")
        if name not in Flags.__struct_fields__:
            raise UsageError(
                f"--kudu-flag has {part!r}: no flag {name!r}; "
                f"{choices_near(name, Flags.__struct_fields__)}"
            )
        texts[name] = value.strip()
    try:
        flags = msgspec.convert(texts, type=Flags, strict=False)
    except msgspec.ValidationError as error:
        reason, _, name = str(error).partition(" - at `$.")
        name = name.rstrip("`")
        raise UsageError(
            f"--kudu-flag has {name}={texts.get(name)!r}: {reason}; by default it is "
            f"{getattr(Flags(), name, None)}"
        ) from error
    for name, (least, most) in RANGES.items():
        value = getattr(flags, name)
        if not least <= value <= most:  # this also rejects NaN
            usual = getattr(Flags(), name)
            raise UsageError(
                f"the flag {name} is {value}; give a value from {least} to {most}, or omit the "
                f"flag (default: {usual})"
            )
    return flags


RANGES: Final[Mapping[str, Within]] = {
    name: within
    for name, hint in get_type_hints(Flags, include_extras=True).items()
    for within in get_args(hint)[1:]
}

DRAWN: Final[Mapping[str, Sequence[int | str]]] = {
    "master_snapshot_every": (10, 30, 60),
    "tablet_snapshot_every": (2, 4, 50),
    "consensus_max_batch_size_bytes": (
        1024 * 1024,
        1024 * 1024,
        1,
        2000,
    ),
    "log_segment_size_kb": (512, 8),
    # With Kudu's own timeout (300 s), most runs end before a server counts as failed. With a
    # shorter timeout, the masters replace the replicas of a server that is down.
    "follower_unavailable_considered_failed_sec": (300, 300, 3, 10),
    # Without pre-elections, two candidates often use the same term. Short intervals cause many
    # elections.
    "raft_enable_pre_election": ("true", "true", "false"),
    "raft_heartbeat_interval_ms": (500, 500, 150),
    "tablet_creation_timeout_ms": (30_000, 30_000, 10_000),
    "master_replies_max": (4096, 2048),
    # Small values of sizes that runs would otherwise never reach
    "scanner_batch_size_rows": (10_000, 2),
    "rows_loaded_at_once": (2000, 3),
    "tablet_history_max_kb": (4096, 4096, 16),
    "tablet_history_max_age_sec": (7 * 86_400, 7 * 86_400, 10),
}
"""Flags that soaks draw at random, with the values to draw from.

Append new flags at the end, so that the draws of the other flags do not change.
"""


def draw_flags(rng: random.Random, given: str) -> str:
    """Draw flags, as text for `parse_flags`. Flags in `given` override the drawn values."""
    drawn = [f"{name}={choices[rng.randrange(len(choices))]}" for name, choices in DRAWN.items()]
    return ",".join([*drawn, *([given] if given else [])])
