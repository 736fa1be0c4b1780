"""Writes, reads and scans of rows that race on few keys, and balances with a constant sum.

Clients contend for the rows of tables `r0`, `r1`, ... Every write has a unique value per cell, such
as `n7.0`, so a read shows which write it saw. Keys are few, so inserts and updates are often
refused. Checkers judge refusals like other answers.

The table `bank` has one tablet. Its rows form groups: the rows of group 0 are `g0.0`, `g0.1`, ... A
write of a group upserts all its rows at once with new balances, which always add up to the same
sum. So every consistent read of a group sees that sum.

Scans use all modes. Some are at the timestamp of an earlier answer (`--past`), no matter how old,
and must get the same answer again.

The workload creates tables first, and repeats each create, as a new operation, until the table is
known to exist. Only then do other operations begin. The vocabulary is `harness.vocabularies.rows`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.case import Case, stream
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, OpType, Process
from harness.plugins import API_VERSION, Option, Request, Workload, override
from harness.vocabularies import Call
from harness.vocabularies.ddl import Create
from harness.vocabularies.rows import Kind, Read, Scan, Write
from workloads.contention import READERS, burst_option, draw_burst, readers_of
from workloads.creation import REPLICAS, after_create, new_table, replicas_of

BANK: Final = "bank"
SUM: Final = 100
"""The sum of the balances of a group."""
PAST_MAX: Final = 64
"""The number of timestamps of earlier answers that the generator keeps for scans."""
_KINDS: Final[tuple[Kind, ...]] = ("insert", "upsert", "upsert", "update", "update", "delete")
_DRAWN: Final[Mapping[str, tuple[int, ...]]] = {"keys": (3, 6, 12), "partitions": (1, 3)}


@dataclasses.dataclass(frozen=True, slots=True)
class _RowsOps:
    """An endless generator; `count` makes values unique. The first `readers` threads only read.

    `missing` are the tables to create. `creating` maps a process to the table that it is creating.
    Until `begun`, only creates are emitted. In a burst, up to `burst` operations go to a single
    table and key; `left` of these are still to come. `past` has timestamps of earlier scans.
    """

    tables: int
    keys: int
    groups: int
    batch: int
    partitions: int
    replicas: int
    read_percent: int
    scan_percent: int
    past_percent: int
    readers: int
    burst: int
    missing: tuple[str, ...]
    creating: tuple[tuple[Process, str], ...] = ()
    begun: bool = False
    count: int = 0
    hot: tuple[int, int] = (0, 0)
    left: int = 0
    past: tuple[int, ...] = ()

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None or not (self.begun or self.missing):
            return Pending(self)
        following = dataclasses.replace(self, count=self.count + 1)
        if self.missing:
            name, *rest = self.missing
            create = self._create(name)
            return Emit(
                Draft(create.f, create.asked()),
                dataclasses.replace(following, missing=tuple(rest)),
            )
        rng, together = ctx.random, self.left > 0
        left, hot = self.left - 1, self.hot
        if not together:
            left = draw_burst(self.burst, rng) - 1
            hot = (rng.randrange(self.tables), rng.randrange(self.keys))
        state = dataclasses.replace(following, hot=hot, left=left)
        call = state.call(rng, reads=ctx.index_of(process) < self.readers)
        return Emit(Draft(call.f, call.asked(), process, together=together), state)

    def call(self, rng: random.Random, *, reads: bool) -> Call:
        choice = rng.randrange(100)
        table, key = f"r{self.hot[0]}", self.hot[1]
        share = self.read_percent + self.scan_percent
        if reads:
            choice = choice * share // 100
        if choice < self.scan_percent:
            return self._scan(table, rng)
        if choice < share:
            return Read(table, f"k{key}")
        if self.groups and rng.randrange(4) == 0:
            return transfer(BANK, rng.randrange(self.groups), f"n{self.count}", rng)
        rows: list[tuple[Kind, str, dict[str, Any]]] = []
        for number in range(1 + rng.randrange(self.batch)):
            place = key if not number else rng.randrange(self.keys)
            kind = _KINDS[rng.randrange(len(_KINDS))]
            rows.append((kind, f"k{place}", self._cells(kind, number, rng)))
        return Write(table, f"n{self.count}", rows)

    def update(self, ctx: Context, event: Op) -> Generator:
        """Repeat creates until their tables are known to exist; remember timestamps of scans."""
        del ctx
        if event.f == Create.f:
            name = event.value["name"] if event.type is OpType.INVOKE else None
            return after_create(self, event, name)
        value = event.value if isinstance(event.value, dict) else {}
        if event.f == Scan.f and event.type is OpType.OK and value.get("timestamp"):
            return dataclasses.replace(self, past=(*self.past, value["timestamp"])[-PAST_MAX:])
        return self

    def _create(self, name: str) -> Create:
        nonce = f"n{self.count}"
        if name == BANK:
            return new_bank(name, nonce, self.replicas)
        return new_table(name, nonce, self.partitions, self.replicas)

    def _cells(self, kind: Kind, number: int, rng: random.Random) -> dict[str, Any]:
        """Draw the cells to write: none for deletes, one for updates and some upserts, else two."""
        if kind == "delete":
            return {}
        value = f"n{self.count}.{number}"
        if kind == "update" or (kind == "upsert" and rng.randrange(3) == 0):
            return {f"v{rng.randrange(2)}": value}
        return {"v0": value, "v1": value}

    def _scan(self, table: str, rng: random.Random) -> Scan:
        name = BANK if self.groups and rng.randrange(3) == 0 else table
        if self.past and rng.randrange(100) < self.past_percent:
            at = self.past[rng.randrange(len(self.past))]
            return Scan(name, "snapshot", "any", at)
        choice = rng.randrange(10)
        if choice < 3:
            return Scan(name)
        if choice < 4:
            return Scan(name, "latest", "any")
        if choice < 7:
            return Scan(name, "snapshot", "any")
        if choice < 8:
            low = rng.randrange(self.keys)
            return Scan(name, "snapshot", "leader", start=f"k{low}")
        return Scan(name, "read-your-writes", "any")


def group_size(group: int) -> int:
    """Return the number of rows in a group: two or three."""
    return 2 + group % 2


def transfer(table: str, group: int, nonce: str, rng: random.Random) -> Write:
    """Return a write of all rows of a group, with balances that add up to `SUM`."""
    rows: list[tuple[Kind, str, dict[str, Any]]] = []
    left, size = SUM, group_size(group)
    for number in range(size):
        amount = left if number == size - 1 else rng.randrange(left + 1)
        left -= amount
        cells = {"v0": f"{nonce}.{number}", "balance": str(amount)}
        rows.append(("upsert", f"g{group}.{number}", cells))
    return Write(table, nonce, rows)


def new_bank(name: str, nonce: str, replicas: int) -> Create:
    """Return a create of a table with one tablet, in which a write of several rows is atomic."""
    return Create(name, nonce, ["v0", "balance"], 1, replicas)


class RowsWorkload(Workload):
    """Inserts, upserts, updates, deletes, reads and scans of rows."""

    api_version = API_VERSION
    name = "rows"
    doc = "writes, reads and scans of rows, with snapshots and sums that must hold"
    vocabulary = "rows"
    options = (
        Option("tables", 2, "number of tables of rows", within=(1, 100)),
        Option("keys", 6, "number of keys per table that clients contend for", within=(1, 100_000)),
        Option(
            "groups", 2, "number of groups of rows with a fixed sum of balances", within=(0, 100)
        ),
        Option("batch", 3, "a write has 1 to this many rows", within=(1, 100)),
        Option("partitions", 3, "tablets of each table of rows", within=(1, 60)),
        REPLICAS,
        Option("reads", 25, "percentage of operations that read a row", within=(0, 50)),
        Option("scans", 15, "percentage of operations that scan a table", within=(1, 50)),
        Option("past", 25, "percentage of scans at an earlier timestamp", within=(0, 100)),
        READERS,
        burst_option(6, "operations at once on one key"),
    )
    checkers = (
        "linearizable-rows",
        "snapshot-scans",
        "elle-rows",
        "bank-sums",
        "rows-exactly-once",
        "read-your-writes",
        "liveness",
        "crash",
        "stats",
    )

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        return _RowsOps(
            tables=int(options["tables"]),
            keys=int(options["keys"]),
            groups=int(options["groups"]),
            batch=int(options["batch"]),
            partitions=int(options["partitions"]),
            replicas=replicas_of(case),
            read_percent=int(options["reads"]),
            scan_percent=int(options["scans"]),
            past_percent=int(options["past"]),
            readers=readers_of(case),
            burst=int(options["burst"]),
            missing=tables_of(options),
        )

    @override
    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        drawn = {name: choices[rng.randrange(len(choices))] for name, choices in _DRAWN.items()}
        return {**drawn, **given}

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        name, nonce = f"probe-{attempt}", f"p{attempt}.{retry}"
        replicas = int(case.workload_options["replicas"])
        life: tuple[Call, ...] = (
            new_bank(name, nonce, replicas),
            transfer(name, 0, f"{nonce}w", stream(case.seed, nonce)),
            Read(name, "g0.0"),
            Scan(name, "snapshot", "any"),
        )
        return tuple(map(Request.of, life))

    def final(self, case: Case) -> Sequence[Request]:
        """Request scans of every table, both from the leaders and as a snapshot."""
        names = tables_of(case.workload_options)
        modes = [Scan(name) for name in names], [Scan(name, "snapshot", "any") for name in names]
        return tuple(map(Request.of, [scan for scans in modes for scan in scans]))


def tables_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the workload's tables; `bank`, if there are groups, comes last."""
    names = tuple(f"r{number}" for number in range(int(options["tables"])))
    return (*names, BANK) if int(options["groups"]) else names
