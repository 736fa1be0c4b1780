"""Random operations under contention: mixes of kinds, clients that only read, and bursts."""

from __future__ import annotations

import abc
import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Final, Self

from harness.case import Case
from harness.errors import UsageError, choices_near
from harness.exact import whole_number
from harness.generator import Context, Draft, Emit, Pending, Step
from harness.ops import Op
from harness.plugins import Option
from harness.vocabularies import Call

_BURST_PERCENT: Final = 30
"""The probability, in percent, that an operation outside a burst begins a burst."""
READERS: Final = Option("readers", 25, "percentage of clients that only read", within=(0, 100))
_BURST_MAX: Final = 1000
NAMES_MAX: Final = 10_000
NAMES: Final = Option(
    "names", 4, "number of table names that clients contend for", within=(1, NAMES_MAX)
)
Mix = tuple[tuple[str, int], ...]


def burst_option(default: int, of: str) -> Option:
    """Return the option `--burst`; `of` describes a burst ("operations at once on one name")."""
    return Option(
        "burst", default, f"bursts have 2 to this many {of}; 1: no bursts", (1, _BURST_MAX)
    )


def draw_burst(burst: int, rng: random.Random) -> int:
    """Draw the size of the next group of operations: 1, or for a burst from 2 to `burst`."""
    starts = burst > 1 and rng.randrange(100) < _BURST_PERCENT
    return 2 + rng.randrange(burst - 1) if starts else 1


def readers_of(case: Case) -> int:
    """Return how many clients only read. These are the clients with the lowest numbers."""
    return case.concurrency * int(case.workload_options["readers"]) // 100


def draw_kind(mix: Mix, rng: random.Random) -> str:
    """Draw a kind of operation by weight."""
    return rng.choices([kind for kind, _ in mix], [weight for _, weight in mix])[0]


def parse_mix(text: str, kinds: Sequence[str]) -> Mix:
    """Parse weights such as `create=26,alter=18,...` by kind of operation. Raises `UsageError`."""
    weights: dict[str, int] = {}
    for part in text.split(","):
        kind, separator, weight = part.strip().partition("=")
        if separator and kind not in kinds:
            raise UsageError(
                f"--mix has {part.strip()!r}: no kind of operation {kind!r}; "
                f"{choices_near(kind, kinds)}"
            )
        number = whole_number(weight)
        if not separator or number is None:
            raise UsageError(f"--mix has {part.strip()!r}; write KIND=WEIGHT, e.g. {kinds[0]}=5")
        weights[kind] = number
    if sum(weights.values()) == 0:
        raise UsageError(f"--mix {text!r} gives every kind the weight 0; raise one of them")
    return tuple((kind, weights[kind]) for kind in kinds if weights.get(kind))


class Blind:
    """The base class of generators that ignore the outcomes of operations."""

    __slots__ = ()

    def update(self, ctx: Context, event: Op) -> Self:  # noqa: ARG002  the protocol's shape
        return self


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BurstOps(Blind, abc.ABC):
    """The base class of endless generators with bursts; `count` makes nonces unique.

    The first `readers` threads only read. Thread n draws from the mix `reads[n % len(reads)]`.

    In a burst, up to `burst` operations go to the name `hot` at once; `left` of these are still to
    come.
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
        process = ctx.free_process()
        if process is None:
            return Pending(self)
        rng = ctx.random
        together = self.left > 0
        state: Any = self
        if not together:
            left = draw_burst(self.burst, rng)
            state = dataclasses.replace(self, left=left, hot=rng.randrange(self.names))
        number = ctx.index_of(process)
        mix = self.reads[number % len(self.reads)] if number < self.readers else self.mix
        call = self.call(draw_kind(mix, rng), state.hot, rng)
        draft = Draft(call.f, call.asked(), process, None, together=together)
        return Emit(draft, dataclasses.replace(state, count=self.count + 1, left=state.left - 1))

    @abc.abstractmethod
    def call(self, kind: str, hot: int, rng: random.Random) -> Call:
        """Return an operation of this kind on the name with the number `hot`."""
