"""Transfers between the accounts of a bank, and reads of all balances.

The set-up of the system must open the accounts, as the options `accounts` and `balance` say. The
vocabulary is `harness.vocabularies.bank`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from harness.case import Case
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.bank import Read, Transfer
from workloads.numbered import NumberedOps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _BankOps(NumberedOps):
    read_percent: int
    accounts: int
    most: int

    def call(self, rng: random.Random) -> Call:
        if rng.randrange(100) < self.read_percent:
            return Read()
        source, target = rng.sample(range(self.accounts), 2)
        return Transfer(source, target, 1 + rng.randrange(self.most))


class BankWorkload(Workload):
    """Transfers of random amounts between random accounts, and reads of all balances."""

    api_version = API_VERSION
    name = "bank"
    doc = "transfer between accounts and read all balances: the total stays, none is negative"
    vocabulary = "bank"
    options = (
        Option("accounts", 8, "number of accounts that the set-up opened", within=(2, 1_000)),
        Option("balance", 10, "balance with which each account was opened", within=(1, 1_000_000)),
        Option("transfer", 5, "the largest amount of a transfer", within=(1, 1_000_000)),
        Option("reads", 50, "percentage of operations that read", within=(0, 100)),
        Option("overdraft", default=False, help="balances may be negative"),
    )
    checkers = ("bank", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        return _BankOps(
            read_percent=int(options["reads"]),
            accounts=int(options["accounts"]),
            most=int(options["transfer"]),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Request a transfer of 1 and a read. A retry uses another account: one may be empty."""
        accounts = int(case.workload_options["accounts"])
        source = (attempt + retry) % accounts
        return (
            Request.of(Transfer(source, (source + 1) % accounts, 1)),
            Request.of(Read()),
        )

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Read()),)
