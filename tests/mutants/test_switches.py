"""Every switch of the ledger is found as its row says, and never without the switch.

Rows without `find` say why. `python -m bench.targets.mutants --bugs --only ID` tries one.
"""

import msgspec
import pytest

from bench.targets.ledgers import case_of
from harness.soak import SeedJob, run_seed
from targets.kudu.bugs import Bug

TRIES = 6
FOUND = [bug for bug in Bug if bug.value.find is not None]
QUICK = {Bug.KUDU_1353, Bug.KUDU_1537, Bug.KUDU_495_ABORT}


def cases(bugs):
    marks = pytest.mark.nightly
    return [pytest.param(bug, marks=[marks] * (bug not in QUICK), id=bug.id) for bug in bugs]


def run(case, seed):
    job = SeedJob(
        case=msgspec.structs.replace(case, seed=seed), store=None, name="x", run_prefix=""
    )
    return run_seed(job)


@pytest.mark.slow
@pytest.mark.parametrize("bug", cases(FOUND))
def test_a_switch_is_found_as_its_row_says(bug):
    find = bug.value.find
    for seed in range(find.seed, find.seed + TRIES):  # one, unless what draws or schedules changed
        said = run(case_of(bug), seed).checkers
        if find.checker in {one.checker for one in said if one.verdict == "invalid"}:
            return
    pytest.fail(f"{find.checker} did not find it in seeds {find.seed}..{find.seed + TRIES - 1}")


@pytest.mark.slow
@pytest.mark.parametrize("bug", cases(FOUND))
def test_nobody_is_blamed_without_the_switch(bug):
    find = bug.value.find
    said = run(case_of(bug, switched_on=False), find.seed).checkers
    assert find.checker not in {one.checker for one in said if one.verdict == "invalid"}
