"""A default soak finds every planted defect, at the seed that is recorded here.

To be quick, this module tries most of `FOUND` in runs of 10 or 20 s, where a soak has 60 s.
`unfound.UNFOUND` lists the defects that no default soak is known to find, with reasons. `harness
exam --defects tests.mutants --only NAME --seeds SEED` tries one defect.
"""

import inspect

import msgspec
import pytest

from harness.case import Case
from harness.plan.random_case import ANY
from harness.soak import SeedJob, run_seed
from tests.mutants.plant import MUTANTS, planted
from tests.mutants.unfound import UNFOUND

TRIES = 6
FOUND = {
    "ack-before-durable": (20, 1, "catalog-invariants"),
    "altered-by-one": (10, 25, "catalog-invariants"),
    "any-log-wins": (10, 3, "crash"),
    "calls-multiply": (20, 2, "bounds"),
    "changes-not-reported": (10, 1, "liveness"),
    "column-ids-reused": (10, 2, "catalog-invariants"),
    "commits-unmatched": (20, 20, "catalog-invariants"),
    "created-too-early": (10, 1, "catalog-invariants"),
    "delete-before-commit": (10, 2, "bounds"),
    "delete-keeps-files": (10, 1, "bounds"),
    "delete-keeps-tablets": (10, 1, "catalog-invariants"),
    "deleted-forgotten-by-snapshot": (10, 1, "catalog-invariants"),
    "dropped-ranges-stay": (10, 1, "catalog-invariants"),
    "evicted-too-early": (60, 9, "catalog-invariants"),
    "every-third-alter-refused": (10, 1, "catalog-invariants"),
    "hash-schemas-of-ranges-stay": (10, 1, "catalog-invariants"),
    "late-elections": (10, 2, "bounds"),
    "leader-counts-before-durable": (60, 31, "catalog-invariants"),
    "list-in-two-steps": (20, 22, "linearizable-catalog"),
    "locate-leaves-out-a-tablet": (10, 2, "catalog-invariants"),
    "locks-never-forgotten": (10, 2, "bounds"),
    "long-lease": (20, 16, "linearizable-catalog"),
    "old-terms-by-counting": (60, 6, "catalog-invariants"),
    "ranges-lack-a-bucket": (10, 1, "catalog-invariants"),
    "recovery-drops-last": (20, 1, "catalog-invariants"),
    "refusals-unconfirmed": (60, 28, "catalog-invariants"),
    "rename-in-two-steps": (10, 3, "linearizable-catalog"),
    "rename-not-reserved": (10, 6, "linearizable-catalog"),
    "replies-by-client": (10, 1, "linearizable-catalog"),
    "replies-not-in-snapshot": (10, 1, "catalog-invariants"),
    "request-ids-ignored": (10, 1, "linearizable-catalog"),
    "second-copies-applied": (60, 7, "rows-exactly-once"),
    "snapshot-misses-last": (10, 1, "catalog-invariants"),
    "snapshot-not-restored": (10, 1, "linearizable-catalog"),
    "snapshots-for-entries": (20, 2, "bounds"),
    "stale-install": (10, 1, "catalog-invariants"),
    "tablet-snapshot-not-restored": (20, 6, "liveness"),
    "tablet-wal-never-syncs": (20, 1, "catalog-invariants"),
    "tablets-not-reopened": (20, 39, "bounds"),
    "tablets-run-unreported": (10, 1, "catalog-invariants"),
    "term-not-saved": (20, 8, "crash"),
    "version-without-columns": (10, 2, "catalog-invariants"),
    "wal-never-syncs": (20, 1, "catalog-invariants"),
}


def soaked(mutant, limit_s, seed):
    case = Case(seed=seed, nemeses=(ANY,), time_limit_s=limit_s)
    workload = MUTANTS[mutant].workload if mutant else None
    if workload:
        case = msgspec.structs.replace(case, workload=workload, given=("workload",))
    with planted(mutant):
        return run_seed(SeedJob(case=case, store=None, name="mutants", run_prefix=""))


def test_every_defect_is_found_or_says_why_not():
    assert sorted([*FOUND, *UNFOUND]) == sorted(MUTANTS)


class Calls:
    """A fake `MonkeyPatch` that records each function with its replacement."""

    def __init__(self):
        self.pairs = []

    def setattr(self, owner, name, new):
        self.pairs.append((inspect.getattr_static(owner, name), new))


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_defect_takes_the_arguments_of_the_replaced_function(mutant):
    calls = Calls()
    MUTANTS[mutant].patch(calls)
    assert calls.pairs
    for old, new in calls.pairs:
        if not inspect.isfunction(old):
            continue
        taken = inspect.signature(new).parameters
        kinds = {parameter.kind for parameter in taken.values()}
        for name, parameter in inspect.signature(old).parameters.items():
            by_name = parameter.kind is parameter.KEYWORD_ONLY
            rest = parameter.VAR_KEYWORD if by_name else parameter.VAR_POSITIONAL
            assert name in taken or rest in kinds, f"{new.__qualname__}: {name}"


OWN = frozenset(
    (
        "any-log-wins",
        "changes-not-reported",
        "delete-keeps-files",
        "delete-keeps-tablets",
        "deleted-forgotten-by-snapshot",
        "dropped-ranges-stay",
        "hash-schemas-of-ranges-stay",
        "ranges-lack-a-bucket",
        "refusals-unconfirmed",
        "rename-in-two-steps",
        "replies-by-client",
        "replies-not-in-snapshot",
        "second-copies-applied",
        "snapshot-not-restored",
        "stale-install",
        "tablets-run-unreported",
    )
)
"""Defects that are tried only nightly."""


def cases(values, *, nightly):
    marks = pytest.mark.nightly
    return [pytest.param(*value, marks=[marks] * nightly(value)) for value in values]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", cases(zip(sorted(FOUND)), nightly=lambda value: value[0] in OWN))
def test_a_default_soak_finds_it(mutant):
    limit_s, first, checker = FOUND[mutant]
    # the first seed suffices, unless draws or schedules have changed
    for seed in range(first, first + TRIES):
        said = soaked(mutant, limit_s, seed).checkers
        if checker in {found.checker for found in said if found.verdict == "invalid"}:
            return
    pytest.fail(f"{checker} did not find it in seeds {first}..{first + TRIES - 1}")


@pytest.mark.parametrize(
    ("limit_s", "seed"),
    cases(
        sorted({(limit_s, seed) for limit_s, seed, _ in FOUND.values()}),
        nightly=lambda value: value != (10, 2),
    ),
)
def test_the_target_without_a_defect_is_not_blamed(limit_s, seed):
    assert soaked(None, limit_s, seed).verdict == "valid"
