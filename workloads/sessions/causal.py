"""Registers with one client each. A client reads its register first and after each of its writes.

A client takes a new register after some writes, or when an outcome is unknown. Occasionally,
another client reads the register at the same time, and may see any state. The vocabulary is
`harness.vocabularies.registers`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, OpType
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.registers import Read, Write
from workloads.list_append import key_name
from workloads.register import probe_number

WRITES_MAX: Final = 100
VISIT_PERCENT: Final = 20
"""The percentage of operations during which another client reads the register."""


@dataclasses.dataclass(frozen=True, slots=True)
class _CausalOps:
    """An endless generator.

    `at` maps each process to the number of its register and the number of operations that it has
    requested there. Every second operation is a write. `visiting` are the processes that are
    reading another process's register. `visited` is the next register to read in this way.
    """

    writes: int
    at: Mapping[int | str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    newest: int = 0
    visiting: frozenset[int | str] = frozenset()
    visited: int | None = None

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        if self.visited is not None:
            read = Read(key_name(self.visited))
            following = dataclasses.replace(self, visiting=self.visiting | {process}, visited=None)
            return Emit(Draft(read.f, read.asked(), process, together=True), following)
        number, done = self.at.get(process, (self.newest, 0))
        following = self
        if process not in self.at:
            following = self.with_place(process, (number, 0), newest=self.newest + 1)
        if ctx.random.randrange(100) < VISIT_PERCENT and ctx.free_mask.bit_count() > 1:
            following = dataclasses.replace(following, visited=number)
        key = key_name(number)
        call: Call = Read(key) if done % 2 == 0 else Write(key, 1 + done // 2)
        return Emit(Draft(call.f, call.asked(), process), following)

    def update(self, ctx: Context, event: Op) -> _CausalOps:
        del ctx
        process, has_place = event.process, event.process in self.at
        if event.type is OpType.INVOKE:
            return self
        if event.type is OpType.INFO:
            left = dataclasses.replace(self, visiting=self.visiting - {process})
            return left.with_place(process, None) if has_place else left
        if process in self.visiting:
            return dataclasses.replace(self, visiting=self.visiting - {process})
        if event.type is OpType.FAIL or not has_place:
            return self
        number, done = self.at[process]
        return self.with_place(process, None if done == 2 * self.writes else (number, done + 1))

    def with_place(
        self, process: int | str, at: tuple[int, int] | None, *, newest: int | None = None
    ) -> _CausalOps:
        """Return the generator with `at` as the process's entry; `None` removes the entry."""
        kept = {who: place for who, place in self.at.items() if who != process}
        if at is not None:
            kept[process] = at
        return dataclasses.replace(self, at=kept, newest=self.newest if newest is None else newest)


class CausalWorkload(Workload):
    """Reads and writes of registers, each of which has a single client."""

    api_version = API_VERSION
    name = "causal"
    doc = "each client reads and writes its own register: it always sees its last write"
    vocabulary = "registers"
    options = (
        Option(
            "writes", 2, "a new register replaces one with this many writes", within=(1, WRITES_MAX)
        ),
    )
    checkers = ("causal", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _CausalOps(int(case.workload_options["writes"]))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a write and a read of a register that only the probe uses."""
        del case
        key = f"probe-{attempt}-{retry}"
        return (Request.of(Write(key, probe_number(attempt, retry))), Request.of(Read(key)))

    def final(self, case: Case) -> Sequence[Request]:
        """Request no final reads, since only the client of a register has to see its writes."""
        del case
        return ()
