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


def followers_answer_latest(patch: pytest.MonkeyPatch) -> None:
    """Any replica answers reads that only a leader may answer."""

    async def latest(self: Scans, timeout_ms: int) -> int:
        del timeout_ms
        return self._machine.last_timestamp

    patch.setattr(Scans, "_latest", latest)


def requests_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A resent request is treated as a new one."""
    patch.setattr(Results, "find", lambda self, client_id, seq_no: None)
    patch.setattr(Results, "is_stale", lambda self, client_id, seq_no: False)


def safe_time_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is read before its timestamp is safe."""

    async def wait(self: SafeTime, timestamp: int, timeout_s: float) -> None:
        del self, timestamp, timeout_s

    patch.setattr(SafeTime, "wait", wait)


def row_errors_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Refused rows are acknowledged."""
    original = Writes._answer

    def answer(self: Writes, result: Any) -> WriteResponse:
        return msgspec.structs.replace(original(self, result), row_errors=())

    patch.setattr(Writes, "_answer", answer)


def timestamps_of_clients_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Timestamps in clients' requests do not advance the clock."""
    patch.setattr(HybridClock, "update", lambda self, timestamp: None)


def one_row_of_a_write_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """The last row of a write is sometimes acknowledged but not written."""
    original = TabletMachine._write_row

    def write_row(self: TabletMachine, row: Any, timestamp: int) -> Any:
        if timestamp % 7 == 0 and row.key[0].endswith(("1", "2")):
            return None
        return original(self, row, timestamp)

    patch.setattr(TabletMachine, "_write_row", write_row)


def bounds_of_scans_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A scan with bounds returns all rows."""
    original = Scans._read

    def read(self: Scans, timestamp: int, start: bytes, end: bytes, **limits: int) -> Any:
        del start, end
        return original(self, timestamp, b"", b"", **limits)

    patch.setattr(Scans, "_read", read)


def timestamps_of_snapshots_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Every tablet chooses its own timestamp for a snapshot, and reports it."""
    original = Scans._choose

    async def choose(self: Scans, request: ScanRequest) -> tuple[int, bool]:
        return await original(self, msgspec.structs.replace(request, snapshot_timestamp=0))

    patch.setattr(Scans, "_choose", choose)


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
