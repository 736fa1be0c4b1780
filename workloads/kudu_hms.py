"""DDL through Kudu, and drops and renames through Hive, on the same tables of two databases.

As in `workloads.ddl`, names are few, and bursts of operations go to a single name. So operations
race before one side knows of the other side's changes. The vocabulary is
`harness.vocabularies.kudu_hms`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.case import Case
from harness.errors import UsageError
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload, override
from harness.vocabularies.ddl import (
    Alter,
    Create,
    DdlCall,
    Delete,
    Get,
    IsAlterDone,
    IsCreateDone,
    List,
    Locate,
    Rename,
)
from harness.vocabularies.kudu_hms import BY_NAME, HiveCall, HiveDrop, HiveGet, HiveList, HiveRename
from workloads.contention import NAMES, READERS, BurstOps, burst_option, parse_mix, readers_of
from workloads.creation import REPLICAS, new_table, replicas_of

KINDS: Final = tuple(BY_NAME)
READS: Final = frozenset(name for name, call in BY_NAME.items() if not call.mutates)
DATABASES: Final = ("db1", "db2")
DEFAULT_MIX: Final = (
    "create=26,alter=10,rename=10,delete=10,get=12,list=6,hive-drop=8,hive-rename=8,hive-get=6,"
    "hive-list=4"
)
PARTITIONS_MAX: Final = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _TwoSidedOps(BurstOps):
    """An endless generator of DDL through Kudu and through Hive."""

    partitions: int
    replicas: int

    def call(self, kind: str, hot: int, rng: random.Random) -> DdlCall | HiveCall:
        name, nonce = _name(hot), f"n{self.count}"
        match kind:
            case Create.f:
                return new_table(name, nonce, 1 + rng.randrange(self.partitions), self.replicas)
            case Alter.f:
                return Alter(name, nonce, [["add", f"c{nonce}"]])
            case Delete.f:
                return Delete(name, nonce)
            case HiveDrop.f:
                return HiveDrop(name, nonce)
            case Rename.f | HiveRename.f:
                other = _name(rng.randrange(self.names))
                old, new = (name, other) if rng.randrange(2) else (other, name)
                renames = Rename if kind == Rename.f else HiveRename
                return renames(old, new, nonce)
            case List.f:
                return List()
            case HiveList.f:
                return HiveList()
            case _:
                looks = {call.f: call for call in (Get, Locate, IsCreateDone, IsAlterDone, HiveGet)}
                return looks[kind](name)


def _name(number: int) -> str:
    """Return a table's name with its database. Databases alternate, so renames often cross them."""
    return f"{DATABASES[number % len(DATABASES)]}.t{number}"


# `op_timeout_s` is 8 s, since a master waits long for a missing metastore before it asks another.
class KuduHmsWorkload(Workload, usual={"op_timeout_s": 8.0}):
    """DDL through Kudu, drops and renames through Hive, and reads through both."""

    api_version = API_VERSION
    name = "kudu-hms"
    doc = "DDL through Kudu, drops and renames through Hive, on the same tables"
    vocabulary = "kudu-hms"
    options = (
        NAMES,
        Option("partitions", 2, "tables get 1 to this many tablets", within=(1, PARTITIONS_MAX)),
        REPLICAS,
        Option("mix", DEFAULT_MIX, "weights of the kinds of operation"),
        READERS,
        burst_option(6, "operations at once on one name"),
    )
    checkers = (
        "linearizable-catalog",
        "catalog-invariants",
        "kudu-hms",
        "liveness",
        "crash",
        "stats",
    )

    @override
    def needs(
        self, options: Mapping[str, Any], target_options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        del options, target_options
        return {"hms": True}

    def generator(self, case: Case) -> Generator:
        """Return endless random DDL. Raises `UsageError` if the target has no metastore."""
        options = case.workload_options
        if not case.target_options.get("hms"):
            raise UsageError("the workload 'kudu-hms' needs metastores; add --hms")
        mix = parse_mix(str(options["mix"]), KINDS)
        reads = tuple((kind, weight) for kind, weight in mix if kind in READS)
        return _TwoSidedOps(
            names=int(options["names"]),
            partitions=int(options["partitions"]),
            replicas=replicas_of(case),
            mix=mix,
            reads=(reads,),
            readers=readers_of(case) if reads else 0,
            burst=int(options["burst"]),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Create, change and drop two tables. Hive renames and drops the second table."""
        name, nonce = f"{DATABASES[0]}.probe_{attempt}", f"p{attempt}.{retry}"
        renamed, other = f"{DATABASES[1]}.probe_{attempt}", f"{name}_h"
        replicas = int(case.workload_options["replicas"])
        life: tuple[DdlCall | HiveCall, ...] = (
            new_table(name, f"{nonce}c", 1, replicas),
            IsCreateDone(name),
            Alter(name, f"{nonce}a", [["add", f"c{nonce}"]]),
            IsAlterDone(name),
            Rename(name, renamed, f"{nonce}r"),
            Get(renamed),
            HiveGet(renamed),
            List(),
            HiveList(),
            Delete(renamed, f"{nonce}d"),
            new_table(other, f"{nonce}hc", 1, replicas),
            HiveRename(other, f"{other}r", f"{nonce}hr"),
            HiveDrop(f"{other}r", f"{nonce}hd"),
        )
        return tuple(map(Request.of, life))

    def final(self, case: Case) -> Sequence[Request]:
        names = list(map(_name, range(int(case.workload_options["names"]))))
        looks = [kind(name) for name in names for kind in (Get, HiveGet)]
        return tuple(map(Request.of, [List(), HiveList(), *looks]))
