"""Sets up all tests: checks required tools, forms groups for xdist, and shuffles the tests."""

import gc
import os
import signal
import sys

import pytest

pytest_plugins = [
    "tests.async_tests",
    "tests.random_order",
    "tests.tiers",
    "tests.costs",  # must follow `tests.tiers`, which it imports
    "tests.xdist_groups",
]

# The tests start hundreds of interpreters that import the same modules. Write byte code, even if
# the machine's settings forbid it, so that each module is compiled only once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts pytest in the background makes it and its children ignore Ctrl-C, but some
    # tests interrupt their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting tests creates a million permanent objects; searching them for garbage takes a third of
# the start-up time.
gc.disable()


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before any fixture is made
def pytest_runtest_setup(item):
    """Skip a test whose tool is missing, or fail it if CI demands the tool."""
    from tests.requirements import NEEDS, refusal  # not needed by xdist's controller

    marks = {mark.name for mark in item.iter_markers()}
    for mark in NEEDS:
        if mark not in marks:
            continue
        missing = refusal(mark, os.environ)
        if missing is not None:
            demanded, reason = missing
            (pytest.fail if demanded else pytest.skip)(reason)
