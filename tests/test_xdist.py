"""The order of tests under pytest-xdist, and how many tests each message to a worker contains."""

from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests import xdist_groups
from tests.xdist_groups import UNITS_AT_ONCE, UNITS_LEFT, Collection, Scheduling


class Worker(NamedTuple):
    send_runtest_some: Callable[[list[int]], None]


def given(*sizes):
    """Return the number of tests in each message, for units of these sizes."""
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


class Id(str):
    __slots__ = ()
    parse = classmethod(lambda cls, text: cls(text))


class Item:
    def __init__(self, nodeid, *marks):
        self._id, self.marks = Id(nodeid), marks
        self._fixtureinfo = SimpleNamespace(name2fixturedefs={})

    @property
    def nodeid(self):
        return str(self._id)

    def iter_markers(self, name=None):
        return [mark.mark for mark in self.marks if name in {None, mark.name}]


def test_the_longest_units_start_first():
    group = pytest.mark.xdist_group("g")
    items = [
        Item("plain"),
        Item("slow", pytest.mark.slow),
        Item("page", pytest.mark.slow(s=60), pytest.mark.docker),
        Item("one", group, pytest.mark.hive),
        Item("more[@]"),
        Item("two", group, pytest.mark.hive),
    ]
    config = SimpleNamespace(option=SimpleNamespace(loadgroup=True))
    xdist_groups.pytest_collection_modifyitems(config, items)
    names = [item.nodeid for item in items]
    assert names == ["one@g", "two@g", "page", "slow", "plain", "more[@]"]
