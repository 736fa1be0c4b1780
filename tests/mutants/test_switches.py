"""Soaks find every bug switch as the ledger says, and blame no run without a switch.

An entry without `find` gives the reason. `harness exam --only ID` tries one switch.
"""

import msgspec
import pytest

from harness.registry import load_plugin
from harness.soak import SeedJob, run_seed
from results.exam.rows import case_of, words_of

TRIES = 6
FOUND = [bug for bug in load_plugin("targets", "kudu").switches() if bug.options is not None]
QUICK = {"KUDU-1353", "KUDU-1537", "KUDU-495-ABORT"}


def cases(bugs):
    marks = pytest.mark.nightly
    return [pytest.param(bug, marks=[marks] * (bug.id not in QUICK), id=bug.id) for bug in bugs]


def run(case, seed):
    job = SeedJob(
        case=msgspec.structs.replace(case, seed=seed), store=None, name="x", run_prefix=""
    )
    return run_seed(job)


@pytest.mark.slow
@pytest.mark.parametrize("bug", cases(FOUND))
def test_a_switch_is_found_as_its_row_says(bug):
    case = case_of(words_of("kudu", bug))
    # the first seed suffices, unless draws or schedules have changed
    for seed in range(bug.seed, bug.seed + TRIES):
        result = run(case, seed).checkers
        if bug.checker in {one.checker for one in result if one.verdict == "invalid"}:
            return
    pytest.fail(f"{bug.checker} did not find it in seeds {bug.seed}..{bug.seed + TRIES - 1}")


@pytest.mark.slow
@pytest.mark.parametrize("bug", cases(FOUND))
def test_a_target_without_the_switch_is_not_blamed(bug):
    case = case_of(words_of("kudu", bug, switched_on=False))
    result = run(case, bug.seed).checkers
    assert bug.checker not in {one.checker for one in result if one.verdict == "invalid"}
