"""Several registers that clients read, write and compare-and-set; each key is judged separately.

After enough operations, a key gets no more operations until the final reads, and a new key takes
its place. So the history of each key stays short, and the search for an order stays fast. The
vocabulary is `harness.vocabularies.registers`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.registers import Cas, Read, Write
from workloads.contention import Blind
from workloads.list_append import FINAL_KEYS_MAX, KEYS_MAX, key_name, keys_at_most
from workloads.register import probe_number

OPS_MAX: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class _RegistersOps(Blind):
    """An endless generator.

    `keys` has, for each key in use, its number, the number of operations that were requested for
    it, and the value of its last change. `newest` is the highest number of a key, and `count` makes
    values unique.
    """

    cas_percent: int
    length: int
    keys: tuple[tuple[int, int, int], ...]
    newest: int
    count: int = 1

    def op(self, ctx: Context) -> Step:
        """Draw an operation: half are reads, `cas_percent` % of the rest are compare-and-sets."""
        if ctx.free_process() is None:
            return Pending(self)
        rng = ctx.random
        place = rng.randrange(len(self.keys))
        number, asked, last = self.keys[place]
        key = key_name(number)
        call: Call = Write(key, self.count)
        if rng.randrange(2) == 0:
            call = Read(key)
        elif rng.randrange(100) < self.cas_percent:
            # half of the compare-and-sets will probably find `old`; most of the others must fail
            old = last if rng.randrange(2) == 0 else 1 + rng.randrange(self.count)
            call = Cas(key, old, self.count)
        keys, newest = list(self.keys), self.newest
        keys[place] = (number, asked + 1, self.count if call.mutates else last)
        if asked + 1 >= self.length:
            newest += 1
            keys[place] = (newest, 0, 0)
        following = dataclasses.replace(self, keys=tuple(keys), newest=newest, count=self.count + 1)
        return Emit(Draft(call.f, call.asked()), following)


class RegistersWorkload(Workload):
    """Reads, writes and compare-and-set on several registers."""

    api_version = API_VERSION
    name = "registers"
    doc = "read, write and (with --cas-percent) compare-and-set several registers"
    vocabulary = "registers"
    options = (
        Option("keys", 3, "number of registers in use at a time", within=(1, KEYS_MAX)),
        Option(
            "length",
            200,
            "a new register replaces a register with this many operations",
            within=(1, OPS_MAX),
        ),
        Option(
            "cas-percent",
            0,
            "percentage of mutations that are compare-and-set",
            within=(0, 100),
        ),
    )
    checkers = ("linearizable-registers", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        keys = int(options["keys"])
        return _RegistersOps(
            cas_percent=int(options["cas_percent"]),
            length=int(options["length"]),
            keys=tuple((number, 0, 0) for number in range(keys)),
            newest=keys - 1,
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a write and a read of the probe's own key."""
        del case
        key = f"probe-{attempt}"
        return (Request.of(Write(key, probe_number(attempt, retry))), Request.of(Read(key)))

    def final(self, case: Case) -> Sequence[Request]:
        """Request a read of every key that may exist, up to `FINAL_KEYS_MAX`."""
        most = min(keys_at_most(case), FINAL_KEYS_MAX)
        return tuple(Request.of(Read(key_name(n))) for n in range(most))
