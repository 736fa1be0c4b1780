"""The certificate sums up what a run tested. A run that tested too little is `unknown`."""

from typing import Any

import pytest

from harness.ops import CheckResult, Verdict
from harness.verdict.coverage import certified, weighed

VALID, UNKNOWN, INVALID = Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID


def stats(verdict: Verdict = VALID) -> CheckResult:
    return CheckResult("stats", verdict, "as it was", details={"certificate": {"ok": 3}})


def catalog(looked: Any, exempt: Any, verdict: Verdict = VALID) -> CheckResult:
    return CheckResult("catalog", verdict, "", details={"looked": looked, "exempt": exempt})


@pytest.mark.parametrize(
    ("looked", "exempt", "verdict"),
    [
        ({"acknowledged": 5, "ids": 9}, {"acknowledged": 5}, VALID),
        ({"acknowledged": 4, "ids": 9}, {"acknowledged": 5}, UNKNOWN),
        ({"ids": 9}, {"acknowledged": 1}, UNKNOWN),
        ({"acknowledged": 0}, {"acknowledged": 0}, UNKNOWN),
        ({"acknowledged": 1}, {}, VALID),
        ("many", None, VALID),
    ],
)
def test_a_check_that_exempts_most_operations_proves_too_little(
    looked: Any, exempt: Any, verdict: Verdict
) -> None:
    result = weighed(catalog(looked, exempt))
    assert result.verdict is verdict
    assert (result.details.get("rule") == "exempt") is (verdict is UNKNOWN)


@pytest.mark.parametrize("verdict", [UNKNOWN, INVALID])
def test_results_that_are_not_valid_keep_their_verdict(verdict: Verdict) -> None:
    result = catalog({"ids": 9}, {"acknowledged": 1}, verdict)
    assert weighed(result) == result


def test_the_certificate_lists_the_coverage_of_every_checker() -> None:
    results = certified([catalog({"a": 1, "b": 2}, {"a": 1}), stats(), catalog("many", None)])
    assert results[1].details["certificate"] == {
        "ok": 3,
        "looked": {"catalog": "3 judged, 1 exempt"},
    }


def test_without_counts_all_stays_as_it_is() -> None:
    results = [stats(), CheckResult("crash", VALID, "")]
    assert certified(results) == results
