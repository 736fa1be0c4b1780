"""What workers of pytest-xdist are given to do at once, and what they leave untold."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from tests.xdist_groups import UNITS_AT_ONCE, UNITS_LEFT, Collection, Scheduling
from tests.xdist_messages import only_news

NOTHING = {"when": "setup", "outcome": "passed", "sections": [], "user_properties": []}


def sent(name, **told):
    """Whether a message is sent, and as it was."""
    seen = []
    only_news(lambda name, **told: seen.append((name, told)))(name, **told)
    assert seen in ([], [(name, told)])
    return bool(seen)


def test_a_set_up_or_tear_down_that_passed_and_brings_nothing_is_not_told():
    assert not sent("testreport", data=NOTHING)
    assert not sent("testreport", data={**NOTHING, "when": "teardown"})
    assert not sent("logstart", nodeid="a")
    assert not sent("logfinish", nodeid="a")


def test_all_else_is_told():
    for news in (
        {"when": "call"},
        {"outcome": "failed"},
        {"outcome": "skipped"},
        {"sections": [["Captured stdout setup", "x"]]},
        {"user_properties": [["harness_run", "x"]]},
    ):
        assert sent("testreport", data={**NOTHING, **news}), news
    assert sent("runtest_protocol_complete", item_index=1, duration=0.1)
    assert sent("collectionfinish", topdir="a", ids=[])


class Worker(NamedTuple):
    send_runtest_some: Callable[[list[int]], None]


def given(*sizes):
    """How many tests each message brings, of units of these sizes, until all are given."""
    units = {
        f"unit {n}": {f"test {n}.{k}": False for k in range(size)} for n, size in enumerate(sizes)
    }
    tests = [test for unit in units.values() for test in unit]
    messages = []
    worker = Worker(messages.append)
    scheduling = Scheduling.__new__(Scheduling)
    scheduling.workqueue = OrderedDict(units)
    scheduling.assigned_work = {worker: {}}
    scheduling.registered_collections = {worker: Collection(tests)}
    while scheduling.workqueue:
        scheduling._assign_work_unit(worker)
    assert [place for message in messages for place in message] == list(range(len(tests)))
    assert scheduling.assigned_work[worker] == units
    return [len(message) for message in messages]


def test_single_tests_are_given_some_at_once_while_there_are_many():
    counts = given(*[1] * (2 * UNITS_AT_ONCE * UNITS_LEFT))
    assert counts[0] == UNITS_AT_ONCE
    assert counts == sorted(counts, reverse=True)
    assert counts[-UNITS_LEFT:] == [1] * UNITS_LEFT


def test_a_group_is_given_by_itself():
    assert given(7, 3, *[1] * UNITS_LEFT)[:3] == [7, 3, 1]
    assert given(7, 3, *[1] * (3 * UNITS_LEFT))[:3] == [7, 3, 3]
