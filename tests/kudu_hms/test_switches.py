"""Each switch of Kudu's side of the metastore is found, and its case is clean without it."""

import pytest

from bench.mutants import case_of
from harness.soak import SeedJob, run_seed
from targets.kudu.bugs import Bug
from tests.hive.runs import verdicts

FOUND = [bug for bug in Bug if bug.value.find is not None and "--hms" in bug.value.find.words]


def run(case):
    return run_seed(SeedJob(case=case, store=None, name="exam", run_prefix=""))


def test_all_are_here():
    assert [bug.id for bug in FOUND] == [
        "CREATE-HMS-GHOST", "HMS-CREATE-RETRY", "HMS-EXLEADER-ACK", "HMS-ORPHAN", "KUDU-2475",
        "STALE-MASTER-ADDRS",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bug", FOUND, ids=lambda bug: bug.id)
def test_every_switch_is_found_and_its_case_is_clean_without(bug):
    find = bug.value.find
    assert verdicts(run(case_of(bug, find.seed)))[find.checker] == "invalid"
    assert run(case_of(bug, find.seed, switched_on=False)).verdict == "valid"
