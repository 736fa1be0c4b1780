"""Adds to one counter, and reads. The vocabulary is `harness.vocabularies.counter`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from harness.case import Case
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.counter import Add, Read
from workloads.numbered import NumberedOps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _CounterOps(NumberedOps):
    read_percent: int
    decrement_percent: int
    most: int

    def call(self, rng: random.Random) -> Call:
        if rng.randrange(100) < self.read_percent:
            return Read()
        amount = 1 + rng.randrange(self.most)
        return Add(-amount if rng.randrange(100) < self.decrement_percent else amount)


class CounterWorkload(Workload):
    """Adds of small amounts to a counter, and reads of it."""

    api_version = API_VERSION
    name = "counter"
    doc = "add to a counter and read it: reads are sums of the adds before them"
    vocabulary = "counter"
    options = (
        Option("reads", 50, "percentage of operations that read", within=(0, 100)),
        Option("decrements", 0, "percentage of adds that are negative", within=(0, 100)),
        Option("amount", 5, "the largest amount of an add", within=(1, 1_000)),
    )
    checkers = ("counter", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        return _CounterOps(
            read_percent=int(options["reads"]),
            decrement_percent=int(options["decrements"]),
            most=int(options["amount"]),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        del case, attempt, retry
        return (Request.of(Add(1)), Request.of(Read()))

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Read()),)
