"""Every planted defect is found by a default soak, at a seed that is recorded here.

Runs are a third as long as those of a soak, to be quick; `python -m bench.mutants` runs whole ones.
What has no recorded seed stands in `OPEN`, with the reason.
"""

import pytest

from harness.case import Case
from harness.drawing import ANY
from harness.soak import SeedJob, run_seed
from tests.mutants import master_defects, raft_defects, tserver_defects
from tests.mutants.plant import MUTANTS, planted

REGISTERED = (master_defects, raft_defects, tserver_defects)
TRIES = 6
FOUND = {
    "created-too-early": (1, "catalog-invariants"),
    "changes-not-reported": (1, "liveness"),
    "delete-before-commit": (1, "bounds"),
    "delete-keeps-tablets": (1, "catalog-invariants"),
    "deleted-forgotten-by-snapshot": (1, "catalog-invariants"),
    "every-third-alter-refused": (1, "linearizable-catalog"),
    "late-elections": (1, "bounds"),
    "locate-leaves-out-a-tablet": (1, "catalog-invariants"),
    "locks-never-forgotten": (2, "bounds"),
    "rename-in-two-steps": (2, "linearizable-catalog"),
    "rename-not-reserved": (1, "linearizable-catalog"),
    "replies-by-client": (1, "linearizable-catalog"),
    "request-ids-ignored": (1, "linearizable-catalog"),
    "any-log-wins": (4, "linearizable-catalog"),
    "snapshot-misses-last": (3, "catalog-invariants"),
    "snapshot-not-restored": (2, "catalog-invariants"),
    "stale-install": (1, "linearizable-catalog"),
    "tablets-run-unreported": (1, "catalog-invariants"),
    "version-without-columns": (2, "catalog-invariants"),
}
RARE = "found in some whole soaks, in too few short ones for a test of every day"
UNMEASURED = "no seed was recorded yet"
OPEN = {
    "vote-not-saved": "needs a voter killed between two votes of one term: faults by events",
    "refusals-unconfirmed": "not in 10 short seeds: needs refusals by a leader that is cut off",
    "column-ids-reused": "not in 4 short seeds: a table's newest column must be dropped and read",
    "replies-not-in-snapshot": "not in 12 whole seeds: a resend must cross a restored snapshot",
    "list-in-two-steps": RARE,
    "wal-never-syncs": RARE,
    "recovery-drops-last": RARE,
    "creates-not-resent": RARE,
    **dict.fromkeys(
        (
            "ack-before-durable",
            "old-terms-by-counting",
            "long-lease",
            "commits-unmatched",
            "term-not-saved",
            "leader-counts-before-durable",
            "calls-multiply",
            "altered-by-one",
            "no-full-report",
            "marks-cleared-when-sent",
            "tablets-not-reopened",
            "tablet-wal-never-syncs",
            "delete-keeps-files",
            "tablet-snapshot-not-restored",
        ),
        UNMEASURED,
    ),
}


def soaked(mutant, seed):
    case = Case(seed=seed, nemeses=(ANY,), time_limit_s=20.0)
    with planted(mutant):
        return run_seed(SeedJob(case=case, store=None, name="mutants", run_prefix=""))


def test_every_defect_is_found_or_says_why_not():
    assert FOUND.keys().isdisjoint(OPEN)
    assert FOUND.keys() | OPEN.keys() == MUTANTS.keys()


@pytest.mark.parametrize("mutant", sorted(FOUND))
def test_a_default_soak_finds_it(mutant):
    first, checker = FOUND[mutant]
    for seed in range(first, first + TRIES):  # one, unless what draws or schedules has changed
        said = soaked(mutant, seed).checkers
        if checker in {found.checker for found in said if found.verdict == "invalid"}:
            return
    pytest.fail(f"{checker} did not find it in seeds {first}..{first + TRIES - 1}")


@pytest.mark.parametrize("seed", sorted({seed for seed, _ in FOUND.values()}))
def test_the_target_without_a_defect_is_not_blamed(seed):
    assert soaked(None, seed).verdict == "valid"
