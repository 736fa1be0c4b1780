"""For all tests: what a test's marks say it needs is looked for; groups hold, the order varies."""

import gc
import os
import signal
import sys

import pytest

pytest_plugins = [
    "tests.async_tests",
    "tests.random_order",
    "tests.tiers",
    "tests.costs",  # after the tiers, which it imports
    "tests.xdist_groups",
    "tests.xdist_messages",
]

# The tests start interpreters by the hundred, which import the same modules: each is compiled once,
# ours with their assertions too, also where the machine's settings say otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script, which has its children ignore Ctrl-C for good; what we
    # start ourselves must not, since tests interrupt it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting makes a million objects that stay: looking through them for garbage, then and at every
# full collection of a test, costs a third of the start and finds nothing.
gc.disable()


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before any fixture is made
def pytest_runtest_setup(item):
    """Skip, or where CI demands the tool fail, a test whose tool is missing."""
    from tests.requirements import NEEDS, refusal  # which the controller of xdist has no use for

    marks = {mark.name for mark in item.iter_markers()}
    for mark in NEEDS:
        if mark not in marks:
            continue
        missing = refusal(mark, os.environ)
        if missing is not None:
            demanded, reason = missing
            (pytest.fail if demanded else pytest.skip)(reason)
