"""Reads that tolerate staleness: the client asks one master after another until one answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.env import Env
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request
from harness.vocabularies import follower_reads
from targets.kudu import messages as m
from targets.kudu.client.calls import Call, plan_call
from targets.kudu.client.classify import error_text, rpc_error_text
from targets.kudu.client.session import Deadline, RetryPolicy
from targets.kudu.rpc import Caller, RpcError

_ANY_ID = m.RequestId("", 0, "")  # reads carry no request ids


class StaleReads:
    """The part of one client that makes stale reads."""

    def __init__(self, env: Env, rpc: Caller, masters: Sequence[str], policy: RetryPolicy) -> None:
        self._env = env
        self._rpc = rpc
        self._masters = tuple(masters)
        self._policy = policy

    async def invoke(self, request: Request, deadline: Deadline) -> Completion:
        """Ask the masters in turn, beginning with a random one, until one answers."""
        call = _planned(follower_reads.call_of(request.f, request.value))
        attempts: list[Attempt] = []
        error = "no master was asked before the deadline"
        answer: m.MasterResponse | None
        turn = self._env.random.randrange(len(self._masters))
        clock = self._env.clock
        while deadline.left_s > 0:
            if len(attempts) >= self._policy.attempts_max:
                error += f" (gave up after {len(attempts)} attempts)"
                break
            address = self._masters[(turn + len(attempts)) % len(self._masters)]
            node, start_ns = address.partition(":")[0], clock.monotonic_ns()
            limit_s = deadline.limit_s(self._policy.read_attempt_timeout_s)
            try:
                answer = await self._rpc.call(address, call.request, timeout_s=limit_s)
            except RpcError as failure:
                answer, error = None, rpc_error_text(failure)
            else:
                error = "ok" if answer.error is None else error_text(answer.error)
            attempts.append(Attempt(node, start_ns, clock.monotonic_ns(), error))
            if answer is not None and deadline.left_s >= 0:
                value = _value(call, answer)
                if value is not None:
                    value["bound_ns"] = answer.meta.bound_ns
                    return Completion(OpType.OK, value, None, node, tuple(attempts))
            await deadline.pause(self._policy.backoff_s(len(attempts)))
        last = attempts[-1].node if attempts else None
        return Completion(OpType.FAIL, None, error, last, tuple(attempts))


def _planned(asked: follower_reads.StaleCall) -> Call:
    value = {"name": asked.name} if isinstance(asked, follower_reads.GetStale) else {}
    call = plan_call(Request(follower_reads.FRESH[asked.f], value), _ANY_ID)
    bounded = msgspec.structs.replace(call.request, max_staleness_ms=asked.max_staleness_ms)
    return Call(bounded, call.is_mutation, call.ok_value)


def _value(call: Call, answer: m.MasterResponse) -> dict[str, object] | None:
    value = call.answered_value(answer) if answer.error is None else call.absence_value(answer)
    return value if isinstance(value, dict) else None
