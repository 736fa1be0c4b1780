"""One client process of the bundled target, which reports only outcomes that it can prove.

An operation consists of attempts. A mutation is sent again only after an answer that proves that
the previous attempt did nothing (`RetryPolicy` lists the exceptions). A read is sent again until
its deadline. `ConnectToMaster` calls, which only find the leader, are not attempts. Module
`classify` says what each attempt proves. The operation ends accordingly:

| the attempts                                               | mutation | read |
|------------------------------------------------------------|----------|------|
| the last was answered within the deadline                  | ok       | ok   |
| refused by a leader; no earlier attempt of unknown outcome | fail     | fail |
| none had an effect (never sent, NOT_THE_LEADER, no leader) | fail     | fail |
| any of unknown outcome and none answered later             | info     | fail |

A mutation that is refused *after* an attempt of unknown outcome stays `info`: the earlier attempt
may still arrive, or it may have succeeded and thereby caused the refusal.

Operations on rows go to tablet servers (modules `row_writes`, `row_reads`, `replicas` and
`tables`). Each request carries the highest timestamp that the client has received, so a later
operation gets a later timestamp on any server (Kudu's `propagated_timestamp`). Reads that tolerate
staleness go to any master (module `stale`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.env import Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request
from harness.vocabularies import follower_reads, members, rows
from targets.kudu import messages as m
from targets.kudu.client.append import plan_transaction
from targets.kudu.client.calls import Call, plan_call
from targets.kudu.client.classify import (
    Effect,
    error_text,
    is_of_another,
    mutation_effect,
    rpc_error_effect,
    rpc_error_text,
)
from targets.kudu.client.leader import LeaderFinder
from targets.kudu.client.members import MembersClient
from targets.kudu.client.replicas import Replicas
from targets.kudu.client.row_reads import RowReader
from targets.kudu.client.row_writes import RowWriter
from targets.kudu.client.session import ClientTime, Deadline, RetryPolicy
from targets.kudu.client.stale import StaleReads
from targets.kudu.client.tables import Gone, TableCache
from targets.kudu.rpc import Caller, RpcError

LATE_LIMIT_S: Final = 2.0
"""The time limit for finding a leader for a late copy, and for the leader's answer."""
_ROWS: Final = frozenset(call.f for call in rows.ROW_CALLS)
_NO_LEADER: Final = "NO_LEADER: no master was found to lead before the deadline"


@dataclasses.dataclass(slots=True)
class _Operation:
    call: Call
    deadline: Deadline
    attempts: list[Attempt]
    maybe_done: bool = False
    # the outcome of the first copy, while the client repeats the request
    done: Completion | None = None
    error: str = _NO_LEADER
    node: str | None = None


class KuduClient:
    """The client of one process. It sends one operation at a time and remembers the leader."""

    def __init__(
        self,
        env: Env,
        rpc: Caller,
        *,
        masters: Sequence[str],
        process: int,
        policy: RetryPolicy | None = None,
    ) -> None:
        """Send calls to `masters` ("node:port") over `rpc`. The client owns and closes `rpc`."""
        self._env = env
        self._rpc = rpc
        self._policy = policy or RetryPolicy()
        self._leader = LeaderFinder(env, rpc, masters, self._policy)
        self._client_id = f"{env.random.getrandbits(64):016x}-p{process}"
        self._seq_no = 0
        self._late: dict[asyncio.Task[None], None] = {}
        self._revision = 0  # the newest revision in any answer so far
        self._tables = TableCache(env, rpc, self._leader, self._policy)
        replicas = Replicas(env, rpc, self._tables, self._policy)
        addresses = {address.partition(":")[0]: address for address in masters}
        self._members = MembersClient(env, rpc, self._leader, self._policy, addresses)
        self._stale_reads = StaleReads(env, rpc, masters, self._policy)
        time = ClientTime()
        self._row_writer = RowWriter(
            env, self._tables, replicas, self._policy, self._client_id, time
        )
        self._row_reader = RowReader(self._tables, replicas, self._policy, time)

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Run one operation; the table in the module's docstring says how it ends.

        Raises `UsageError` if the operation or its value is outside the vocabulary.
        """
        deadline = Deadline(self._env.clock, timeout_s)
        if request.f in _ROWS:
            return await self._on_rows(request, deadline)
        if request.f in members.BY_NAME:
            return await self._members.invoke(request, deadline)
        if request.f in follower_reads.FRESH:
            return await self._stale_reads.invoke(request, deadline)
        self._seq_no += 1
        value = request.value if isinstance(request.value, dict) else {}
        request_id = m.RequestId(self._client_id, self._seq_no, str(value.get("nonce", "")))
        plan = plan_transaction if request.f == "txn" else plan_call
        operation = _Operation(plan(request, request_id), deadline, attempts=[])
        while True:
            completion = await self._attempt(operation)
            if completion is not None:
                return completion
            if len(operation.attempts) >= self._policy.attempts_max:
                operation.error += f" (gave up after {len(operation.attempts)} attempts)"
                return self._unanswered(operation)
            await deadline.pause(self._policy.backoff_s(len(operation.attempts)))

    async def _on_rows(self, request: Request, deadline: Deadline) -> Completion:
        call = rows.call_of(request.f, request.value)
        assert isinstance(call, rows.Write | rows.Read | rows.Scan), (
            "all other operations go to masters"
        )
        try:
            table = await self._tables.find(call.table, deadline)
        except Gone as gone:
            kind = OpType.FAIL if isinstance(call, rows.Write) else OpType.OK
            error = f"TABLE_NOT_FOUND: {gone}" if kind is OpType.FAIL else None
            return Completion(kind, {"result": "not-found"}, error)
        if table is None:
            return Completion(OpType.FAIL, None, _NO_LEADER)
        match call:
            case rows.Write():
                return await self._row_writer.write(call, table, deadline)
            case rows.Read():
                return await self._row_reader.read(call, table, deadline)
            case rows.Scan():
                return await self._row_reader.scan(call, table, deadline)

    async def close(self) -> None:
        for task in self._late:
            task.cancel()
        self._row_writer.close()
        self._tables.close()
        self._leader.close()
        self._rpc.close()

    # --- one attempt -------------------------------------------------------------------------

    async def _attempt(self, operation: _Operation) -> Completion | None:
        address = await self._leader.find(operation.deadline)
        if address is None or operation.deadline.left_s <= 0:
            return self._unanswered(operation)
        operation.node = address.partition(":")[0]
        call = operation.call
        limit_s = (
            self._policy.mutation_attempt_timeout_s
            if call.is_mutation
            else self._policy.read_attempt_timeout_s
        )
        start_ns = self._env.clock.monotonic_ns()
        try:
            timeout_s = operation.deadline.limit_s(limit_s)
            response = await self._rpc.call(address, call.request, timeout_s=timeout_s)
        except RpcError as failure:
            self._record(operation, start_ns, rpc_error_text(failure))
            self._leader.forget()
            return self._after(operation, rpc_error_effect(failure))
        error = response.error
        if error is None:
            self._record(operation, start_ns, call.unsettled(response) or "ok")
        else:
            self._record(operation, start_ns, error_text(error))
        if operation.deadline.left_s < 0:
            return self._too_late(operation, response)
        return self._judge(operation, response)

    def _judge(self, operation: _Operation, response: m.MasterResponse) -> Completion | None:
        error = response.error
        call = operation.call
        if error is None and call.unsettled(response) is not None:
            return self._after(operation, Effect.NONE)
        if error is None:
            self._keep_late_copy(call, response.meta.revision)
            answer = self._complete(operation, OpType.OK, call.answered_value(response), None)
            if self._is_to_repeat(operation):
                operation.done = answer
                return None
            return answer
        if is_of_another(error):
            self._leader.forget()
        if call.is_mutation:
            effect = mutation_effect(error)
            if effect is not Effect.REFUSED:
                return self._after(operation, effect)
            if operation.done is not None and call.refused_value(response) is None:
                # The repetition was refused, for example by a busy server: the first answer counts.
                return self._unanswered(operation)
            if operation.maybe_done and operation.done is None:
                return self._unanswered(operation)
            return self._complete(
                operation, OpType.FAIL, call.refused_value(response), operation.error
            )
        absence = call.absence_value(response)
        if absence is not None:
            return self._complete(operation, OpType.OK, absence, None)
        if is_of_another(error):
            return self._after(operation, Effect.NONE)
        return self._complete(operation, OpType.FAIL, None, operation.error)

    def _is_to_repeat(self, operation: _Operation) -> bool:
        first = operation.call.is_mutation and operation.done is None
        return first and self._policy.repeat and self._seq_no % 2 == 1

    def _keep_late_copy(self, call: Call, revision: int) -> None:
        """Schedule a late copy of some acknowledged mutations (`RetryPolicy.late_percent`)."""
        self._revision = max(self._revision, revision)
        if not call.is_mutation or not self._policy.late_percent:
            return
        random = self._env.random
        if random.randrange(100) < self._policy.late_percent:
            pause_s = random.random() * self._policy.late_s_max
            copy = self._send_late(call, revision, pause_s)
            task = self._env.spawn(copy, name=f"late-copy-{self._seq_no}")
            self._late[task] = None
            task.add_done_callback(self._late.pop)

    async def _send_late(self, call: Call, revision: int, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        address = await self._leader.find(Deadline(self._env.clock, LATE_LIMIT_S))
        if address is None or self._revision - revision > self._policy.late_revisions_max:
            return
        self._env.event("late-copy", method=call.request.method, revision=revision)
        with contextlib.suppress(RpcError):  # no operation waits for the answer
            await self._rpc.call(address, call.request, timeout_s=LATE_LIMIT_S)

    def _after(self, operation: _Operation, effect: Effect) -> Completion | None:
        """Return the completion after an attempt with `effect`; `None` means another attempt."""
        if not operation.call.is_mutation:
            return None
        if effect is Effect.UNKNOWN:
            operation.maybe_done = True
            if not self._policy.resend:
                return self._unanswered(operation)
        return None

    # --- endings -----------------------------------------------------------------------------

    def _too_late(self, operation: _Operation, response: m.MasterResponse) -> Completion:
        """Treat an answer after the deadline as lost, unless it proves that there was no effect.

        The caller has stopped waiting, so even an `ok` would have a wrong time in the history.
        """
        if operation.call.is_mutation and mutation_effect(response.error) is not Effect.NONE:
            operation.maybe_done = True
        operation.error = "TIMED_OUT: the answer came after the deadline"
        return self._unanswered(operation)

    def _unanswered(self, operation: _Operation) -> Completion:
        if operation.done is not None:
            return msgspec.structs.replace(operation.done, attempts=tuple(operation.attempts))
        lost = operation.call.is_mutation and operation.maybe_done
        return self._complete(
            operation, OpType.INFO if lost else OpType.FAIL, None, operation.error
        )

    def _complete(
        self, operation: _Operation, kind: OpType, value: Any, error: str | None
    ) -> Completion:
        return Completion(kind, value, error, operation.node, tuple(operation.attempts))

    def _record(self, operation: _Operation, start_ns: int, outcome: str) -> None:
        assert operation.node is not None
        end_ns = self._env.clock.monotonic_ns()
        operation.attempts.append(Attempt(operation.node, start_ns, end_ns, outcome))
        operation.error = outcome
