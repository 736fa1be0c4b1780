"""Single writes of new keys, and reads of whole groups of keys.

This follows `jepsen/tests/long_fork.clj`. A client writes a key, and then reads either that key's
group, or the group of a key that another client has just written. Each key is written once. The
vocabulary is `rw-register` of `harness.vocabularies.transactions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies.transactions import Mop, Txn
from workloads.contention import Blind
from workloads.list_append import key_name
from workloads.register import probe_number

GROUP_MAX: Final = 16
FINAL_GROUPS: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class _LongForkOps(Blind):
    """An endless generator; `written` has each thread's last key until the thread reads it."""

    group: int
    newest: int = 0
    written: tuple[tuple[int, int], ...] = ()

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        thread, rng, written = ctx.index_of(process), ctx.random, dict(self.written)
        following, together = self, False
        if thread in written:
            mops = _group_reads(self.group, written.pop(thread))
            following = dataclasses.replace(self, written=tuple(written.items()))
        elif written and rng.randrange(2) == 0:
            # a read of the newest group proves most while another client writes in this group
            together = rng.randrange(2) == 0
            newest = self.newest - 1
            mops = _group_reads(
                self.group, newest if together else rng.choice(list(written.values()))
            )
        else:
            mops = [["w", key_name(self.newest), 1]]
            written[thread] = self.newest
            following = dataclasses.replace(
                self, newest=self.newest + 1, written=tuple(written.items())
            )
        rng.shuffle(mops)
        draft = Draft(Txn.f, Txn(mops).asked(), process, together=together)
        return Emit(draft, following)


def _group_reads(size: int, number: int) -> list[Mop]:
    """Return reads of all keys in the group of the key `number`."""
    first = number - number % size
    return [["r", key_name(key), None] for key in range(first, first + size)]


class LongForkWorkload(Workload):
    """Writes of single keys, and transactions that read a group of keys."""

    api_version = API_VERSION
    name = "long-fork"
    doc = "write single keys and read groups: no two reads see two writes in opposite orders"
    vocabulary = "rw-register"
    options = (Option("group", 3, "number of keys in a group", within=(2, GROUP_MAX)),)
    checkers = ("long-fork", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        return _LongForkOps(int(case.workload_options["group"]))

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a write and a read of the probe's own key."""
        del case
        number = probe_number(attempt, retry)
        key = f"probe{number}"
        return (Request.of(Txn([["w", key, 1]])), Request.of(Txn([["r", key, None]])))

    def final(self, case: Case) -> Sequence[Request]:
        """Request reads of the first groups, whose writes ended long ago."""
        size = int(case.workload_options["group"])
        return tuple(
            Request.of(Txn(_group_reads(size, number * size))) for number in range(FINAL_GROUPS)
        )
