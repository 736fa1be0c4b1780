"""Transactions that append to lists and read them, over a few keys at a time, for Elle.

Each element is appended only once per run, so a read shows which appends it saw, and in which
order. After enough appends, a key gets no more operations until the final reads, and a new key
takes its place. So lists and the answers of reads stay short.

The vocabulary is `list-append` of `harness.vocabularies.transactions`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies.transactions import Mop, Txn
from workloads.contention import READERS, Blind, readers_of
from workloads.register import probe_number

KEYS_MAX: Final = 1000
LENGTH_MAX: Final = 1000
WIDTH_MAX: Final = 16
FINAL_KEYS_MAX: Final = 2000
"""Maximum number of keys to read at the end. Reads during the run cover the others."""
_FINAL_WIDTH: Final = 8
"""The number of keys that one final transaction reads."""


@dataclasses.dataclass(frozen=True, slots=True)
class TxnOps(Blind):
    """An endless generator of transactions.

    `verb` is the micro-operation that changes a key, such as `append`. `keys` has the number of
    each key in use, and the number of changes that were requested for it. `newest` is the highest
    key number, and `count` makes elements unique. The first `readers` threads only read.
    """

    width: int
    length: int
    read_percent: int
    readers: int
    keys: tuple[tuple[int, int], ...]
    newest: int
    verb: str
    count: int = 1

    def op(self, ctx: Context) -> Step:
        """Draw one transaction of 1 to `width` micro-operations."""
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        rng = ctx.random
        only_reads = ctx.index_of(process) < self.readers or rng.randrange(100) < self.read_percent
        keys, newest, count = list(self.keys), self.newest, self.count
        mops: list[Mop] = []
        for _ in range(1 + rng.randrange(self.width)):
            place = rng.randrange(len(keys))
            number, asked = keys[place]
            if only_reads or rng.randrange(2) == 0:
                mops.append(["r", key_name(number), None])
                continue
            mops.append([self.verb, key_name(number), count])
            count += 1
            keys[place] = (number, asked + 1)
            if asked + 1 >= self.length:
                newest += 1
                keys[place] = (newest, 0)
        following = dataclasses.replace(self, keys=tuple(keys), newest=newest, count=count)
        return Emit(Draft(Txn.f, Txn(mops).asked(), process), following)


def key_name(number: int) -> str:
    """Return the name of the key with this number; keys are numbered in the order of first use."""
    return f"k{number}"


def keys_at_most(case: Case) -> int:
    """Return an upper bound on the number of keys, from the run's length and rate."""
    options = case.workload_options
    appends = case.rate * case.time_limit_s * int(options.get("width", 1))
    return int(options["keys"]) + math.ceil(appends / int(options["length"]))


class ListAppendWorkload(Workload):
    """Transactions of several appends to lists and reads of lists."""

    api_version = API_VERSION
    name = "list-append"
    doc = "transactions that append to lists and read them, judged by Elle"
    vocabulary = "list-append"
    options = (
        Option("keys", 4, "number of lists in use at a time", within=(1, KEYS_MAX)),
        Option(
            "length",
            32,
            "a new list replaces a list with this many appends",
            within=(1, LENGTH_MAX),
        ),
        Option(
            "width",
            4,
            "a transaction has 1 to this many appends and reads",
            within=(1, WIDTH_MAX),
        ),
        Option("reads", 30, "percentage of transactions that only read", within=(0, 100)),
        READERS,
    )
    checkers = ("elle-list-append", "liveness", "crash", "stats")
    verb = "append"

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        keys = int(options["keys"])
        return TxnOps(
            verb=self.verb,
            width=int(options["width"]),
            length=int(options["length"]),
            read_percent=int(options["reads"]),
            readers=readers_of(case),
            keys=tuple((number, 0) for number in range(keys)),
            newest=keys - 1,
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a change and a read of the probe's own key. Only probes write negative values."""
        del case
        key, element = f"probe-{attempt}", probe_number(attempt, retry)
        return (Request.of(Txn([[self.verb, key, element]])), Request.of(Txn([["r", key, None]])))

    def final(self, case: Case) -> Sequence[Request]:
        """Request reads of every key that may exist, up to `FINAL_KEYS_MAX`, several at once."""
        numbers = range(min(FINAL_KEYS_MAX, keys_at_most(case)))
        reads: list[Mop] = [["r", key_name(number), None] for number in numbers]
        return tuple(
            Request.of(Txn(reads[start : start + _FINAL_WIDTH]))
            for start in range(0, len(reads), _FINAL_WIDTH)
        )
