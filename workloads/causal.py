"""Registers that one client each reads and writes: a read, then writes with a read after each.

Every client goes on to a new register after `WRITES` writes, or when an outcome is unknown. The
vocabulary is `harness.vocabularies.registers`.
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


@dataclasses.dataclass(frozen=True, slots=True)
class _CausalOps:
    """An endless generator. `at` has the register of each process that has one, and the number of
    operations that it did there; even numbers are reads.
    """

    writes: int
    at: Mapping[int | str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    newest: int = 0

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        following = self
        number, done = self.at.get(process, (self.newest, 0))
        if process not in self.at:
            following = self._with(process, (number, 0), newest=self.newest + 1)
        key = key_name(number)
        call: Call = Read(key) if done % 2 == 0 else Write(key, 1 + done // 2)
        return Emit(Draft(call.f, call.asked(), process), following)

    def update(self, ctx: Context, event: Op) -> _CausalOps:
        del ctx
        if event.type in {OpType.INVOKE, OpType.FAIL} or event.process not in self.at:
            return self
        number, done = self.at[event.process]
        if event.type is OpType.INFO or done == 2 * self.writes:
            return self._with(event.process, None)
        return self._with(event.process, (number, done + 1))

    def _with(
        self, process: int | str, at: tuple[int, int] | None, *, newest: int | None = None
    ) -> _CausalOps:
        kept = {who: place for who, place in self.at.items() if who != process}
        if at is not None:
            kept[process] = at
        return dataclasses.replace(self, at=kept, newest=self.newest if newest is None else newest)


class CausalWorkload(Workload):
    """Reads and writes of registers, each by one client."""

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
        """A write and a read of a register of its own."""
        del case
        key = f"probe-{attempt}-{retry}"
        return (Request.of(Write(key, probe_number(attempt, retry))), Request.of(Read(key)))

    def final(self, case: Case) -> Sequence[Request]:
        """None: only the client of a register has to see its writes."""
        del case
        return ()
