"""Defects of tablet servers that show in rows, planted one at a time."""

from typing import Any

import msgspec
import pytest

from targets.kudu.hybrid_clock import HybridClock
from targets.kudu.messages import ScanRequest, WriteResponse
from targets.kudu.tserver.result_tracker import Results
from targets.kudu.tserver.scanners import Scans
from targets.kudu.tserver.tablet import TabletMachine
from targets.kudu.tserver.time_manager import SafeTime
from targets.kudu.tserver.write_op import Writes
from tests.support.replacing import instead


@instead(Scans, "_latest")
async def followers_answer_latest(_: Any, self: Scans, timeout_ms: int) -> int:
    """Any replica answers reads that only a leader may answer."""
    del timeout_ms
    return self._machine.last_timestamp


def requests_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A resent request is treated as a new one."""
    patch.setattr(Results, "find", lambda self, client_id, seq_no: None)
    patch.setattr(Results, "is_stale", lambda self, client_id, seq_no: False)


@instead(SafeTime, "wait")
async def safe_time_is_ignored(_: Any, self: SafeTime, timestamp: int, timeout_s: float) -> None:
    """A snapshot is read before its timestamp is safe."""
    del self, timestamp, timeout_s


@instead(Writes, "_answer")
def row_errors_are_lost(original: Any, self: Writes, result: Any) -> WriteResponse:
    """Refused rows are acknowledged."""
    return msgspec.structs.replace(original(self, result), row_errors=())


def timestamps_of_clients_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Timestamps in clients' requests do not advance the clock."""
    patch.setattr(HybridClock, "update", lambda self, timestamp: None)


@instead(TabletMachine, "_write_row")
def one_row_of_a_write_is_dropped(
    original: Any, self: TabletMachine, row: Any, timestamp: int
) -> Any:
    """The last row of a write is sometimes acknowledged but not written."""
    if timestamp % 7 == 0 and row.key[0].endswith(("1", "2")):
        return None
    return original(self, row, timestamp)


@instead(Scans, "_read")
def bounds_of_scans_are_ignored(
    original: Any, self: Scans, timestamp: int, start: bytes, end: bytes, **limits: int
) -> Any:
    """A scan with bounds returns all rows."""
    del start, end
    return original(self, timestamp, b"", b"", **limits)


@instead(Scans, "_choose")
async def timestamps_of_snapshots_are_ignored(
    original: Any, self: Scans, request: ScanRequest
) -> tuple[int, bool]:
    """Every tablet chooses its own timestamp for a snapshot, and reports it."""
    return await original(self, msgspec.structs.replace(request, snapshot_timestamp=0))


DEFECTS = (
    followers_answer_latest,
    requests_are_not_remembered,
    safe_time_is_ignored,
    row_errors_are_lost,
    timestamps_of_clients_are_ignored,
    one_row_of_a_write_is_dropped,
    bounds_of_scans_are_ignored,
    timestamps_of_snapshots_are_ignored,
)
