"""DDL, with reads of bounded staleness that any replica may answer.

Names and changes come from `ddl`, but `--stale` percent of its gets and lists get a staleness bound
from `--bounds`. While the leader is unreachable, replicas must refuse reads with a small bound. A
replica that is cut off may still answer a read with a large bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.case import Case
from harness.errors import UsageError
from harness.exact import whole_number
from harness.generator import Context, Emit, Generator, Step, lift
from harness.generator.core import Around
from harness.plugins import Option, Request, override
from harness.vocabularies.ddl import Get
from harness.vocabularies.follower_reads import FRESH, GetStale, ListStale
from workloads.ddl import DdlWorkload

MIX: Final = "create=14,alter=16,rename=6,delete=8,get=36,list=14,locate=2,is-alter-done=4"
BOUND_MS_MAX: Final = 3_600_000
STALE: Final[Mapping[str, str]] = {fresh: stale for stale, fresh in FRESH.items()}


def parse_bounds(text: str) -> tuple[int, ...]:
    """Parse bounds in ms such as `200,1000,5000`. Raises `UsageError`."""
    bounds = []
    for part in text.split(","):
        bound = whole_number(part.strip())
        if bound is None or bound > BOUND_MS_MAX:
            raise UsageError(
                f"{part!r} in --bounds is not a number of ms in 0 .. {BOUND_MS_MAX}; write 200,1000"
            )
        bounds.append(bound)
    return tuple(bounds)


class _Relaxed(Around, frozen=True):
    """Adds a bound on staleness to some of the reads that the wrapped generator emits."""

    percent: int
    bounds: tuple[int, ...]

    def emitted(self, ctx: Context, step: Emit) -> Step:
        """Replace some reads from the leader with reads of bounded staleness."""
        draft = step.draft
        stale, rng = STALE.get(draft.f), ctx.random
        if stale is not None and rng.randrange(100) < self.percent:
            bound = self.bounds[rng.randrange(len(self.bounds))]
            draft = draft.replace(f=stale, value={**(draft.value or {}), "max_staleness_ms": bound})
        return Emit(draft, self.around(step.next))


class FollowerReadsWorkload(DdlWorkload):
    """DDL, and reads with a bound on their staleness."""

    name = "follower-reads"
    doc = "DDL, and reads from any replica with a bound on the age of the answer"
    vocabulary = "follower-reads"
    options = (
        *(
            Option(option.name, MIX, option.help) if option.name == "mix" else option
            for option in DdlWorkload.options
        ),
        Option("stale", 70, "percentage of gets and lists with a staleness bound", (0, 100)),
        Option("bounds", "200,1000,5000", "staleness bounds in ms; each read draws one of them"),
    )
    checkers = (*DdlWorkload.checkers, "staleness")

    def generator(self, case: Case) -> Generator:
        options = case.workload_options
        bounds = parse_bounds(str(options["bounds"]))
        return _Relaxed(lift(super().generator(case)), int(options["stale"]), bounds)

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        *life, delete = super().probe(case, attempt, retry)
        name = next(r.value["name"] for r in reversed(life) if r.f == Get.f)
        looks = [GetStale(name, max(parse_bounds(self._bounds(case)))), ListStale(BOUND_MS_MAX)]
        return (*life, *map(Request.of, looks), delete)

    def _bounds(self, case: Case) -> str:
        return str(case.workload_options["bounds"])

    @override
    def draw_options(self, rng: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Draw the options of `ddl`, but no bursts of moves, which need lists from the leader."""
        return {**super().draw_options(rng, given), "moves": given.get("moves", 0)}
