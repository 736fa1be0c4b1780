"""Sends of messages to a few logs, and polls of each log from its beginning.

This follows `jepsen/tests/kafka.clj`, but with one send or one poll per operation. The vocabulary
is `harness.vocabularies.logs`.

In the end, a client assigns itself all logs and polls them to their ends. This shows which
acknowledged messages were lost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, OpType
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.logs import Assign, Poll, Send
from workloads.list_append import key_name
from workloads.register import probe_number

KEYS_MAX: Final = 100
ASSIGN_PERCENT: Final = 3
"""The percentage of operations that change which keys a client polls."""
POLLED: Final = 20
"""The assumed minimum number of messages that each final poll gets."""
EMPTY_POLLS: Final = 20
"""The number of additional polls at the end. They show that no more messages come."""
FINAL_POLLS_MAX: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class _LogOps:
    """An endless generator.

    `assigned` are the processes that have keys; `count` makes messages unique.
    """

    send_percent: int
    keys: tuple[str, ...]
    assigned: frozenset[int | str] = frozenset()
    count: int = 1

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        rng = ctx.random
        following = self
        call: Call = Poll()
        if process not in self.assigned or rng.randrange(100) < ASSIGN_PERCENT:
            call = Assign(sorted(rng.sample(self.keys, 1 + rng.randrange(len(self.keys)))))
        elif rng.randrange(100) < self.send_percent:
            call = Send(rng.choice(self.keys), self.count)
            following = dataclasses.replace(self, count=self.count + 1)
        return Emit(Draft(call.f, call.asked(), process), following)

    def update(self, ctx: Context, event: Op) -> _LogOps:
        del ctx
        if event.type is OpType.OK and event.f == Assign.f:
            return dataclasses.replace(self, assigned=self.assigned | {event.process})
        if event.type is OpType.INFO:
            return dataclasses.replace(self, assigned=self.assigned - {event.process})
        return self


class KafkaWorkload(Workload):
    """Sends to logs, and polls of them."""

    api_version = API_VERSION
    name = "kafka"
    doc = "send messages to logs and poll them: none is lost, doubled, skipped or out of order"
    vocabulary = "logs"
    options = (
        Option("keys", 3, "number of logs", within=(1, KEYS_MAX)),
        Option("sends", 40, "percentage of operations that send", within=(1, 99)),
    )
    checkers = ("kafka", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        return _LogOps(int(options["sends"]), _keys(case))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a send and a poll. Only probes send negative messages."""
        key = _keys(case)[0]
        message = probe_number(attempt, retry)
        return (Request.of(Assign([key])), Request.of(Send(key, message)), Request.of(Poll()))

    def final(self, case: Case) -> Sequence[Request]:
        sends = case.rate * case.time_limit_s * int(case.workload_options["sends"]) / 100
        polls = min(FINAL_POLLS_MAX, EMPTY_POLLS + math.ceil(sends / POLLED))
        return (Request.of(Assign(list(_keys(case)))), *[Request.of(Poll())] * polls)


def _keys(case: Case) -> tuple[str, ...]:
    return tuple(key_name(number) for number in range(int(case.workload_options["keys"])))
