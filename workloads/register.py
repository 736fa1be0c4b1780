"""The smallest useful workload: one register that many clients read, write and compare-and-set.

Written values are unique, so a stale read never looks like a current read. The vocabulary is
`harness.vocabularies.register`.
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
from harness.vocabularies.register import Cas, Read, Write
from workloads.numbered import NumberedOps

PROBE_RETRIES_MAX: Final = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _RegisterOps(NumberedOps):
    """An endless generator; `count` makes written values unique."""

    cas_percent: int

    def call(self, rng: random.Random) -> Call:
        """Draw an operation: half are reads, `cas_percent` % of the rest are compare-and-sets."""
        if rng.randrange(2) == 0:
            return Read()
        if rng.randrange(100) < self.cas_percent:
            return Cas(max(1, self.count - 1 - rng.randrange(3)), self.count)
        return Write(self.count)


def probe_number(attempt: int, retry: int) -> int:
    """Return the value that a probe writes: negative, and different for each try."""
    return -1 - attempt * PROBE_RETRIES_MAX - min(retry, PROBE_RETRIES_MAX - 1)


class RegisterWorkload(Workload):
    """Reads, writes and compare-and-set on one register."""

    api_version = API_VERSION
    name = "register"
    doc = "read, write and (with --cas-percent) compare-and-set one register"
    vocabulary = "register"
    options = (
        Option(
            "cas-percent",
            0,
            "percentage of mutations that are compare-and-set",
            within=(0, 100),
        ),
    )
    checkers = ("linearizable-register", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _RegisterOps(cas_percent=case.workload_options["cas_percent"])

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a read, a write, and a read.

        The first read shows whether the last value of the run was lost. The probe's values are
        negative, so the workload never writes them.
        """
        del case
        return tuple(map(Request.of, (Read(), Write(probe_number(attempt, retry)), Read())))

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Read()),)
