"""Transactions that write and read registers, over a few keys at a time, for Elle.

Each value is written once per run. After enough writes, a key gets no more operations until the
final reads, and a new key takes its place. The vocabulary is `rw-register` of
`harness.vocabularies.transactions`.
"""

from __future__ import annotations

from harness.plugins import API_VERSION, Option
from workloads.contention import READERS
from workloads.list_append import KEYS_MAX, LENGTH_MAX, WIDTH_MAX, ListAppendWorkload


class RwRegisterWorkload(ListAppendWorkload):
    """Transactions of several writes and reads of registers."""

    api_version = API_VERSION
    name = "rw-register"
    doc = "transactions that write and read registers, judged by Elle"
    vocabulary = "rw-register"
    options = (
        Option("keys", 4, "number of registers in use at a time", within=(1, KEYS_MAX)),
        Option(
            "length",
            32,
            "a new register replaces a register with this many writes",
            within=(1, LENGTH_MAX),
        ),
        Option(
            "width",
            4,
            "a transaction has 1 to this many writes and reads",
            within=(1, WIDTH_MAX),
        ),
        Option("reads", 30, "percentage of transactions that only read", within=(0, 100)),
        READERS,
    )
    checkers = ("elle-rw-register", "liveness", "crash", "stats")
    verb = "w"
