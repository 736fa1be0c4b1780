"""Adds of unique elements to one set, and reads of all elements.

The checker of `set` follows each element through all reads. No element may be lost, or be missing
temporarily. The checker of `causal-reverse` judges only the order of adds: an element may be
missing, unless a later element is visible. The vocabulary is `harness.vocabularies.sets`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from harness.case import Case
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.sets import Add, Read
from workloads.numbered import NumberedOps
from workloads.register import probe_number


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SetOps(NumberedOps):
    read_percent: int

    def call(self, rng: random.Random) -> Call:
        return Read() if rng.randrange(100) < self.read_percent else Add(self.count)


class SetWorkload(Workload):
    """Adds of unique elements, and reads of the whole set."""

    api_version = API_VERSION
    name = "set"
    doc = "add unique elements to a set and read them all: none is lost or stale"
    vocabulary = "set"
    options: tuple[Option, ...] = (
        Option("reads", 20, "percentage of operations that read", within=(0, 100)),
        Option(
            "stale-reads",
            default=False,
            help="reads may miss elements for a while: only lost elements are violations",
        ),
    )
    checkers: tuple[str, ...] = ("set-full-linearizable", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _SetOps(read_percent=int(case.workload_options["reads"]))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request an add and a read. Only probes add negative elements."""
        del case
        return (Request.of(Add(probe_number(attempt, retry))), Request.of(Read()))

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Read()),)


class CausalReverseWorkload(SetWorkload):
    """Adds of unique elements and reads of all elements, judged by the order of the adds."""

    api_version = API_VERSION
    name = "causal-reverse"
    doc = "blind adds to a set and reads: no read shows a later one without all earlier ones"
    options = (Option("reads", 50, "percentage of operations that read", within=(0, 100)),)
    checkers = ("causal-reverse", "liveness", "crash", "stats")
