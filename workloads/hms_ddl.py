"""DDL on few names in two databases of a metastore, and polls of its event log.

As in `workloads.ddl`, names are few, and bursts of operations go to a single name, so that creates,
renames and drops of the same table race. The vocabulary is `harness.vocabularies.hms`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies.hms import (
    BY_NAME,
    READS,
    Alter,
    Create,
    Drop,
    Get,
    HmsCall,
    List,
    Poll,
    Rename,
)
from workloads.contention import NAMES, READERS, BurstOps, burst_option, parse_mix, readers_of

KINDS: Final = tuple(BY_NAME)
DATABASES: Final = ("db1", "db2")
DEFAULT_MIX: Final = "create=28,alter=12,rename=14,drop=20,get=12,list=6,poll=8"


class HmsOps(BurstOps):
    """An endless generator of DDL and polls of the event log."""

    def call(self, kind: str, hot: int, rng: random.Random) -> HmsCall:
        name, nonce = _name(hot), f"n{self.count}"
        match kind:
            case Create.f:
                return Create(*name, nonce)
            case Alter.f:
                return Alter(*name, nonce)
            case Rename.f:
                other = _name(rng.randrange(self.names))
                old, new = (name, other) if rng.randrange(2) else (other, name)
                return Rename(*old, *new, nonce)
            case Drop.f:
                return Drop(*name, nonce)
            case Get.f:
                return Get(*name)
            case List.f:
                return List()
            case _:
                return Poll()


def _name(number: int) -> tuple[str, str]:
    """Return a table's database and name. Databases alternate, so renames often cross them."""
    return DATABASES[number % len(DATABASES)], f"t{number}"


# `op_timeout_s` is 8 s, longer than the socket timeout after which clients retry a lost call.
class HmsDdlWorkload(Workload, target="hive", usual={"op_timeout_s": 8.0}):
    """DDL on few names, and polls of the event log."""

    api_version = API_VERSION
    name = "hms-ddl"
    doc = "DDL on few names in two databases of a metastore, and polls of its events"
    vocabulary = "hms"
    options = (
        NAMES,
        Option("mix", DEFAULT_MIX, "weights of the kinds of operation"),
        READERS,
        burst_option(6, "operations at once on one name"),
    )
    checkers = (
        "linearizable-hms",
        "hms-events",
        "hms-invariants",
        "hms-failover",
        "liveness",
        "crash",
        "stats",
    )

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        mix = parse_mix(str(options["mix"]), KINDS)
        reads = tuple((kind, weight) for kind, weight in mix if kind in READS)
        return HmsOps(
            names=int(options["names"]),
            mix=mix,
            reads=(reads,),
            readers=readers_of(case) if reads else 0,
            burst=int(options["burst"]),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        del case
        database, name, nonce = DATABASES[0], f"probe-{attempt}", f"p{attempt}.{retry}"
        other = (DATABASES[1], f"{name}-r")
        life: tuple[HmsCall, ...] = (
            Create(database, name, f"{nonce}c"),
            Alter(database, name, f"{nonce}a"),
            Rename(database, name, *other, f"{nonce}r"),
            Get(*other),
            List(),
            Drop(*other, f"{nonce}d"),
            Poll(),
        )
        return tuple(map(Request.of, life))

    def final(self, case: Case) -> Sequence[Request]:
        names = map(_name, range(int(case.workload_options["names"])))
        return tuple(map(Request.of, [List(), *(Get(*name) for name in names)]))
