"""Checkers judge prefixes of a history, in which some violations stay violations."""

import pytest

from harness.case import Case
from harness.errors import UsageError
from harness.freeze.prefix import find_violation, prefix_checkers
from harness.ops import Op, OpType
from harness.plan.planning import plan_case
from harness.registry import load_all, load_plugin
from harness.run.phases import conduct
from harness.store.oplog import OpLog, OpTail

CERTAIN = {
    "counter",
    "elle-list-append",
    "g2",
    "linearizable-catalog",
    "linearizable-hms",
    "linearizable-register",
    "linearizable-registers",
    "linearizable-rows",
    "members",
    "read-your-writes",
    "staleness",
    "unique-ids",
}
CUTS = 6


def first_parts(history):
    ops = list(history)
    return [ops[: len(ops) * number // CUTS] for number in range(1, CUTS + 1)]


def conducted(**fields):
    plan = plan_case(Case(**fields), load_plugin("environments", "sim"))
    return plan, conduct(plan, load_plugin("environments", "sim"), run_id="t", folder=None).history


def test_only_checkers_that_were_made_for_it_judge_first_parts():
    able = {name for name, checker in load_all("checkers") if checker.judges_prefixes}
    assert able == CERTAIN


def test_a_case_without_such_a_checker_cannot_freeze():
    with pytest.raises(UsageError, match="liveness"):
        prefix_checkers([load_plugin("checkers", "liveness"), load_plugin("checkers", "bounds")])


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["ddl", "rows"])
def test_no_first_part_of_a_sound_run_is_blamed(workload):
    fields = {"profile": "strict", "time_limit_s": 8.0, "interval_s": 3.0, "duration_s": 2.0}
    plan, history = conducted(
        seed=3, workload=workload, nemeses=("partition-leader", "kill-leader"), **fields
    )
    checkers = prefix_checkers(plan.checkers)
    for part in first_parts(history):
        assert find_violation(part, plan.case, checkers) is None


@pytest.mark.slow
def test_a_violation_in_a_first_part_stays_one():
    plan, history = conducted(
        seed=1, nemeses=("partition-leader",), bugs=("NO-LEASE",), time_limit_s=12.0
    )
    checkers = prefix_checkers(plan.checkers)
    found = [find_violation(part, plan.case, checkers) for part in first_parts(history)]
    first = next(number for number, each in enumerate(found) if each is not None)
    assert 0 < first < CUTS - 1
    assert None not in found[first:]
    assert found[first].rule == "stale-read"


def test_a_log_is_followed_while_it_is_written(tmp_path):
    path = tmp_path / "ops.log"
    tail = OpTail(path)
    assert tail.read() == []
    log = OpLog(path)
    ops = [Op(number, number, 0, OpType.INFO, "note", {"text": "x" * 50}) for number in range(4)]
    log.append(ops[0])
    log.append(ops[1])
    assert tail.read() == ops[:2]
    log.append(ops[2])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # the next record is only partly written
    assert tail.read() == []
    path.write_bytes(whole)
    log.append(ops[3])
    assert tail.read() == ops[2:]
