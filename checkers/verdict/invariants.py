"""The table of the named invariants, I1 to I9, of a replicated catalog with rows.

There are many small checks, but users ask about invariants. So a violation first names its
invariant, then the check. Results count the judgements of each invariant (`counted_by_name`), so
that an invariant without a judgement is not reported as held.

`tests/checkers/catalog/test_named_invariants.py` has, for each invariant, a mutated history that
violates no other invariant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

KEY: Final = "invariants"
"""The key in a result's details that maps each invariant to its number of judgements."""


class Invariant(NamedTuple):
    """A named invariant. `says` is the promise, and `checks` are the names of its checks.

    `sources` are the parts of a history that the checks read.
    """

    id: str
    title: str
    says: str
    sources: str
    checks: tuple[str, ...]

    @property
    def name(self) -> str:
        """The invariant's name in violations and results."""
        return f"{self.id} {self.title}"


INVARIANTS: Final = (
    Invariant(
        "I1",
        "election-safety",
        "at most one node leads a group in a term",
        "announcements of masters and tablet leaders; roles and leaders in the dumps",
        ("one-leader", "elections"),
    ),
    Invariant(
        "I2",
        "log-matching",
        "at every applied index all replicas of a group hold the same entries and state",
        "checkpoints along the run; logs, digests and rows of the dumps where they overlap",
        ("logs-agree", "replica-logs-agree", "checkpoints", "rows-agree"),
    ),
    Invariant(
        "I3",
        "leader-completeness",
        "every later ready leader has all acknowledged changes",
        "answers against the final rows; revisions and terms of answers",
        ("acknowledged", "revisions", "terms"),
    ),
    Invariant(
        "I4",
        "ddl-linearizable",
        "one catalog explains all answers, including refusals; a change that is done stays done",
        "all answers; in weaker profiles, as far as their permits do not relax this",
        (
            "answers",
            "applied-versions",
            "alter-done",
            "done",
            "done-early",
            "applied-early",
            "refusals",
            "named-tablets",
        ),
    ),
    Invariant(
        "I5",
        "names-and-ids",
        "names are unique, ids never reused, states go forward only, numbers never fall",
        "answers; rows of all masters, each of which is a state of the same log",
        (
            "unique-names",
            "unique-ids",
            "name-map",
            "maps-equal-rows",
            "ids-not-reused",
            "created-once",
            "column-ids",
            "table-states",
            "tablet-states",
            "forward",
        ),
    ),
    Invariant(
        "I6",
        "coverage",
        "tablets of a table cover each partition exactly once",
        "rows; answers with locations",
        ("coverage", "located", "located-tablets", "located-rows", "located-voters"),
    ),
    Invariant(
        "I7",
        "convergence",
        "once everything is healed and settled, no change is in progress, and all nodes agree "
        "with the catalog",
        "rows against the replicas of all tablet servers; members of the masters",
        (
            "settled",
            "orphans",
            "replicas",
            "schema-versions",
            "replica-columns",
            "done-at-rest",
            "members",
        ),
    ),
    Invariant(
        "I8",
        "rows",
        "exactly the acknowledged rows exist, each write took effect once, and replicas hold "
        "the same rows",
        "checksums of replicas at equal indices; scans",
        ("replica-checksums", "rows"),
    ),
    Invariant(
        "I9",
        "exits",
        "processes end only by the nemesis, or as the profile permits",
        "exits that the harness saw",
        ("exits",),
    ),
)

CATALOG: Final = tuple(each for each in INVARIANTS if each.id != "I9")
"""The invariants that the checker `catalog-invariants` judges."""
_OF_CHECK: Final[Mapping[str, Invariant]] = {
    check: invariant for invariant in INVARIANTS for check in invariant.checks
}


def invariant_of(check: str) -> Invariant:
    """Return the invariant that `check` belongs to; raise `KeyError` for an unknown check."""
    return _OF_CHECK[check]


def counted_by_name(looked: Mapping[str, int], among: Iterable[Invariant]) -> dict[str, int]:
    """Map each invariant's name to its number of judgements; `looked` has the numbers per check."""
    return {
        invariant.name: sum(looked.get(check, 0) for check in invariant.checks)
        for invariant in among
    }
