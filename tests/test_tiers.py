"""The quick tier contains every test without a heavy mark, and each may cost one second of CPU."""

import csv

import pytest

from tests import costs, requirements, tiers

pytest_plugins = ["pytester"]

THREE = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_heavy(): pass

@pytest.mark.slow
@pytest.mark.quick
def test_chosen(): pass
"""
BURNS = """
import functools, time, pytest

def burn():
    end = time.process_time() + 0.06
    while time.process_time() < end: pass

once = functools.cache(burn)

@pytest.fixture(scope="module")
def shared(): burn()

@pytest.fixture
def own(): burn()

def test_pays_for_a_cache(): once()

def test_has_a_shared_fixture(shared): pass

def test_is_expensive(own): pass

@pytest.mark.slow
def test_is_marked(): burn()
"""


@pytest.fixture
def inner(pytester, monkeypatch):
    """Return a function that runs source code as tests, with the suite's two pytest plug-ins."""
    pytester.makeini("[pytest]\nmarkers =\n    quick: q\n    slow: s\n    nightly: n\n")
    monkeypatch.setattr(costs, "LIMIT_S", 0.04)

    def go(text, *arguments):
        pytester.makepyfile(text)
        outer = ("-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:faulthandler")
        return pytester.runpytest_inprocess(
            *outer, "-p", "tests.tiers", "-p", "tests.costs", *arguments
        )

    return go


def test_all_tests_are_in_one_tier(inner):
    inner(THREE, "-m", "quick").assert_outcomes(passed=2, deselected=1)
    inner(THREE, "-m", "not quick and not nightly").assert_outcomes(passed=1, deselected=2)


def test_a_nightly_test_is_not_quick(inner):
    result = inner(THREE.replace("slow", "nightly"), "-m", "quick")
    result.stderr.fnmatch_lines("*::test_chosen is both quick and nightly: remove one mark")


def test_every_tool_is_heavy():
    assert requirements.NEEDS.keys() <= tiers.HEAVY


def test_the_profile_is_one_of_two(monkeypatch):
    monkeypatch.setenv("HARNESS_HYPOTHESIS", "ci")
    assert [tiers.examples(count) for count in (5, 300)] == [5, 300]
    monkeypatch.delenv("HARNESS_HYPOTHESIS")
    assert [tiers.examples(count) for count in (5, 300)] == [5, tiers.QUICK_EXAMPLES]
    monkeypatch.setenv("HARNESS_HYPOTHESIS", "many")
    with pytest.raises(pytest.UsageError, match="'many'"):
        tiers.examples(5)


def test_only_an_expensive_quick_test_fails_and_only_under_the_limit(inner, monkeypatch):
    monkeypatch.setenv("HARNESS_CPU_LIMIT", "1")
    result = inner(BURNS)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines("*a quick test took 0.* s of CPU*over the limit of 0.04 s*`slow`*")
    monkeypatch.delenv("HARNESS_CPU_LIMIT")
    inner(BURNS).assert_outcomes(passed=4)


def test_the_table_has_every_test_with_its_marks(inner, tmp_path):
    inner(BURNS, "--costs", str(tmp_path / "costs.csv"))
    rows = list(csv.DictReader((tmp_path / "costs.csv").read_text().splitlines()))
    assert len(rows) == 4
    by_name = {row["test"].partition("::")[2]: row for row in rows}
    assert by_name["test_is_marked"]["marks"] == "slow"
    assert float(by_name["test_is_expensive"]["cpu_s"]) >= 0.06
    assert float(by_name["test_has_a_shared_fixture"]["cpu_s"]) < 0.04
