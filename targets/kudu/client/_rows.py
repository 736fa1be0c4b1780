"""The vocabulary `rows` at tablet servers: writes, reads and scans of one client process.

**A write** is one RPC a tablet, all at once. Each part has a request id of its own, under which it
is sent again, as the policy says; the server does it once and answers as it did the first time.
What an attempt proves follows the table of `_client`, with tablet servers in place of masters:

| the attempts of a part                                       | its rows           |
|--------------------------------------------------------------|--------------------|
| answered within the deadline                                 | as answered        |
| none had an effect (never sent, NOT_THE_LEADER, refused)     | "failed"           |
| one of unknown outcome (no answer, `indeterminate`), and none | null               |
| answered later                                               |                    |

**A read** asks the leader, **a scan** each tablet in turn, page by page; both ask again as often as
the deadline allows. The first tablet of a snapshot chooses the timestamp and the others follow.

The highest timestamp of all answers goes with every request, so that what this client does later
has a later timestamp, on whichever server (Kudu's `propagated_timestamp`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.env import Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request
from harness.vocabularies import rows as v
from targets.kudu import messages as m
from targets.kudu.client._policy import RetryPolicy
from targets.kudu.client._replicas import Answered, Replicas, Target
from targets.kudu.client._tables import Gone, Table, TableCache, Tablet
from targets.kudu.partitions import encode_key, key_columns

__all__ = ["RowsClient"]

PAGES_MAX: Final = 10_000
"""Pages of one tablet's scan."""
LATE_SEQ_NOS: Final = 50
"""A client that sends late copies claims to be without the answers of so many of its requests."""
_NO_MASTER: Final = "NO_LEADER: no master was found to lead before the deadline"
_TOO_LATE: Final = "TIMED_OUT: the deadline passed"
_KINDS: Final[Mapping[str, m.RowKind]] = {
    "insert": m.RowKind.INSERT,
    "upsert": m.RowKind.UPSERT,
    "update": m.RowKind.UPDATE,
    "delete": m.RowKind.DELETE,
}
_RESULTS: Final[Mapping[m.RowErrorCode, str]] = {
    m.RowErrorCode.NOT_FOUND: "not-found",
    m.RowErrorCode.ALREADY_PRESENT: "already-present",
    m.RowErrorCode.INVALID_ARGUMENT: "invalid",
    m.RowErrorCode.OUT_OF_RANGE: "invalid",
}
_MODES: Final[Mapping[str, m.ReadMode]] = {
    "latest": m.ReadMode.READ_LATEST,
    "snapshot": m.ReadMode.READ_AT_SNAPSHOT,
    "read-your-writes": m.ReadMode.READ_YOUR_WRITES,
}
_FINAL: Final = frozenset(
    {
        m.TabletErrorCode.MISMATCHED_SCHEMA,
        m.TabletErrorCode.INVALID_SCAN_SPEC,
        m.TabletErrorCode.INVALID_SNAPSHOT,
    }
)
"""Errors that asking again does not mend."""


@dataclasses.dataclass(slots=True)
class _Part:
    """The rows of a write for one tablet, and what is known of them."""

    target: Target
    request: m.WriteRequest
    positions: tuple[int, ...]
    maybe_done: bool = False
    answer: m.WriteResponse | None = None
    node: str | None = None
    error: str | None = None
    again: list[list[Any]] = dataclasses.field(default_factory=list)

    def results(self) -> list[str | None]:
        """Of each row, in the vocabulary's words."""
        if self.answer is not None:
            return _row_results(self.answer, len(self.positions))
        return [None if self.maybe_done else "failed"] * len(self.positions)

    def told(self) -> dict[str, Any]:
        """The part as histories have it."""
        part = {
            "tablet": self.target.tablet.tablet_id,
            "node": self.node,
            "timestamp": None if self.answer is None else self.answer.timestamp or None,
            "rows": list(self.positions),
        }
        return {**part, "again": self.again} if self.again else part


def _row_results(answer: m.WriteResponse, count: int) -> list[str | None]:
    results: list[str | None] = ["ok"] * count
    for error in answer.row_errors:
        results[error.row] = _RESULTS[error.code]
    return results


class RowsClient:
    """Rows of one client process."""

    def __init__(
        self,
        env: Env,
        tables: TableCache,
        replicas: Replicas,
        policy: RetryPolicy,
        client_id: str,
    ) -> None:
        self._env = env
        self._tables = tables
        self._replicas = replicas
        self._policy = policy
        self._client_id = client_id
        self._seq_no = 0
        self._timestamp = 0
        self._late: dict[asyncio.Task[None], None] = {}

    def close(self) -> None:
        """Send no more copies."""
        for task in self._late:
            task.cancel()

    async def invoke(self, request: Request, deadline_ns: int) -> Completion:
        """Do one operation; raises `UsageError` for values outside the vocabulary."""
        call = v.call_of(request.f, request.value)
        assert isinstance(call, v.Write | v.Read | v.Scan), "the others are for masters"
        try:
            table = await self._tables.find(call.table, deadline_ns)
        except Gone as gone:
            kind = OpType.FAIL if isinstance(call, v.Write) else OpType.OK
            error = f"TABLE_NOT_FOUND: {gone}" if kind is OpType.FAIL else None
            return Completion(kind, {"result": "not-found"}, error)
        if table is None:
            return Completion(OpType.FAIL, None, _NO_MASTER)
        match call:
            case v.Write():
                return await self._write(call, table, deadline_ns)
            case v.Read():
                return await self._read(call, table, deadline_ns)
            case v.Scan():
                return await self._scan(call, table, deadline_ns)

    # --- writes ------------------------------------------------------------------------------

    async def _write(self, call: v.Write, table: Table, deadline_ns: int) -> Completion:
        attempts: list[Attempt] = []
        columns = table.column_ids
        unknown = sorted({c for _, _, cells in call.rows for c in cells if c not in columns})
        if unknown:
            # It may have been added since; nothing was sent.
            await self._ask_beside(call.table, deadline_ns)
            return Completion(OpType.FAIL, None, f"NO_COLUMN: {', '.join(unknown)}")
        parts = self._parts(call, table, deadline_ns, attempts)
        tasks = [
            self._env.spawn(self._send(part), name=f"write-{part.request.request_id.seq_no}")
            for part in parts
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return _written(parts, table, len(call.rows), attempts)

    async def _ask_beside(self, name: str, deadline_ns: int) -> None:
        try:
            await self._tables.ask(name, deadline_ns)
        except Gone:
            return

    def _parts(
        self, call: v.Write, table: Table, deadline_ns: int, attempts: list[Attempt]
    ) -> list[_Part]:
        columns = table.column_ids
        by_tablet: dict[str, tuple[Tablet, list[int]]] = {}
        for position, (_, key, _) in enumerate(call.rows):
            tablet = table.tablet_of((key,))
            by_tablet.setdefault(tablet.tablet_id, (tablet, []))[1].append(position)
        first = self._seq_no + 1
        self._seq_no += len(by_tablet)
        held = LATE_SEQ_NOS if self._policy.late_percent else 0
        parts = []
        for number, (tablet, positions) in enumerate(by_tablet.values()):
            rows = [call.rows[position] for position in positions]
            request = m.WriteRequest(
                tablet.tablet_id,
                m.RowRequestId(self._client_id, first + number, max(0, first - held)),
                tuple(
                    m.RowOperation(
                        _KINDS[kind], (key,), {columns[c]: cell for c, cell in cells.items()}
                    )
                    for kind, key, cells in rows
                ),
                self._timestamp,
            )
            target = Target(call.table, table, tablet, deadline_ns, attempts)
            parts.append(_Part(target, request, tuple(positions)))
        return parts

    async def _send(self, part: _Part) -> None:
        """Send one part until it is answered, as the policy allows."""
        count = 0
        limit_s = self._policy.mutation_attempt_timeout_s
        while count < self._policy.attempts_max:
            count += 1
            answered = await self._replicas.attempt(
                part.target, "TabletServerService.Write", part.request, m.WriteResponse, limit_s
            )
            if answered is None:
                part.error = part.error or _TOO_LATE
                return
            part.node, part.error = answered.node, answered.text
            if self._judge(part, answered):
                break
            if answered.failure is None and answered.error is not None:
                if answered.error.code is m.TabletErrorCode.NOT_THE_LEADER:
                    continue
                await self._replicas.pause(part.target)
        if part.answer is None:
            return
        part.error = None
        if self._policy.repeat and part.request.request_id.seq_no % 2 == 1:
            await self._repeat(part)
        self._keep_late_copy(part)

    def _judge(self, part: _Part, answered: Answered) -> bool:
        """Whether that was the last attempt."""
        error = answered.error
        if answered.failure is not None:
            part.maybe_done = part.maybe_done or answered.failure.sent
            return part.maybe_done and not self._policy.resend
        if error is None:
            if self._replicas.left_s(part.target) < 0:
                # The caller has stopped waiting: even success would be stamped at a wrong time.
                part.maybe_done, part.error = True, _TOO_LATE
                return True
            part.answer = answered.response
            self._learn(answered.response.timestamp, answered.response.propagated_timestamp)
            return True
        if error.code is m.TabletErrorCode.REQUEST_STALE:
            part.maybe_done = True  # its answer is forgotten, if there was one
            return True
        if error.indeterminate:
            part.maybe_done = True
            return not self._policy.resend
        return error.code in _FINAL

    async def _repeat(self, part: _Part) -> None:
        """Ask once more for what was acknowledged; what comes is for checkers to compare."""
        limit_s = self._policy.mutation_attempt_timeout_s
        answered = await self._replicas.attempt(
            part.target, "TabletServerService.Write", part.request, m.WriteResponse, limit_s
        )
        if answered is None or answered.response is None or answered.error is not None:
            return
        answer: m.WriteResponse = answered.response
        self._learn(answer.propagated_timestamp)
        results = _row_results(answer, len(part.positions))
        part.again.append([answer.timestamp or None, results])

    def _keep_late_copy(self, part: _Part) -> None:
        """Some acknowledged parts come once more, late (`RetryPolicy`)."""
        random = self._env.random
        if not self._policy.late_percent or random.randrange(100) >= self._policy.late_percent:
            return
        pause_s = random.random() * self._policy.late_s_max
        name = f"late-rows-{part.request.request_id.seq_no}"
        task = self._env.spawn(self._send_late(part, pause_s), name=name)
        self._late[task] = None
        task.add_done_callback(self._late.pop)

    async def _send_late(self, part: _Part, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        limit_s = self._policy.mutation_attempt_timeout_s
        deadline_ns = self._env.clock.monotonic_ns() + int(limit_s * 1e9)
        copy = dataclasses.replace(part.target, deadline_ns=deadline_ns, attempts=[], tried=[])
        self._env.event("late-copy", method="TabletServerService.Write", revision=0)
        await self._replicas.attempt(
            copy, "TabletServerService.Write", part.request, m.WriteResponse, limit_s
        )

    # --- reads -------------------------------------------------------------------------------

    async def _read(self, call: v.Read, table: Table, deadline_ns: int) -> Completion:
        attempts: list[Attempt] = []
        tablet = table.tablet_of((call.key,))
        encoded = encode_key(key_columns(table.schema), (call.key,))
        target = Target(call.table, table, tablet, deadline_ns, attempts)
        # The least key above this one has a zero behind it.
        asked = m.ScanRequest(tablet.tablet_id, key_start=encoded, key_end=encoded + b"\x00")
        found = await self._pages(target, asked)
        if isinstance(found, str):
            return Completion(OpType.FAIL, None, found, target.node, tuple(attempts))
        rows = dict(found["rows"])
        value = {
            "table_id": table.table_id,
            "tablet": tablet.tablet_id,
            "timestamp": found["timestamp"],
            "row": rows.get(call.key),
        }
        return Completion(OpType.OK, value, None, found["node"], tuple(attempts))

    async def _scan(self, call: v.Scan, table: Table, deadline_ns: int) -> Completion:
        attempts: list[Attempt] = []
        columns = key_columns(table.schema)
        start = b"" if call.start is None else encode_key(columns, (call.start,))
        end = b"" if call.end is None else encode_key(columns, (call.end,))
        mode, at = _MODES[call.mode], call.at or 0
        parts: list[dict[str, Any]] = []
        for tablet in table.tablets:
            target = Target(call.table, table, tablet, deadline_ns, attempts)
            target.any_replica = call.replica == "any"
            asked = m.ScanRequest(
                tablet.tablet_id,
                mode,
                at,
                key_start=start,
                key_end=end,
                allow_followers=call.replica == "any" and call.mode == "latest",
            )
            found = await self._pages(target, asked)
            if isinstance(found, str):
                return Completion(OpType.FAIL, None, found, target.node, tuple(attempts))
            parts.append(found)
            if call.mode != "latest":
                mode, at = m.ReadMode.READ_AT_SNAPSHOT, found["timestamp"] or 0
        stamps = {part["timestamp"] for part in parts}
        value = {
            "table_id": table.table_id,
            "timestamp": stamps.pop() if len(stamps) == 1 else None,
            "parts": parts,
        }
        return Completion(OpType.OK, value, None, parts[-1]["node"], tuple(attempts))

    async def _pages(self, target: Target, asked: m.ScanRequest) -> dict[str, Any] | str:
        """All rows of one tablet, and at which timestamp; or why there is no answer."""
        rows: list[list[Any]] = []
        token, pages, count, why = b"", 0, 0, _TOO_LATE
        while count < self._policy.attempts_max + PAGES_MAX:
            count += 1
            limit_s = self._policy.read_attempt_timeout_s
            wait_s = max(0.0, min(limit_s, self._replicas.left_s(target)))
            answered = await self._replicas.attempt(
                target,
                "TabletServerService.Scan",
                _page(asked, token, self._timestamp, wait_s),
                m.ScanResponse,
                limit_s,
            )
            if answered is None:
                return "TABLE_NOT_FOUND: the tablet is gone" if target.gone else why
            why = answered.text
            if answered.failure is not None:
                continue
            if answered.error is not None:
                if answered.error.code in _FINAL:
                    return why
                if answered.error.code is not m.TabletErrorCode.NOT_THE_LEADER:
                    await self._replicas.pause(target)
                continue
            response: m.ScanResponse = answered.response
            if self._replicas.left_s(target) < 0:
                return _TOO_LATE
            self._learn(response.snap_timestamp, response.propagated_timestamp)
            names = await self._columns(target, response.column_ids)
            if names is None:
                return why
            rows += [_row(names, response.column_ids, row) for row in response.rows]
            token, pages = response.page_token, pages + 1
            target.tried.clear()
            if not token:
                return {
                    "tablet": target.tablet.tablet_id,
                    "node": answered.node,
                    "timestamp": response.snap_timestamp or None,
                    "rows": rows,
                }
            if pages >= PAGES_MAX:
                return f"TOO_LARGE: the tablet has more than {PAGES_MAX} pages of rows"
        return why

    async def _columns(self, target: Target, ids: Sequence[int]) -> Mapping[int, m.Column] | None:
        """Columns by id; a master is asked where some were added since it was asked last."""
        names = {column.id: column for column in target.table.schema.columns}
        if not set(ids) <= names.keys():
            try:
                table = await self._tables.ask(target.name, target.deadline_ns)
            except Gone:
                return None
            if table is None or table.table_id != target.table.table_id:
                return None
            target.table = table
            names = {column.id: column for column in table.schema.columns}
        return names

    def _learn(self, *timestamps: int) -> None:
        self._timestamp = max(self._timestamp, *timestamps)


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
        timeout_ms=max(1, int(wait_s * 900)),  # so that it can still answer
    )


def _row(names: Mapping[int, m.Column], ids: Sequence[int], row: Sequence[Any]) -> list[Any]:
    """[key, cells]; cells that are null, or of a column that is gone by now, are left out."""
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


def _written(
    parts: Sequence[_Part], table: Table, count: int, attempts: Sequence[Attempt]
) -> Completion:
    """How a write ends; see the module's table."""
    results: list[str | None] = [None] * count
    for part in parts:
        for position, result in zip(part.positions, part.results(), strict=True):
            results[position] = result
    value = {
        "table_id": table.table_id,
        "rows": results,
        "parts": [part.told() for part in parts],
    }
    errors = [part.error for part in parts if part.error is not None]
    kind = OpType.INFO
    if all(part.answer is not None for part in parts):
        kind = OpType.OK
    elif all(part.answer is None and not part.maybe_done for part in parts):
        kind = OpType.FAIL
    node = parts[-1].node
    return Completion(kind, value, errors[0] if errors else None, node, tuple(attempts))
