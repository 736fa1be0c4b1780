"""What a master is told about the metastores, by the names of Kudu's flags.

| here          | flag of Kudu                                   | there by default |
|---------------|------------------------------------------------|------------------|
| addresses     | hive_metastore_uris                            |                  |
| retry_count   | hive_metastore_retry_count                     | 1                |
| connect_s     | hive_metastore_conn_timeout                    | 60 s             |
| answer_s      | hive_metastore_send_timeout, ..._recv_timeout  | 60 s             |
| poll_period_s | hive_metastore_notification_log_poll_period... | 15 s             |
| batch_size    | hive_metastore_notification_log_batch_size     | 100              |
| wait_s        | ..._notification_log_catch_up_deadline_ms      | 30 s             |

`repair_s` is ours: how often the leader of profile `strict` compares the catalogs.
"""

from __future__ import annotations

import msgspec


class HmsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module's table; `addresses` are "node:port", in the order in which to try them."""

    addresses: tuple[str, ...]
    retry_count: int = 1
    connect_s: float = 1.0
    answer_s: float = 2.0
    poll_period_s: float = 1.0
    batch_size: int = 100
    wait_s: float = 10.0
    backoff_s_min: float = 0.1
    backoff_s_max: float = 2.0
    repair_s: float = 1.0
