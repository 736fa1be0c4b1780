"""Transactions for Elle: adding a column to a table is an append, and reading its schema is a read.

A column name is used once per run, so a read shows which appends it saw, and in which order. The
number of columns of a table is limited (Kudu: 300). A table that reaches `--columns` gets no more
operations until the final reads, and a new table takes its place.

The workload creates tables first, and repeats each create, as a new operation, until the table is
known to exist. Only then do appends and reads begin.

The vocabulary is `harness.vocabularies.transactions`. Each transaction either appends to one table
or reads one table.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.errors import UsageError
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, OpType, Process
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies.ddl import Create
from harness.vocabularies.transactions import Txn
from workloads.contention import READERS, burst_option, draw_burst, readers_of
from workloads.creation import REPLICAS, after_create, replicas_of

PREFIX: Final = "a"
TABLES_MAX: Final = 1000
COLUMNS_MAX: Final = 250
APPENDS_MAX: Final = 16
FINAL_MAX: Final = 400
"""Maximum number of tables to read at the end. Reads during the run cover the others."""


@dataclasses.dataclass(frozen=True, slots=True)
class _AppendOps:
    """An endless generator of creates, appends and reads.

    `tables` has the number of each table in use, and how many columns were requested for it so far.
    `missing` are the tables to create. `creating` maps a process to the table that it is creating.
    Until `begun`, only creates are emitted. The first `readers` threads only read. In a burst, up
    to `burst` transactions go to `tables[hot]`; `left` of these are still to come.
    """

    columns: int
    appends: int
    read_percent: int
    readers: int
    replicas: int
    tables: tuple[tuple[int, int], ...]
    missing: tuple[int, ...]
    creating: tuple[tuple[Process, int], ...] = ()
    burst: int = 1
    begun: bool = False
    count: int = 0
    hot: int = 0
    left: int = 0

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None or not (self.begun or self.missing):
            return Pending(self)
        following = dataclasses.replace(self, count=self.count + 1)
        if self.missing:
            number, *rest = self.missing
            create = new_table(table_name(number), f"n{self.count}", self.replicas)
            draft = Draft(create.f, create.asked())
            return Emit(draft, dataclasses.replace(following, missing=tuple(rest)))
        rng, together = ctx.random, self.left > 0
        left, place = self.left - 1, self.hot
        if not together:
            left = draw_burst(self.burst, rng) - 1
            place = rng.randrange(len(self.tables))
        burst = dataclasses.replace(following, hot=place, left=left)
        only_reads = ctx.index_of(process) < self.readers
        if only_reads or rng.randrange(100) < self.read_percent:
            txn, after = read_of(table_name(self.tables[place][0])), burst
        else:
            txn, after = burst.append_to(place, 1 + rng.randrange(self.appends))
        return Emit(Draft(txn.f, txn.asked(), process, together=together), after)

    def append_to(self, place: int, width: int) -> tuple[Txn, _AppendOps]:
        """Return a transaction that appends to `tables[place]`, and the next generator."""
        number, asked = self.tables[place]
        elements = [f"c{self.count}.{position}" for position in range(width)]
        txn = Txn([["append", table_name(number), element] for element in elements])
        changed, missing = (number, asked + width), self.missing
        if changed[1] + self.appends > self.columns:
            newest = 1 + max(table for table, _ in self.tables)
            changed, missing = (newest, 0), (*missing, newest)
        tables = (*self.tables[:place], changed, *self.tables[place + 1 :])
        return txn, dataclasses.replace(self, tables=tables, missing=missing)

    def update(self, ctx: Context, event: Op) -> Generator:
        del ctx
        if event.f != Create.f:
            return self
        number = None
        if event.type is OpType.INVOKE:
            number = int(event.value["name"].removeprefix(PREFIX))
        return after_create(self, event, number)


def table_name(number: int) -> str:
    """Return the name of table `number`. Tables are numbered from 0 in the order of creation."""
    return f"{PREFIX}{number}"


def new_table(name: str, nonce: str, replicas: int) -> Create:
    """Return a create of a table with one tablet and no column except the key."""
    return Create(name, nonce, [], 1, replicas)


def read_of(name: str) -> Txn:
    """Return a transaction that reads one table."""
    return Txn([["r", name, None]])


def _tables_at_most(case: Case) -> int:
    """Return about how many tables a run creates, given its length, rate and share of reads."""
    options = case.workload_options
    share = (100 - int(options["reads"])) / 100
    width = (1 + int(options["appends"])) / 2
    columns = case.rate * case.time_limit_s * share * width
    room = int(options["columns"]) - int(options["appends"])
    return int(options["tables"]) + math.ceil(columns / max(1, room))


class AppendWorkload(Workload):
    """Transactions that append columns to a table or read a table's columns."""

    api_version = API_VERSION
    name = "append"
    doc = "transactions that add columns to tables and read them, judged by Elle"
    vocabulary = "append"
    options = (
        Option("tables", 3, "number of tables in use at a time", within=(1, TABLES_MAX)),
        Option(
            "columns",
            60,
            "a new table replaces a table with this many columns",
            within=(1, COLUMNS_MAX),
        ),
        Option(
            "appends", 3, "a transaction appends 1 to this many columns", within=(1, APPENDS_MAX)
        ),
        Option("reads", 50, "percentage of transactions that read", within=(0, 100)),
        REPLICAS,
        READERS,
        burst_option(4, "transactions at once on one table"),
    )
    checkers = ("elle-list-append", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        if int(options["columns"]) < int(options["appends"]):
            raise UsageError(
                f"--columns is {options['columns']}, but one transaction may append "
                f"{options['appends']}; raise --columns, or lower --appends"
            )
        tables = range(int(options["tables"]))
        return _AppendOps(
            columns=int(options["columns"]),
            appends=int(options["appends"]),
            read_percent=int(options["reads"]),
            readers=readers_of(case),
            burst=int(options["burst"]),
            replicas=replicas_of(case),
            tables=tuple((number, 0) for number in tables),
            missing=tuple(tables),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        name, nonce = f"probe-{attempt}", f"p{attempt}.{retry}"
        create = new_table(name, nonce, int(case.workload_options["replicas"]))
        append = Txn([["append", name, f"c{nonce}"]])
        return tuple(map(Request.of, (create, append, read_of(name))))

    def final(self, case: Case) -> Sequence[Request]:
        tables = min(FINAL_MAX, _tables_at_most(case))
        return tuple(Request.of(read_of(table_name(number))) for number in range(tables))
