"""The ledger of bug switches matches the code, and the checkers find every switch."""

import importlib
import re

import pytest

from harness.errors import UsageError
from harness.plugins import TargetSettings
from harness.plugins.options import with_defaults
from targets.hive import HiveTarget
from targets.hive.bugs import BUGS, PROFILES, Bug, bugs_of
from tests.hive.runs import run, verdicts
from tests.support.ledgers import asked

FOUND = [bug for bug in Bug if bug.value.find is not None]


def test_every_row_says_where_it_is_in_our_code():
    assert {bug.name: set(bug.value.where) for bug in Bug} == asked("hive")
    for bug in Bug:
        for module in bug.value.where:
            importlib.import_module(module)


def test_rows_are_complete():
    assert len({bug.value for bug in Bug}) == len(Bug.__members__) == len(BUGS)
    for bug in Bug:
        row = bug.value
        assert row.title, bug.id
        assert row.upstream, bug.id
        assert re.fullmatch(r"open.*|later.*", row.fixed), bug.id
        assert set(row.profiles) <= {"hive2.3", "hive4"}, bug.id


def test_profiles_are_sets_of_rows():
    assert PROFILES["strict"] == frozenset()
    assert PROFILES["hive4"] < PROFILES["hive2.3"]
    assert PROFILES["hive2.3"] - PROFILES["hive4"] == {Bug.DROP_RENAME}
    assert bugs_of("strict", ("DROP-DROP",)) == {Bug.DROP_DROP}
    assert tuple(PROFILES) == HiveTarget.profiles
    for profile, ids in (("ancient", ()), ("strict", ("DROP_DROP",))):
        with pytest.raises(UsageError):
            bugs_of(profile, ids)


@pytest.mark.parametrize(
    ("profile", "permitted"),
    [
        ("strict", []),
        ("hive2.3", ["ddl-twice", "drop-renamed", "drop-twice", "failback-flap",
                     "instance-clocks", "token-memory", "token-renew-gap"]),
        ("hive4", ["ddl-twice", "drop-twice", "failback-flap", "instance-clocks",
                   "token-memory", "token-renew-gap"]),
    ],
)  # fmt: skip
def test_permits_are_those_of_the_profile_alone(profile, permitted):
    def permits(**options):
        given = with_defaults("target", "hive", HiveTarget.options, options)
        bugs = ("HIVE-15424", "DROP-RENAME")
        settings = TargetSettings(profile=profile, bugs=bugs, options=given)
        return [permit.name for permit in HiveTarget().permits(settings)]

    assert permits() == permitted
    shared = permits(token_store="db")
    assert shared == [name for name in permitted if name != "token-memory"]
    assert permits(token_store="memory") == permitted


@pytest.mark.slow
@pytest.mark.parametrize("bug", FOUND, ids=lambda bug: bug.id)
def test_every_switch_is_found_and_its_case_is_clean_without(bug):
    find = bug.value.find
    result = run(f"--bug {bug.id} {find.words}", find.seed)
    assert verdicts(result)[find.checker] == "invalid"
    assert run(find.words, find.seed).verdict == "valid"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "permits"), [("hive2.3", {"drop-twice", "drop-renamed"}), ("hive4", {"drop-twice"})]
)
def test_behaviour_of_a_profile_is_reported_as_permitted(profile, permits):
    result = run(f"--profile {profile} --time-limit 20")
    assert result.verdict == "permitted"
    assert {*result.permitted} <= permits
    assert "drop-twice" in result.permitted


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["hive2.3", "hive4"])
def test_tokens_in_memory_are_permitted_where_they_are_usual(profile):
    words = "--workload hms-tokens --time-limit 20"
    result = run(f"{words} --profile {profile}")
    assert result.verdict == "permitted"
    assert {*result.permitted} == {"token-memory", "token-renew-gap"}
    shared = run(f"{words} --profile {profile} --token-store db")
    assert {*shared.permitted} == {"token-renew-gap"}
    assert verdicts(run(f"{words} --token-store memory"))["hms-tokens"] == "invalid"
    strict = run(f"{words} --token-store db --nemesis kill,pause,partition,clock", 2)
    assert strict.verdict == "valid"


@pytest.mark.slow
@pytest.mark.parametrize("bug", [Bug.HIVE_15424, Bug.CACHED_STORE], ids=lambda bug: bug.id)
def test_a_profile_excuses_no_switch(bug):
    words = f"--profile hive2.3 --bug {bug.id} --time-limit 10"
    assert verdicts(run(words))["linearizable-hms"] == "invalid"


@pytest.mark.slow
def test_without_fsync_a_power_cut_convicts():
    words = "--nemesis power-cut-database --interval 4 --duration 1 --time-limit 30"
    assert run(words, 2).verdict == "valid"
    lost = run(f"--no-fsync {words}", 2)
    assert verdicts(lost)["linearizable-hms"] == "invalid"
