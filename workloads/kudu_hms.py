"""DDL through Kudu, and drops and renames through Hive, on the same few tables of two databases.

As in `workloads.ddl`, names are few and bursts of operations hit one name. So creates, renames and
drops of both sides meet before one side knows about the changes of the other. The vocabulary is
`harness.vocabularies.kudu_hms`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.case import Case
from harness.errors import UsageError
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op
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
from harness.vocabularies.kudu_hms import (
    BY_NAME,
    HiveCall,
    HiveDrop,
    HiveGet,
    HiveList,
    HiveRename,
)
from workloads.contention import READERS, burst_option, draw_burst, readers_of
from workloads.ddl import check_replicas
from workloads.mixes import Mix, draw_kind, parse_mix

KINDS: Final = tuple(BY_NAME)
READS: Final = frozenset(name for name, call in BY_NAME.items() if not call.mutates)
DATABASES: Final = ("db1", "db2")
DEFAULT_MIX: Final = (
    "create=26,alter=10,rename=10,delete=10,get=12,list=6,hive-drop=8,hive-rename=8,hive-get=6,"
    "hive-list=4"
)
NAMES_MAX: Final = 10_000
PARTITIONS_MAX: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class _TwoSidedOps:
    """An endless generator; `count` makes nonces unique. The first `readers` threads only read.

    Bursts of up to `burst` operations at once hit the name `hot`; `left` counts those still to
    emit.
    """

    names: int
    partitions: int
    replicas: int
    mix: Mix
    reads: Mix
    readers: int
    burst: int
    count: int = 0
    hot: int = 0
    left: int = 0

    def op(self, ctx: Context) -> Step:
        """The next operation, drawn from the run's random stream."""
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        rng = ctx.random
        together = self.left > 0
        state = self if together else self._next_burst(rng)
        only_reads = ctx.index_of(process) < self.readers
        call = self._call(draw_kind(self.reads if only_reads else self.mix, rng), state.hot, rng)
        draft = Draft(call.f, call.asked(), process, None, together=together)
        return Emit(draft, dataclasses.replace(state, count=self.count + 1, left=state.left - 1))

    def update(self, ctx: Context, event: Op) -> Generator:
        """Ignore outcomes: clients know no more than users do."""
        del ctx, event
        return self

    def _next_burst(self, rng: random.Random) -> _TwoSidedOps:
        """Start a burst or a single operation."""
        left = draw_burst(self.burst, rng)
        return dataclasses.replace(self, left=left, hot=rng.randrange(self.names))

    def _call(self, kind: str, hot: int, rng: random.Random) -> DdlCall | HiveCall:
        name, nonce = _name(hot), f"n{self.count}"
        match kind:
            case Create.f:
                return _create(name, nonce, 1 + rng.randrange(self.partitions), self.replicas)
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
    """Database and name. The databases take turns, so that half of the renames cross databases."""
    return f"{DATABASES[number % len(DATABASES)]}.t{number}"


def _create(name: str, nonce: str, partitions: int, replicas: int) -> Create:
    return Create(name, nonce, ["v0", "v1"], partitions, replicas)


class KuduHmsWorkload(Workload, usual={"op_timeout_s": 8.0}):
    """DDL through Kudu, drops and renames through Hive, and reads of both."""

    api_version = API_VERSION
    name = "kudu-hms"
    doc = "DDL through Kudu, drops and renames through Hive, on the same tables"
    vocabulary = "kudu-hms"
    """A master waits for an absent metastore before it asks another one."""
    options = (
        Option("names", 4, "how many table names the clients fight over", within=(1, NAMES_MAX)),
        Option("partitions", 2, "tables get 1 to this many tablets", within=(1, PARTITIONS_MAX)),
        Option("replicas", 3, "replicas of each tablet"),
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
        """Require metastores in addition to the masters."""
        del options, target_options
        return {"hms": True}

    def generator(self, case: Case) -> Generator:
        """Endless random DDL. Raises `UsageError` if the target has no metastore."""
        options = case.workload_options
        if not case.target_options.get("hms"):
            raise UsageError("the workload 'kudu-hms' needs metastores; add --hms")
        check_replicas(int(options["replicas"]), case)
        mix = parse_mix(str(options["mix"]), KINDS)
        reads = tuple((kind, weight) for kind, weight in mix if kind in READS)
        return _TwoSidedOps(
            names=int(options["names"]),
            partitions=int(options["partitions"]),
            replicas=int(options["replicas"]),
            mix=mix,
            reads=reads,
            readers=readers_of(case) if reads else 0,
            burst=int(options["burst"]),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """The lives of the probe's own two tables; the second is dropped through Hive."""
        name, nonce = f"{DATABASES[0]}.probe_{attempt}", f"p{attempt}.{retry}"
        renamed, other = f"{DATABASES[1]}.probe_{attempt}", f"{name}_h"
        replicas = int(case.workload_options["replicas"])
        life: tuple[DdlCall | HiveCall, ...] = (
            _create(name, f"{nonce}c", 1, replicas),
            IsCreateDone(name),
            Alter(name, f"{nonce}a", [["add", f"c{nonce}"]]),
            IsAlterDone(name),
            Rename(name, renamed, f"{nonce}r"),
            Get(renamed),
            HiveGet(renamed),
            List(),
            HiveList(),
            Delete(renamed, f"{nonce}d"),
            _create(other, f"{nonce}hc", 1, replicas),
            HiveRename(other, f"{other}r", f"{nonce}hr"),
            HiveDrop(f"{other}r", f"{nonce}hd"),
        )
        return tuple(map(Request.of, life))

    def final(self, case: Case) -> Sequence[Request]:
        """Both lists, then a get of every name on both sides."""
        names = list(map(_name, range(int(case.workload_options["names"]))))
        looks = [kind(name) for name in names for kind in (Get, HiveGet)]
        return tuple(map(Request.of, [List(), HiveList(), *looks]))
