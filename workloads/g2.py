"""Pairs of inserts that exclude each other. The vocabulary is `harness.vocabularies.inserts`.

This follows `g2-gen` in `jepsen/tests/adya.clj`. For each key, two clients insert at the same time,
one into the table `a` and one into the table `b`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies.inserts import Insert
from workloads.contention import Blind
from workloads.register import probe_number


@dataclasses.dataclass(frozen=True, slots=True)
class _InsertOps(Blind):
    """An endless generator, in which the inserts 2n and 2n + 1 are the pair for key n."""

    count: int = 0

    def op(self, ctx: Context) -> Step:
        if ctx.free_process() is None:
            return Pending(self)
        second = self.count % 2 == 1
        call = Insert(self.count // 2, "b" if second else "a", self.count)
        draft = Draft(call.f, call.asked(), together=second)
        return Emit(draft, _InsertOps(self.count + 1))


class G2Workload(Workload):
    """Two concurrent inserts per key, each of which forbids the other."""

    api_version = API_VERSION
    name = "g2"
    doc = "pairs of inserts that exclude each other by a predicate: at most one of two succeeds"
    vocabulary = "inserts"
    options: tuple[Option, ...] = ()
    checkers = ("g2", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        del case
        return _InsertOps()

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request an insert of a negative key, which only probes use."""
        del case
        number = probe_number(attempt, retry)
        return (Request.of(Insert(number, "a", number)),)

    def final(self, case: Case) -> Sequence[Request]:
        """Request no final reads, since an insert itself shows whether there is another insert."""
        del case
        return ()
