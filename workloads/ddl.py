"""DDL on few names by many clients, to provoke races in the catalog.

Names are few, so that creates, renames and deletes race for them. Every mutation has a unique
nonce: a create puts it into the table's comment, and an alter puts it into the name of a column. So
reads can show that an operation of unknown outcome took effect.

The workload `ranges` adds and drops ranges of tables instead. The vocabulary is
`harness.vocabularies.ddl`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harness.case import Case
from harness.exact import whole_number
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, Process
from harness.plugins import API_VERSION, Option, Request, Workload, override
from harness.vocabularies.ddl import (
    BY_NAME,
    READS,
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
    call_of,
)
from workloads.contention import (
    NAMES,
    READERS,
    Blind,
    Mix,
    burst_option,
    draw_burst,
    parse_mix,
    readers_of,
)
from workloads.creation import (
    REPLICAS,
    UNPLACEABLE,
    after_create,
    new_table,
    replicas_of,
    too_many_replicas,
)

KINDS: Final = tuple(BY_NAME)
DEFAULT_MIX: Final = (
    "create=24,alter=26,rename=8,delete=14,get=10,list=6,locate=5,is-create-done=3,is-alter-done=5"
)
PARTITIONS_MAX: Final = 60
DONE_MAX: Final = 200
"""Maximum number of names for which the final reads ask whether DDL is done."""
ADDED_MAX: Final = 16
"""Maximum number of names for which the generator remembers the last added column."""
MOVE_GAPS_NS: Final = (1_000_000, 4_000_000, 16_000_000)
"""The largest gaps between operations in a burst of moves, about as long as a rename takes."""
DRAWN: Final[dict[str, tuple[int, ...]]] = {
    "names": (2, 4, 4),
    "partitions": (2, 3),
    "moves": (0, 50),
}
"""The values of options from which a soak draws.

With fewer names, operations race more. With more tablets, the parts of one DDL operation finish at
more different moments. Bursts of moves leave less time for other operations. Append new entries at
the end, so that existing draws stay the same.
"""
FIRST_RANGE: Final = ("a", "b")
"""The range that each table keeps."""


class _DdlOps(Blind, msgspec.Struct, frozen=True):
    """An endless generator; `count` makes nonces unique. The first `readers` threads only read.

    In a burst, up to `burst` operations go to the name `hot` at once; `left` of these are still to
    come. `moves` percent of the bursts are twice as long: clients rename tables between `hot` and
    `other`, while other clients list. Operations of such a burst are up to `gap_ns` apart, and the
    next one is due at `due_ns`. Without gaps, a list would rarely be in progress when a rename
    takes effect, and only such a list can show half of a rename.

    `unplaceable` percent of the creates request `too_many` replicas.
    """

    names: int
    partitions: int
    replicas: int
    mix: Mix
    reads: Mix
    readers: int
    burst: int
    moves: int = 0
    unplaceable: int = 0
    too_many: int = 0  # more replicas than there are tablet servers
    count: int = 0
    hot: int = 0
    left: int = 0
    other: int | None = None  # the second name of a burst of moves
    gap_ns: int = 0
    due_ns: int = 0
    added: tuple[tuple[str, str], ...] = ()  # (name, last column requested for it), newest last

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        rng = ctx.random
        state = self if self.left > 0 else self._next_burst(rng)
        only_reads = ctx.index_of(process) < self.readers
        if state.other is None:
            kind = _kind(self.reads if only_reads else self.mix, rng)
            call = self._call(kind, state.hot, rng)
        elif only_reads or rng.randrange(3):
            call = List()
        else:
            call = self._rename(state.hot, state.other, rng)
        together = state is self
        time_ns = max(self.due_ns, ctx.time_ns) if together and self.other is not None else None
        draft = Draft(call.f, call.asked(), process, time_ns, together=together)
        added = _added_now(self.added, call)
        due_ns = 0
        if state.other is not None:
            due_ns = (ctx.time_ns if time_ns is None else time_ns) + rng.randrange(state.gap_ns)
        count, left = self.count + 1, state.left - 1
        following = replace(state, count=count, left=left, due_ns=due_ns, added=added)
        return Emit(draft, following)

    def _next_burst(self, rng: random.Random) -> _DdlOps:
        left = draw_burst(self.burst, rng)
        hot = rng.randrange(self.names)
        other, gap_ns = None, 0
        if left > 1 and self.moves and rng.randrange(100) < self.moves and self.names > 1:
            other = (hot + 1 + rng.randrange(self.names - 1)) % self.names
            left = 2 * left
            gap_ns = MOVE_GAPS_NS[rng.randrange(len(MOVE_GAPS_NS))]
        return replace(self, left=left, hot=hot, other=other, gap_ns=gap_ns)

    def _call(self, kind: str, hot: int, rng: random.Random) -> DdlCall:
        name, nonce = f"t{hot}", f"n{self.count}"
        match kind:
            case List.f:
                return List()
            case Create.f:
                partitions, replicas = 1 + rng.randrange(self.partitions), self.replicas
                if self.unplaceable and rng.randrange(100) < self.unplaceable:
                    replicas = self.too_many
                return new_table(name, nonce, partitions, replicas)
            case Alter.f:
                return Alter(name, nonce, _steps(nonce, dict(self.added).get(name, ""), rng))
            case Rename.f:
                return self._rename(hot, rng.randrange(self.names), rng)
            case Delete.f:
                return Delete(name, nonce)
            case _:
                return call_of(kind, {"name": name})

    def _rename(self, one: int, other: int, rng: random.Random) -> Rename:
        old, new = (one, other) if rng.randrange(2) else (other, one)
        return Rename(f"t{old}", f"t{new}", f"n{self.count}")


def _kind(mix: Mix, rng: random.Random) -> str:
    left = rng.randrange(sum(weight for _, weight in mix))
    for kind, weight in mix:
        left -= weight
        if left < 0:
            return kind
    raise AssertionError("the weights do not add up to their total")


def _added_now(added: tuple[tuple[str, str], ...], call: DdlCall) -> tuple[tuple[str, str], ...]:
    if not isinstance(call, Alter):
        return added
    names = [step[1] for step in call.steps if step[0] == "add"]
    others = tuple(each for each in added if each[0] != call.name)
    return (*others[1 - ADDED_MAX :], (call.name, names[-1] if names else ""))


def _steps(nonce: str, last: str, rng: random.Random) -> list[list[str]]:
    """Draw the steps of an alter. It mostly adds a column and sometimes drops `last`.

    `last` is the column that was most recently added under this name. If it was renamed or dropped
    since, or belongs to another table, the master refuses the alter.
    """
    column = f"c{nonce}"
    choice = rng.randrange(20)
    if choice < 7 and last:
        return [["drop", last]] if choice < 4 else [["drop", last], ["add", column]]
    if choice < 15:
        return [["add", column]]
    if choice < 18:
        return [["add", column], ["rename", column, f"{column}r"]]
    return [["add", column], ["drop", "v1"]]


class DdlWorkload(Workload):
    """Create, alter, rename, delete, get, list and locate on few names."""

    api_version = API_VERSION
    name = "ddl"
    doc = "create, alter, rename, delete, get, list and locate on few names"
    vocabulary = "ddl"
    options: tuple[Option, ...] = (
        NAMES,
        Option("partitions", 2, "tables get 1 to this many tablets", within=(1, PARTITIONS_MAX)),
        REPLICAS,
        Option("mix", DEFAULT_MIX, "weights of the kinds of operation"),
        READERS,
        burst_option(6, "operations at once on one name"),
        Option("moves", 0, "percentage of bursts that rename and list tables", within=(0, 100)),
        UNPLACEABLE,
    )
    checkers: tuple[str, ...] = (
        "linearizable-catalog",
        "catalog-invariants",
        "liveness",
        "crash",
        "stats",
    )

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        mix = parse_mix(str(options["mix"]), KINDS)
        reads = tuple((kind, weight) for kind, weight in mix if kind in READS and weight)
        return _DdlOps(
            names=int(options["names"]),
            partitions=int(options["partitions"]),
            replicas=replicas_of(case),
            mix=mix,
            reads=reads,
            readers=readers_of(case) if reads else 0,
            burst=int(options["burst"]),
            moves=int(options["moves"]) if {"list", "rename"} <= dict(mix).keys() else 0,
            unplaceable=int(options["unplaceable"]),
            too_many=too_many_replicas(case) if int(options["unplaceable"]) else 0,
        )

    @override
    def draw_options(self, rng: random.Random, given: Mapping[str, Any]) -> dict[str, Any]:
        drawn = {name: choices[rng.randrange(len(choices))] for name, choices in DRAWN.items()}
        return {**drawn, **given}

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        name, renamed, nonce = f"probe-{attempt}", f"probe-{attempt}-r", f"p{attempt}.{retry}"
        replicas = int(case.workload_options["replicas"])
        life: tuple[DdlCall, ...] = (
            new_table(name, f"{nonce}c", 1, replicas),
            IsCreateDone(name),
            Locate(name),
            Alter(name, f"{nonce}a", [["add", f"c{nonce}"]]),
            IsAlterDone(name),
            Rename(name, renamed, f"{nonce}r"),
            Get(renamed),
            List(),
            Delete(renamed, f"{nonce}d"),
        )
        return tuple(map(Request.of, life))

    def final(self, case: Case) -> Sequence[Request]:
        names = [f"t{number}" for number in range(int(case.workload_options["names"]))]
        kinds: tuple[type[Get | Locate | IsCreateDone | IsAlterDone], ...]
        kinds = (Get, Locate, IsCreateDone, IsAlterDone)
        if int(case.workload_options["unplaceable"]):
            # Masters refuse to locate a table that was never placed, and final reads must succeed.
            kinds = (Get, IsCreateDone, IsAlterDone)
        looks = [kind(name) for name in names[:DONE_MAX] for kind in kinds]
        return tuple(map(Request.of, [List(), *looks, *map(Get, names[DONE_MAX:])]))


# --- ranges ----------------------------------------------------------------------------------


def _table(number: int) -> str:
    return f"w{number}"


@dataclasses.dataclass(frozen=True, slots=True)
class _RangeOps:
    """An endless generator of changes to the ranges of tables `w0`, `w1`, ...

    Each table has one range that always exists, and `ranges` ranges that are added and dropped.
    """

    tables: int
    ranges: int
    buckets: int
    replicas: int
    readers: int
    missing: tuple[int, ...]
    creating: tuple[tuple[Process, int], ...] = ()
    begun: bool = False
    count: int = 0

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        after = self
        if self.missing:
            number, *others = self.missing
            call: DdlCall = self._create(number)
            after = dataclasses.replace(self, missing=tuple(others))
        elif not self.begun:
            return Pending(self)
        else:
            call = self._call(ctx.random, only_reads=ctx.index_of(process) < self.readers)
        draft = Draft(call.f, call.asked(), process)
        return Emit(draft, dataclasses.replace(after, count=self.count + 1))

    def _create(self, number: int) -> Create:
        name, nonce = _table(number), f"n{self.count}"
        first = [FIRST_RANGE]
        return Create(name, nonce, ["v0"], self.buckets, self.replicas, ranges=first)

    def _call(self, rng: random.Random, *, only_reads: bool) -> DdlCall:
        name = _table(rng.randrange(self.tables))
        if only_reads or not rng.randrange(4):
            return Get(name) if rng.randrange(3) else List()
        start = f"r{rng.randrange(self.ranges):03d}"
        bounds = [start, f"{start}~"]
        if rng.randrange(2):
            return Alter(name, f"n{self.count}", [["drop-range", *bounds]])
        buckets = ("", str(self.buckets), str(self.buckets + 1))[rng.randrange(3)]
        return Alter(name, f"n{self.count}", [["add-range", *bounds, buckets]])

    def update(self, ctx: Context, event: Op) -> Generator:
        del ctx
        if event.f != Create.f:
            return self
        value = event.value if isinstance(event.value, dict) else {}
        number = whole_number(str(value.get("name", ""))[1:])
        return after_create(self, event, -1 if number is None else number)


class RangesWorkload(Workload, usual={"rate": 40.0}):
    """Adds and drops ranges of tables, with the table's hash schema or a different one.

    A new range has as many hash buckets as the table, or one more. A request may also state the
    table's own number explicitly, which must make no difference (KUDU-3723). A request is refused,
    and proves nothing, if it adds an existing range or drops a missing one. The checker
    `catalog-invariants` compares the final ranges with the tablets (I6).
    """

    api_version = API_VERSION
    name = "ranges"
    doc = "ranges of tables are added and dropped, some with hash buckets of their own"
    vocabulary = "ranges"
    options = (
        Option("tables", 2, "number of tables", within=(1, 100)),
        Option("ranges", 3, "number of ranges per table that come and go", within=(1, 100)),
        Option("partitions", 2, "hash buckets of each table", within=(2, 60)),
        REPLICAS,
        READERS,
    )
    checkers = DdlWorkload.checkers

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        tables = int(options["tables"])
        return _RangeOps(
            tables=tables,
            ranges=int(options["ranges"]),
            buckets=int(options["partitions"]),
            replicas=replicas_of(case),
            readers=readers_of(case),
            missing=tuple(range(tables)),
        )

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        """Return the probe of `ddl`. It uses a table without ranges."""
        return DdlWorkload().probe(case, attempt, retry)

    def final(self, case: Case) -> Sequence[Request]:
        names = map(_table, range(int(case.workload_options["tables"])))
        return tuple(map(Request.of, [List(), *map(Get, names)]))
