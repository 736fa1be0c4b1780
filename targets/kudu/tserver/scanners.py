"""Scans and checksums of one tablet, page by page, at one timestamp.

A scan first chooses a timestamp that is safe on this replica (`time_manager.py`). Every page is
read at that timestamp. The page's token contains it, so that any replica can continue the scan. The
read mode decides how the timestamp is chosen:

* READ_LATEST on a leader: the newest applied timestamp, after a majority has confirmed the
  leadership and all writes committed by then are applied. The scan sees all writes acknowledged
  before the request, so the read is linearizable.
* READ_LATEST on another replica, if allowed: the newest timestamp that this replica has applied,
  however old.
* READ_AT_SNAPSHOT: the requested timestamp, or by default this server's time. A requested timestamp
  may be ahead of the server's time by at most the allowed clock error.
* READ_YOUR_WRITES: the newest timestamp that this replica has applied, or the caller's timestamp if
  that is newer.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

import msgspec

from targets.kudu import messages as m
from targets.kudu.bugs import Bug
from targets.kudu.consensus.errors import RaftError
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.context import NodeContext
from targets.kudu.hybrid_clock import ClockError, HybridClock
from targets.kudu.partitions import decode_key
from targets.kudu.tserver.errors import TabletRefusedError
from targets.kudu.tserver.mvcc import Page, decode_row
from targets.kudu.tserver.tablet import TabletMachine
from targets.kudu.tserver.time_manager import SafeTime

BATCH_ROWS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 1024 * 1024
_CHECKSUM_ROWS: Final = 1000
_CHECKSUM_BYTES: Final = 8
_Code = m.TabletErrorCode


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """The content of a page token: where, and at which timestamp, a scan continues."""

    timestamp: int
    next_key: bytes


_tokens = msgspec.msgpack.Decoder(_Token)
_encode = msgspec.msgpack.Encoder().encode


class Scans:
    """Handles the scans and checksums of one replica."""

    def __init__(
        self,
        node: NodeContext,
        *,
        replica: Replica,
        machine: TabletMachine,
        clock: HybridClock,
        safe_time: SafeTime,
    ) -> None:
        self._uuid = node.uuid
        self._batch_rows_max = node.flags.scanner_batch_size_rows
        self._confirms = Bug.NO_LEASE not in node.bugs
        self._replica = replica
        self._machine = machine
        self._clock = clock
        self._safe_time = safe_time

    async def scan(self, request: m.ScanRequest) -> m.ScanResponse:
        try:
            token = self._token(request)
            if token is not None:
                confirmed = False
                timestamp = await self._at(token.timestamp, request.timeout_ms)
            else:
                timestamp, confirmed = await self._choose(request)
            return self._page(request, token, timestamp, confirmed=confirmed)
        except TabletRefusedError as refused:
            return m.ScanResponse(refused.error, replica=self._info(confirmed=False))

    @staticmethod
    def _token(request: m.ScanRequest) -> _Token | None:
        if not 0 < request.batch_rows <= BATCH_ROWS_MAX:
            raise TabletRefusedError(
                _Code.INVALID_SCAN_SPEC,
                f"batch_rows is {request.batch_rows}; it must be 1 to {BATCH_ROWS_MAX}",
            )
        if not request.page_token:
            return None
        try:
            return _tokens.decode(request.page_token)
        except msgspec.MsgspecError as error:
            raise TabletRefusedError(
                _Code.INVALID_SCAN_SPEC,
                f"the page token {request.page_token!r} is not valid: {error}",
            ) from error

    # --- the timestamp ----------------------------------------------------------------------

    async def _choose(self, request: m.ScanRequest) -> tuple[int, bool]:
        self._update(request.propagated_timestamp, _Code.CLOCK_TOO_FAR_AHEAD)
        if request.mode is m.ReadMode.READ_LATEST:
            if self._replica.role != "LEADER" and request.allow_followers:
                return self._machine.last_timestamp, False
            return await self._latest(request.timeout_ms), self._confirms
        if request.mode is m.ReadMode.READ_YOUR_WRITES:
            newest = max(request.propagated_timestamp, self._machine.last_timestamp)
            return await self._at(newest, request.timeout_ms), False
        timestamp = request.snapshot_timestamp or self._clock.now()
        self._refuse_ancient(timestamp)
        return await self._at(timestamp, request.timeout_ms), False

    def _refuse_ancient(self, timestamp: int) -> None:
        """Refuse a snapshot before the ancient history mark, even if its versions still exist.

        Otherwise the result would depend on when versions are removed (Kudu:
        `VerifyNotAncientHistory`).
        """
        mark = self._machine.last_timestamp - self._machine.history_age
        if timestamp < mark:
            raise TabletRefusedError(
                _Code.INVALID_SNAPSHOT,
                f"the snapshot {timestamp} is older than the ancient history mark {mark} (flag "
                "tablet_history_max_age_sec)",
            )

    def _update(self, timestamp: int, code: m.TabletErrorCode) -> None:
        try:
            self._clock.update(timestamp)
        except ClockError as error:
            raise TabletRefusedError(code, str(error)) from error

    async def _latest(self, timeout_ms: int) -> int:
        if self._replica.role != "LEADER":
            raise TabletRefusedError(
                _Code.NOT_THE_LEADER, f"not the leader of {self._replica.group_id}"
            )
        if not self._confirms and self._replica.has_what_older_terms_committed:
            # With NO-LEASE, this leader may be deposed, but it has all entries of older terms.
            return self._machine.last_timestamp
        try:
            await self._replica.confirm_leadership(timeout_s=timeout_ms / 1000)
        except TimeoutError as error:
            raise TabletRefusedError(
                _Code.TIMED_OUT, f"no majority confirmed this leader within {timeout_ms} ms"
            ) from error
        except RaftError as error:
            raise TabletRefusedError(_Code.NOT_THE_LEADER, str(error)) from error
        return self._machine.last_timestamp

    async def _at(self, timestamp: int, timeout_ms: int) -> int:
        self._update(timestamp, _Code.INVALID_SNAPSHOT)
        try:
            await self._safe_time.wait(timestamp, timeout_ms / 1000)
        except TimeoutError as error:
            raise TabletRefusedError(_Code.TIMED_OUT, str(error)) from error
        except OverflowError as error:
            raise TabletRefusedError(_Code.THROTTLED, str(error)) from error
        return timestamp

    # --- the rows ---------------------------------------------------------------------------

    def _read(
        self, timestamp: int, start: bytes, end: bytes, *, rows_max: int, bytes_max: int
    ) -> Page:
        rows = self._machine.rows
        if timestamp < rows.history_start:
            raise TabletRefusedError(
                _Code.INVALID_SNAPSHOT,
                f"the snapshot {timestamp} is older than the history kept here, which starts at "
                f"{rows.history_start} (flags tablet_history_max_age_sec, tablet_history_max_kb)",
            )
        return rows.scan(timestamp, start, end, rows_max=rows_max, bytes_max=bytes_max)

    def _page(
        self, request: m.ScanRequest, token: _Token | None, timestamp: int, *, confirmed: bool
    ) -> m.ScanResponse:
        machine = self._machine
        columns = {column.id: column for column in machine.schema.columns}
        wanted = tuple(columns) if request.projection is None else request.projection
        unknown = [column_id for column_id in wanted if column_id not in columns]
        if unknown:
            raise TabletRefusedError(
                _Code.MISMATCHED_SCHEMA,
                f"there is no column {unknown[0]} in version {machine.schema_version} of the "
                "schema",
            )
        page = self._read(
            timestamp,
            request.key_start if token is None else max(token.next_key, request.key_start),
            request.key_end,
            rows_max=min(request.batch_rows, self._batch_rows_max),
            bytes_max=BATCH_BYTES_MAX,
        )
        key_ids = [column.id for column in machine.key]
        needs_key = any(column_id in key_ids for column_id in wanted)
        rows = []
        for key, encoded in page.rows:
            row = decode_row(encoded)
            if needs_key:
                row.update(zip(key_ids, decode_key(machine.key, key), strict=True))
            rows.append(tuple([row.get(column_id) for column_id in wanted]))
        token_next = b""
        if page.next_key is not None:
            token_next = _encode(_Token(timestamp, page.next_key))
        return m.ScanResponse(
            column_ids=wanted,
            rows=tuple(rows),
            page_token=token_next,
            snap_timestamp=timestamp,
            propagated_timestamp=max(timestamp, machine.last_timestamp),
            schema_version=machine.schema_version,
            replica=self._info(confirmed=confirmed),
        )

    def _info(self, *, confirmed: bool) -> m.ReplicaInfo:
        replica = self._replica
        return m.ReplicaInfo(
            self._uuid, replica.role, replica.term, self._machine.applied_index, confirmed
        )

    async def checksum(self, request: m.ChecksumRequest) -> m.ChecksumResponse:
        """Answer with the checksum of all rows at a timestamp; other tasks run between pages."""
        try:
            timestamp = request.snapshot_timestamp or self._clock.now()
            await self._at(timestamp, request.timeout_ms)
            return await self._sum(timestamp)
        except TabletRefusedError as refused:
            return m.ChecksumResponse(refused.error, replica=self._info(confirmed=False))

    async def _sum(self, timestamp: int) -> m.ChecksumResponse:
        machine = self._machine
        schema_version, column_ids = machine.schema_version, list(machine.values)
        digest = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
        count = 0
        next_key: bytes | None = b""
        while next_key is not None:
            page = self._read(
                timestamp, next_key, b"", rows_max=_CHECKSUM_ROWS, bytes_max=BATCH_BYTES_MAX
            )
            for key, encoded in page.rows:
                row = decode_row(encoded)
                digest.update(_encode((key, [row.get(column_id) for column_id in column_ids])))
            count += len(page.rows)
            next_key = page.next_key
            await asyncio.sleep(0)
        return m.ChecksumResponse(
            checksum=digest.hexdigest(),
            rows=count,
            snap_timestamp=timestamp,
            schema_version=schema_version,
            replica=self._info(confirmed=False),
        )
