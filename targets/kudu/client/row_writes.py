"""Writes of rows: one RPC per tablet, all sent at once.

The rows for one tablet are one *part* of the write, with its own request id. The client may resend
a part under the same id (`RetryPolicy`). The server executes a part once, and answers each copy
with the first result. A part's attempts decide the results of its rows, as in the module `client`:

| the attempts of a part                                      | its rows    |
|-------------------------------------------------------------|-------------|
| answered within the deadline                                | as answered |
| none had an effect (never sent, NOT_THE_LEADER, refused)    | "failed"    |
| one of unknown outcome (no answer, `indeterminate`), and    | null        |
| none answered later                                         |             |
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.env import Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion
from harness.vocabularies.rows import Write
from targets.kudu import messages as m
from targets.kudu.client.replicas import FINAL, TOO_LATE, Answered, Replicas, Target
from targets.kudu.client.session import ClientTime, Deadline, RetryPolicy
from targets.kudu.client.tables import Gone, Table, TableCache, Tablet

LATE_SEQ_NOS: Final = 50
"""The number of latest requests that a client reports as unfinished if it sends late copies.

Servers remember the results of unfinished requests, and so recognize late copies.
"""
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


@dataclasses.dataclass(slots=True)
class _Part:
    target: Target
    request: m.WriteRequest
    positions: tuple[int, ...]
    maybe_done: bool = False
    answer: m.WriteResponse | None = None
    node: str | None = None
    error: str | None = None
    again: list[list[Any]] = dataclasses.field(default_factory=list)

    def results(self) -> list[str | None]:
        if self.answer is not None:
            return _row_results(self.answer, len(self.positions))
        return [None if self.maybe_done else "failed"] * len(self.positions)

    def to_history(self) -> dict[str, Any]:
        part = {
            "tablet": self.target.tablet.tablet_id,
            "node": self.node,
            "term": None if self.answer is None else self.answer.term or None,
            "timestamp": None if self.answer is None else self.answer.timestamp or None,
            "rows": list(self.positions),
        }
        return {**part, "again": self.again} if self.again else part


def _row_results(answer: m.WriteResponse, count: int) -> list[str | None]:
    results: list[str | None] = ["ok"] * count
    for error in answer.row_errors:
        results[error.row] = _RESULTS[error.code]
    return results


class RowWriter:
    """The part of one client process that writes rows."""

    def __init__(
        self,
        env: Env,
        tables: TableCache,
        replicas: Replicas,
        policy: RetryPolicy,
        client_id: str,
        time: ClientTime,
    ) -> None:
        self._env = env
        self._tables = tables
        self._replicas = replicas
        self._policy = policy
        self._client_id = client_id
        self._time = time
        self._seq_no = 0
        self._late: dict[asyncio.Task[None], None] = {}

    def close(self) -> None:
        for task in self._late:
            task.cancel()

    async def write(self, call: Write, table: Table, deadline: Deadline) -> Completion:
        """Write all rows; the table in the module's docstring says how the operation ends."""
        attempts: list[Attempt] = []
        columns = table.column_ids
        unknown = sorted({c for _, _, cells in call.rows for c in cells if c not in columns})
        if unknown:
            # The columns may be newer than the known schema, so read it again. Nothing was sent.
            with contextlib.suppress(Gone):
                await self._tables.ask(call.table, deadline)
            return Completion(OpType.FAIL, None, f"NO_COLUMN: {', '.join(unknown)}")
        parts = self._parts(call, table, deadline, attempts)
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

    def _parts(
        self, call: Write, table: Table, deadline: Deadline, attempts: list[Attempt]
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
                self._time.timestamp,
            )
            target = Target(call.table, table, tablet, deadline, attempts)
            parts.append(_Part(target, request, tuple(positions)))
        return parts

    async def _send(self, part: _Part) -> None:
        count = 0
        limit_s = self._policy.mutation_attempt_timeout_s
        while count < self._policy.attempts_max:
            count += 1
            answered = await self._replicas.attempt(part.target, part.request, limit_s)
            if answered is None:
                part.error = part.error or TOO_LATE
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

    def _judge(self, part: _Part, answered: Answered[m.WriteResponse]) -> bool:
        error, answer = answered.error, answered.response
        if answered.failure is not None or answer is None:
            assert answered.failure is not None, "a part has neither an answer nor a failure"
            part.maybe_done = part.maybe_done or answered.failure.sent
            return part.maybe_done and not self._policy.resend
        if error is None:
            if part.target.deadline.left_s < 0:
                # The caller has stopped waiting, so even a success would have a wrong time in the
                # history.
                part.maybe_done, part.error = True, TOO_LATE
                return True
            part.answer = answer
            self._time.learn(answer.timestamp, answer.propagated_timestamp)
            return True
        if error.code is m.TabletErrorCode.REQUEST_STALE:
            part.maybe_done = True  # the server no longer knows whether it executed the request
            return True
        if error.indeterminate:
            part.maybe_done = True
            return not self._policy.resend
        return error.code in FINAL

    async def _repeat(self, part: _Part) -> None:
        limit_s = self._policy.mutation_attempt_timeout_s
        answered = await self._replicas.attempt(part.target, part.request, limit_s)
        if answered is None or answered.response is None or answered.error is not None:
            return
        answer = answered.response
        self._time.learn(answer.propagated_timestamp)
        results = _row_results(answer, len(part.positions))
        part.again.append([answer.timestamp or None, results])

    def _keep_late_copy(self, part: _Part) -> None:
        """Schedule a late copy of some acknowledged parts (`RetryPolicy.late_percent`)."""
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
        deadline = Deadline(self._env.clock, limit_s)
        copy = dataclasses.replace(part.target, deadline=deadline, attempts=[], tried=[])
        self._env.event("late-copy", method=part.request.method, revision=0)
        await self._replicas.attempt(copy, part.request, limit_s)


def _written(
    parts: Sequence[_Part], table: Table, count: int, attempts: Sequence[Attempt]
) -> Completion:
    results: list[str | None] = [None] * count
    for part in parts:
        for position, result in zip(part.positions, part.results(), strict=True):
            results[position] = result
    value = {
        "table_id": table.table_id,
        "rows": results,
        "parts": [part.to_history() for part in parts],
    }
    errors = [part.error for part in parts if part.error is not None]
    kind = OpType.INFO
    if all(part.answer is not None for part in parts):
        kind = OpType.OK
    elif all(part.answer is None and not part.maybe_done for part in parts):
        kind = OpType.FAIL
    node = parts[-1].node
    return Completion(kind, value, errors[0] if errors else None, node, tuple(attempts))
