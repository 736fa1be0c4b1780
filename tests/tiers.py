"""The rule of the quick tier: every test without a heavy mark gets the mark `quick`.

`pytest -m quick` runs the tier, `pytest -m "not quick and not nightly"` the rest. A test with a
heavy mark may carry `quick` as well, as a few cheap tests of real processes do.

HARNESS_HYPOTHESIS chooses the number of examples that a test draws: `quick` draws at most
`QUICK_EXAMPLES`, `ci` as many as the test asks for.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

HEAVY = frozenset({
    "browser", "docker", "etcd", "faketime", "fuse", "hive", "kdc", "kudu", "kuduclient", "lake",
    "nightly", "postgres", "process", "redis", "s3", "slow", "spark", "toxiproxy", "zookeeper",
})  # fmt: skip
QUICK_EXAMPLES = 25
PROFILES = ("quick", "ci")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items):
    """Mark the quick tests; raise an error if one of them is nightly."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "quick" not in marks:
            if HEAVY.isdisjoint(marks):
                item.add_marker("quick")
        elif "nightly" in marks:
            raise pytest.UsageError(f"{item.nodeid} is both quick and nightly: remove one mark")


def profile():
    """Return the profile of Hypothesis that HARNESS_HYPOTHESIS names."""
    name = os.environ.get("HARNESS_HYPOTHESIS", "quick")
    if name not in PROFILES:
        raise pytest.UsageError(f"HARNESS_HYPOTHESIS is {name!r}: choose quick or ci")
    return name


def examples(wanted):
    """Return the number of examples that a test which asks for `wanted` gets in the current
    profile.
    """
    return wanted if profile() == "ci" else min(wanted, QUICK_EXAMPLES)


def pytest_configure():
    """Draw the same examples every time, so that a failing suite fails again.

    HARNESS_FUZZ=1 draws new examples. There is no deadline and no health check for slow draws,
    because wall time depends more on other load than on the code.
    """
    settings.register_profile(
        profile(),
        max_examples=examples(settings.get_profile("default").max_examples),
        derandomize=os.environ.get("HARNESS_FUZZ") != "1",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile(profile())
