"""Set-up of all tests: tools that marks ask for, groups that hold, an order that varies."""

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
]

# The tests start hundreds of interpreters that import the same modules: each module is compiled
# once, whatever the machine's settings say.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script that runs pytest in the background makes it ignore Ctrl-C, and so its children would,
    # which tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting makes a million objects that stay: searching them for garbage, now and in every full
# collection later, costs a third of the start.
gc.disable()


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before any fixture is made
def pytest_runtest_setup(item):
    """Skip, or where CI demands the tool fail, a test whose tool is missing."""
    from tests.requirements import NEEDS, refusal  # not needed by xdist's controller

    marks = {mark.name for mark in item.iter_markers()}
    for mark in NEEDS:
        if mark not in marks:
            continue
        missing = refusal(mark, os.environ)
        if missing is not None:
            demanded, reason = missing
            (pytest.fail if demanded else pytest.skip)(reason)
