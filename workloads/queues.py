"""Unique elements that go through one queue.

The workload `queue` drains the queue at the end, and its checker compares the elements that went in
with the elements that came out. The checker of `fifo-queue` judges the order and needs no drain.
The vocabulary is `harness.vocabularies.queues`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.queues import Dequeue, Drain, Enqueue
from workloads.numbered import NumberedOps
from workloads.register import probe_number

FINAL_DEQUEUES: Final = 50
"""The number of dequeues at the end of a run of `fifo-queue`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _QueueOps(NumberedOps):
    enqueue_percent: int

    def call(self, rng: random.Random) -> Call:
        return Enqueue(self.count) if rng.randrange(100) < self.enqueue_percent else Dequeue()


class QueueWorkload(Workload):
    """Enqueues of unique elements, dequeues, and a drain at the end."""

    api_version = API_VERSION
    name = "queue"
    doc = "enqueue, dequeue and finally drain a queue: what goes in comes out, once"
    vocabulary = "queue"
    options: tuple[Option, ...] = (
        Option("enqueues", 50, "percentage of operations that enqueue", within=(1, 99)),
        Option("duplicates", default=False, help="the queue may deliver an element repeatedly"),
    )
    checkers: tuple[str, ...] = ("total-queue", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _QueueOps(enqueue_percent=int(case.workload_options["enqueues"]))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request an enqueue and a dequeue. Only probes enqueue negative elements.

        The probe does not drain, since a drain of unknown outcome would excuse every lost element.
        """
        del case
        return (Request.of(Enqueue(probe_number(attempt, retry))), Request.of(Dequeue()))

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Drain()),)


class FifoQueueWorkload(QueueWorkload):
    """Enqueues of unique elements, and dequeues, whose order is judged."""

    api_version = API_VERSION
    name = "fifo-queue"
    doc = "enqueue to and dequeue from a queue: first in, first out"
    options = (Option("enqueues", 50, "percentage of operations that enqueue", within=(1, 99)),)
    checkers = ("queue", "liveness", "crash", "stats")

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Dequeue()),) * FINAL_DEQUEUES
