"""Writes and reads the run store: one folder per run.

`store/<name>/<run>/` holds

| file            | content                                                             |
|-----------------|---------------------------------------------------------------------|
| case.json       | the case, with its planned faults; written before the run begins    |
| ops.log         | every op as it happens, checksummed; removed when the run is sealed |
| history.parquet | the sealed history, sorted by index                                 |
| results.json    | verdict, one entry per checker, the certificate (what the run did)  |
| run.json        | identity, versions, digest, verdict; written last, by atomic rename |
| logs/           | one log per node                                                    |

`store/<name>/latest` links to the newest run. A run without `run.json` was cut short: its history
is in `ops.log`, and `harness check` reads it back.
"""

from harness.store.buckets import lat_bucket
from harness.store.folder import (
    SHRUNK_SUFFIX,
    RunFolder,
    RunRecord,
    StoredRun,
    check_place,
    is_being_written,
    load_run,
    new_run_id,
    shrunk_name,
)
from harness.store.oplog import OpLog, read_log
from harness.store.parquet import read_parquet, write_parquet

__all__ = [
    "SHRUNK_SUFFIX",
    "OpLog",
    "RunFolder",
    "RunRecord",
    "StoredRun",
    "check_place",
    "is_being_written",
    "lat_bucket",
    "load_run",
    "new_run_id",
    "read_log",
    "read_parquet",
    "shrunk_name",
    "write_parquet",
]
