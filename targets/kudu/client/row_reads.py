"""Reads of rows: one row from the leader, or a scan of one tablet after another, page by page.

A client repeats reads and scans until they succeed or the deadline passes. In a snapshot scan, the
first tablet chooses a timestamp. All other tablets are read at this timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.ops import Attempt, OpType
from harness.plugins import Completion
from harness.vocabularies.rows import Read, Scan
from targets.kudu import messages as m
from targets.kudu.client.replicas import FINAL, TOO_LATE, Replicas, Target
from targets.kudu.client.session import ClientTime, Deadline, RetryPolicy
from targets.kudu.client.tables import Gone, Table, TableCache
from targets.kudu.partitions import encode_key

PAGES_MAX: Final = 10_000
_GONE: Final = "TABLE_NOT_FOUND: the tablet is gone"
_MODES: Final[Mapping[str, m.ReadMode]] = {
    "latest": m.ReadMode.READ_LATEST,
    "snapshot": m.ReadMode.READ_AT_SNAPSHOT,
    "read-your-writes": m.ReadMode.READ_YOUR_WRITES,
}


class RowReader:
    """The reads and scans of one client process."""

    def __init__(
        self, tables: TableCache, replicas: Replicas, policy: RetryPolicy, time: ClientTime
    ) -> None:
        self._tables = tables
        self._replicas = replicas
        self._policy = policy
        self._time = time

    async def read(self, call: Read, table: Table, deadline: Deadline) -> Completion:
        attempts: list[Attempt] = []
        tablet = table.tablet_of((call.key,))
        encoded = encode_key(table.key, (call.key,))
        target = Target(call.table, table, tablet, deadline, attempts)
        # `key_end` is excluded, and the smallest key above a key is that key plus a zero byte.
        asked = m.ScanRequest(tablet.tablet_id, key_start=encoded, key_end=encoded + b"\x00")
        part = await self._pages(target, asked)
        if isinstance(part, str):
            return Completion(OpType.FAIL, None, part, target.node, tuple(attempts))
        rows = dict(part["rows"])
        value = {
            "table_id": table.table_id,
            "tablet": tablet.tablet_id,
            "term": part["term"],
            "timestamp": part["timestamp"],
            "row": rows.get(call.key),
        }
        return Completion(OpType.OK, value, None, part["node"], tuple(attempts))

    async def scan(self, call: Scan, table: Table, deadline: Deadline) -> Completion:
        attempts: list[Attempt] = []
        start = b"" if call.start is None else encode_key(table.key, (call.start,))
        end = b"" if call.end is None else encode_key(table.key, (call.end,))
        mode, at = _MODES[call.mode], call.at or 0
        parts: list[dict[str, Any]] = []
        for tablet in table.tablets:
            target = Target(call.table, table, tablet, deadline, attempts)
            target.any_replica = call.replica == "any"
            asked = m.ScanRequest(
                tablet.tablet_id,
                mode,
                at,
                key_start=start,
                key_end=end,
                allow_followers=call.replica == "any" and call.mode == "latest",
            )
            part = await self._pages(target, asked)
            if isinstance(part, str):
                return Completion(OpType.FAIL, None, part, target.node, tuple(attempts))
            parts.append(part)
            if call.mode != "latest":
                mode, at = m.ReadMode.READ_AT_SNAPSHOT, part["timestamp"] or 0
        stamps = {part["timestamp"] for part in parts}
        value = {
            "table_id": table.table_id,
            "timestamp": parts[0]["timestamp"] if len(stamps) == 1 else None,
            "parts": parts,
        }
        return Completion(OpType.OK, value, None, parts[-1]["node"], tuple(attempts))

    async def _pages(self, target: Target, asked: m.ScanRequest) -> dict[str, Any] | str:
        rows: list[list[Any]] = []
        token, pages, count, why = b"", 0, 0, TOO_LATE
        while count < self._policy.attempts_max + PAGES_MAX:
            count += 1
            limit_s = self._policy.read_attempt_timeout_s
            wait_s = target.deadline.limit_s(limit_s)
            request = _page(asked, token, self._time.timestamp, wait_s)
            answered = await self._replicas.attempt(target, request, limit_s)
            if answered is None:
                return _GONE if target.gone else why
            why, response, error = answered.text, answered.response, answered.error
            if response is None:
                continue
            if error is not None:
                if error.code in FINAL:
                    return why
                if error.code is not m.TabletErrorCode.NOT_THE_LEADER:
                    await self._replicas.pause(target)
                continue
            if target.deadline.left_s < 0:
                return TOO_LATE
            self._time.learn(response.snap_timestamp, response.propagated_timestamp)
            names = await self._columns(target, response.column_ids)
            if names is None:
                return _GONE if target.gone else TOO_LATE
            rows += [_row(names, response.column_ids, row) for row in response.rows]
            token, pages = response.page_token, pages + 1
            if not token:
                return {
                    "tablet": target.tablet.tablet_id,
                    "node": answered.node,
                    "term": response.replica.term or None,
                    "timestamp": response.snap_timestamp or None,
                    "rows": rows,
                }
            if pages >= PAGES_MAX:
                return f"TOO_LARGE: the tablet has more than {PAGES_MAX} pages of rows"
        return why

    async def _columns(self, target: Target, ids: Sequence[int]) -> Mapping[int, m.Column] | None:
        names = {column.id: column for column in target.table.schema.columns}
        if not set(ids) <= names.keys():
            try:
                table = await self._tables.ask(target.name, target.deadline)
            except Gone:
                target.gone = True
                return None
            if table is None or table.table_id != target.table.table_id:
                target.gone = table is not None
                return None
            target.table = table
            names = {column.id: column for column in table.schema.columns}
        return names


def _page(asked: m.ScanRequest, token: bytes, timestamp: int, wait_s: float) -> m.ScanRequest:
    return m.ScanRequest(
        asked.tablet_id,
        asked.mode,
        asked.snapshot_timestamp,
        timestamp,
        key_start=asked.key_start,
        key_end=asked.key_end,
        page_token=token,
        allow_followers=asked.allow_followers,
        # the server waits for 90 % of `wait_s` at most, to leave time for its answer
        timeout_ms=max(1, int(wait_s * 900)),
    )


def _row(names: Mapping[int, m.Column], ids: Sequence[int], row: Sequence[Any]) -> list[Any]:
    key, cells = None, {}
    for ident, cell in zip(ids, row, strict=True):
        column = names.get(ident)
        if column is None or cell is None:
            continue
        if column.is_key:
            key = cell
        else:
            cells[column.name] = cell
    return [key, cells]
