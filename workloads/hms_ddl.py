"""DDL on few names in two databases of a metastore, by many clients; some read the event log.

As in `workloads.ddl`, names are few and bursts of operations hit one name, so that creates, renames
and drops of one table meet. The vocabulary is `harness.vocabularies.hms`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Final

from harness.case import Case
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op
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
from workloads.contention import READERS, burst_option, draw_burst, readers_of
from workloads.mixes import Mix, draw_kind, parse_mix

KINDS: Final = tuple(BY_NAME)
DATABASES: Final = ("db1", "db2")
DEFAULT_MIX: Final = "create=28,alter=12,rename=14,drop=20,get=12,list=6,poll=8"
NAMES_MAX: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class HmsOps:
    """An endless generator; `count` makes nonces unique. The first `readers` threads only read.

    The reading threads use the mixes `reads` in turn.

    Bursts of up to `burst` operations at once hit the name `hot`; `left` counts those still to
    emit.
    """

    names: int
    mix: Mix
    reads: tuple[Mix, ...]
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
        number = ctx.index_of(process)
        mix = self.reads[number % len(self.reads)] if number < self.readers else self.mix
        call = self._call(draw_kind(mix, rng), state.hot, rng)
        draft = Draft(call.f, call.asked(), process, None, together=together)
        return Emit(draft, dataclasses.replace(state, count=self.count + 1, left=state.left - 1))

    def update(self, ctx: Context, event: Op) -> Generator:
        """Ignore outcomes: clients know no more than users do."""
        del ctx, event
        return self

    def _next_burst(self, rng: random.Random) -> HmsOps:
        """Start a burst or a single operation."""
        left = draw_burst(self.burst, rng)
        return dataclasses.replace(self, left=left, hot=rng.randrange(self.names))

    def _call(self, kind: str, hot: int, rng: random.Random) -> HmsCall:
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
    """Database and name. The databases take turns, so that half of the renames cross databases."""
    return DATABASES[number % len(DATABASES)], f"t{number}"


class HmsDdlWorkload(Workload, target="hive", usual={"op_timeout_s": 8.0}):
    """Create, alter, rename, drop, get and list on few names, and polls of the event log."""

    api_version = API_VERSION
    name = "hms-ddl"
    doc = "DDL on few names in two databases of a metastore, and polls of its events"
    vocabulary = "hms"
    """A client retries a lost call only after its socket timeout."""
    options = (
        Option("names", 4, "how many table names the clients fight over", within=(1, NAMES_MAX)),
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
        """Endless random DDL."""
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
        """The life of the probe's own table."""
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
        """One list, then a get of every name."""
        names = map(_name, range(int(case.workload_options["names"])))
        return tuple(map(Request.of, [List(), *(Get(*name) for name in names)]))
