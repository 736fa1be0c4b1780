"""Each profile permits exactly the defects that the ledger of bugs lists for it."""

import pytest

from checkers.verdict.permitted import permit_rules
from harness.ops import CheckResult, Verdict
from harness.permits import LOST_AFTER_POWER_CUT, STALE_READ
from targets.kudu import KuduTarget
from targets.kudu.bugs import PROFILES
from targets.kudu.flags import Flags
from targets.kudu.permits import _PERMITS, _UNDONE, permits_of_profile
from tests.kudu.test_target import settings

SYNCED = Flags()
UNSYNCED = Flags(log_force_fsync_all=False)


def names(profile, flags=UNSYNCED):
    return {permit.name for permit in permits_of_profile(profile, flags)}


def test_strict_permits_nothing_whatever_is_switched_on():
    assert names("strict") == set()
    assert KuduTarget().permits(settings(bugs=("NO-LEASE",))) == []


@pytest.mark.parametrize("profile", ["modern", "legacy"])
def test_a_profile_permits_the_behaviour_of_its_rows(profile):
    rows = {permit.name for bug, permit in _PERMITS.items() if bug in PROFILES[profile]}
    rows |= {"left-undone"} if _UNDONE.keys() & PROFILES[profile] else set()
    rows |= {"evicted-first"} if profile == "legacy" else set()
    assert names(profile, SYNCED) == rows
    assert names(profile) == rows | {LOST_AFTER_POWER_CUT}
    assert STALE_READ in {p.name for p in KuduTarget().permits(settings(profile=profile))}
    synced = settings(profile=profile, kudu_flag="log_force_fsync_all=true")
    assert LOST_AFTER_POWER_CUT not in {p.name for p in KuduTarget().permits(synced)}


@pytest.mark.parametrize(
    ("profile", "checker", "rule", "verdict"),
    [
        ("legacy", "liveness", "converged", Verdict.PERMITTED),
        ("modern", "liveness", "converged", Verdict.PERMITTED),
        ("modern", "liveness", "live", Verdict.INVALID),
        ("legacy", "catalog-invariants", "named-tablets", Verdict.PERMITTED),
        ("modern", "catalog-invariants", "named-tablets", Verdict.INVALID),
        ("strict", "liveness", "converged", Verdict.INVALID),
    ],
)
def test_behaviour_of_older_profiles_convicts_newer_ones(profile, checker, rule, verdict):
    permits = {permit.name: permit for permit in permits_of_profile(profile, SYNCED)}
    result = CheckResult(checker, Verdict.INVALID, "x", details={"by_invariant": {rule: 1}})
    assert permit_rules(result, permits).verdict is verdict


@pytest.mark.parametrize("profile", ["strict", "modern", "legacy"])
def test_only_a_legacy_table_that_may_lack_servers_may_stop_all_creates(profile):
    flags = Flags(catalog_manager_check_ts_count_for_create_table=False)
    permitted = {permit.name for permit in permits_of_profile(profile, flags)}
    assert ("round-ended" in permitted) is (profile == "legacy")
    assert "round-ended" not in names(profile)


@pytest.mark.parametrize(("flags", "verdict"), [(UNSYNCED, "PERMITTED"), (SYNCED, "INVALID")])
@pytest.mark.parametrize(
    ("checker", "rule"),
    [
        ("catalog-invariants", "one-leader"),
        ("bounds", "calls of StartTabletCopy"),
        ("bounds", "copies"),
    ],
)
def test_a_configuration_is_lost_only_where_logs_are_not_synced(flags, verdict, checker, rule):
    permits = {permit.name: permit for permit in permits_of_profile("modern", flags)}
    result = CheckResult(checker, Verdict.INVALID, "x", details={"by_invariant": {rule: 1}})
    assert permit_rules(result, permits).verdict is Verdict[verdict]
