"""The guide of a search: chooses each seed's case, depending on states that earlier seeds reached.

Seeds run in generations (`generations`). All cases of a generation are drawn before its first run,
from the results of earlier generations in the order of their seeds. So the cases depend neither on
the number of workers nor on interruptions. The first generation is drawn from scratch: even seeds
exactly as with `--search swarm`, and odd seeds uniformly (`harness.search.uniform`), because each
method finds failures that the other misses. In later generations, about one case in `FRESH_EVERY`
is fresh; the others are variations of cases in the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from harness.case import SEARCH, Case, stream
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.plan.random_case import NONE
from harness.plugins import Environment
from harness.search.corpus import Corpus, Origin
from harness.search.mutation import Material, vary
from harness.search.states import Reached
from harness.search.uniform import with_uniform_faults

UNIFORM: Final = "uniform"
SWARM: Final = "swarm"
GUIDED: Final = "guided"
Search = Literal["uniform", "swarm", "guided"]
GENERATION_MIN: Final = 8
GENERATION_MAX: Final = 64
FRESH_EVERY: Final = 2
TRIES_MAX: Final = 8
"""How many variations are tried for a seed before it gets a fresh case."""


def generations(first: int, last: int) -> Iterator[range]:
    """Yield each generation's seeds: half as many as in all earlier generations, within bounds.

    Small generations let the guide learn early; large ones keep many workers busy.
    """
    begin = first
    while begin <= last:
        size = min(max(GENERATION_MIN, (begin - first) // 2), GENERATION_MAX)
        yield range(begin, min(begin + size, last + 1))
        begin += size


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """The planned case of a seed, and how it was made."""

    case: Case
    origin: Origin


class Guide:
    """Chooses the cases of a soak. The seed and the faults of its base `case` are ignored.

    `case` is planned, but without random choices (`harness.plan.random_case.undrawn`).
    """

    def __init__(self, case: Case, environment: Environment, search: Search) -> None:
        self.search = search
        self.corpus = Corpus()
        self._case = case
        self._environment = environment
        self._candidates = tuple(name for name in case.nemeses if name != NONE)

    def case_of(self, seed: int) -> Case:
        """Return the case that a seed would have without guidance."""
        fresh = msgspec.structs.replace(self._case, seed=seed, faults=None)
        uniform = self.search == UNIFORM or (self.search == GUIDED and seed % 2)
        if not uniform or not self._candidates:
            return fresh
        planned = plan_case(fresh, self._environment).case
        made = with_uniform_faults(planned, self._candidates)
        return msgspec.structs.replace(made, drawn=self._drawn(planned, UNIFORM))

    def generation(self, seeds: Iterable[int]) -> dict[int, Proposal]:
        """Draw the cases for the seeds of one generation."""
        return {seed: self._proposal(seed) for seed in seeds}

    def learn(self, seed: int, proposal: Proposal, reached: Reached, *, failed: bool) -> None:
        """Learn which states the run of a seed reached. Call this in the order of seeds."""
        self.corpus.take(seed, proposal.case, proposal.origin, reached, failed=failed)

    def _proposal(self, seed: int) -> Proposal:
        fresh = plan_case(self.case_of(seed), self._environment).case
        rng = stream(seed, "search/guided")
        if not self.corpus.entries or not rng.randrange(FRESH_EVERY):
            return Proposal(case=fresh, origin=Origin())
        for _ in range(TRIES_MAX):
            parent, other = self.corpus.choose(rng), self.corpus.choose(rng)
            material = Material(
                candidates=self._candidates,
                moments=parent.reached.moments,
                other=other.case,
                fresh=fresh,
            )
            varied, changes = vary(rng, parent.case, material)
            varied = msgspec.structs.replace(varied, drawn=self._drawn(fresh, GUIDED))
            try:
                planned = plan_case(varied, self._environment).case
            # the options exclude a fault, for example because there are too few clients
            except UsageError:
                continue
            return Proposal(case=planned, origin=Origin(parent.number, changes))
        return Proposal(case=fresh, origin=Origin())

    def _drawn(self, case: Case, search: str) -> dict[str, Any]:
        """Return `Case.drawn` for a case that `search` made from the planned `case`."""
        return {"nemeses": list(self._case.nemeses), **case.drawn, SEARCH: search}
