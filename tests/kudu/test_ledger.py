"""The ledger of bug switches lists exactly the switches that the target's code uses."""

import importlib
import re

import pytest

from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from results.exam.rows import case_of, words_of
from targets.kudu import KuduTarget
from targets.kudu.bugs import BUGS, FLAGS, PROFILES, Bug, bugs_of
from targets.kudu.flags import Flags, parse_flags
from tests.support.ledgers import asked

FOUND = [bug for bug in KuduTarget().switches() if bug.options is not None]


def test_every_row_says_where_it_is_in_our_code():
    assert {bug.name: set(bug.value.where) for bug in Bug} == asked("kudu")
    for bug in Bug:
        for module in bug.value.where:
            importlib.import_module(module)


def test_rows_are_complete():
    assert len({bug.value for bug in Bug}) == len(Bug.__members__) == len(BUGS)
    for bug in Bug:
        row = bug.value
        assert row.title, bug.id
        assert row.upstream, bug.id
        assert re.fullmatch(r"open.*|20\d\d(-\d\d){0,2}.*", row.fixed), bug.id
        assert set(row.profiles) <= {"legacy", "modern"}, bug.id


def test_the_legacy_profile_includes_the_modern_one():
    assert PROFILES["strict"] == frozenset()
    worse_once = {Bug.LEADER_FLAP_ABA}
    assert PROFILES["modern"] - worse_once < PROFILES["legacy"]
    assert tuple(PROFILES) == tuple(FLAGS) == KuduTarget.profiles
    for bug in PROFILES["modern"]:
        assert bug.value.fixed.startswith("open"), bug.id


def test_switches_come_on_top_of_a_profile():
    assert bugs_of("strict", ()) == frozenset()
    assert bugs_of("strict", ("KUDU-765",)) == {Bug.KUDU_765}
    assert bugs_of("modern", ("KUDU-765",)) == PROFILES["modern"] | {Bug.KUDU_765}


@pytest.mark.parametrize(("profile", "ids"), [("ancient", ()), ("strict", ("KUDU_765",))])
def test_unknown_names_are_usage_errors(profile, ids):
    with pytest.raises(UsageError):
        bugs_of(profile, ids)


@pytest.mark.parametrize("profile", PROFILES)
def test_flags_of_a_profile_are_defaults_only(profile):
    usual = FLAGS[profile]
    flags = parse_flags("log_force_fsync_all=true,heartbeat_interval_ms=100", usual)
    assert flags.log_force_fsync_all
    assert flags.heartbeat_interval_ms == 100
    for name, value in usual.items():
        assert getattr(parse_flags("", usual), name) is value is not getattr(Flags(), name)


@pytest.mark.parametrize("bug", FOUND, ids=lambda bug: bug.id)
def test_the_case_of_a_row_can_be_run(bug):
    case = case_of(words_of("kudu", bug), bug.seed)
    assert bug.id in case.bugs
    plan = plan_case(case, load_plugin("environments", "sim"))
    assert bug.checker in {checker.name for checker in plan.checkers}
    assert bug.id not in case_of(words_of("kudu", bug, switched_on=False)).bugs
