"""Keeps the tests of one `xdist_group` on one worker, and starts the longest tests first.

pytest-xdist 3.8 passes the group to its scheduler as a suffix of the node id, which it writes into
`Item._nodeid`. pytest 9.2 keeps the id in `Item._id` and never reads the other field. Groups were
therefore ignored, and tests that exclude each other ran at the same time. This module writes the
suffix into the field that pytest reads. Tests that share an expensive fixture (a browser, a store)
also form a group, because two workers would start the fixture twice.

After each test, the scheduler of xdist counts all units of work, searches all tests for the next
unit, and sends this unit alone. Most tests are separate units, and with thousands of units this
takes seconds. `Scheduling` is faster.

xdist starts the units with the most tests first. Here, those that will probably take the longest
start first, so that at the end no worker is alone with a run of several minutes.
"""

from collections import defaultdict

import pytest
from xdist.scheduler import LoadGroupScheduling

SECONDS = {"hive": 40.0, "docker": 15.0, "spark": 15.0, "browser": 5.0, "process": 5.0, "slow": 3.0}
"""The seconds that a test with each mark takes; `slow(s=60)` states the seconds of one test."""
SECONDS_OF_OTHERS = 0.1
UNITS_AT_ONCE = 16
UNITS_LEFT = 500
"""A worker gets one test at once per this number of remaining units.

Near the end, tests are therefore sent one by one, so that no worker is left with several long
tests.
"""


class Collection(list):
    """A collection of test ids that finds the position of an id quickly."""

    def __init__(self, ids):
        super().__init__(ids)
        self._places = {nodeid: place for place, nodeid in enumerate(ids)}

    def index(self, nodeid):
        return self._places[nodeid]


class Scheduling(LoadGroupScheduling):
    """A scheduler that drops finished units, finds the next one directly, and sends several."""

    def add_node_collection(self, node, collection):
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Collection(collection)

    def _assign_work_unit(self, node):
        """Give a worker the next unit; if it is a single test, add more single tests."""
        places = self.registered_collections[node]
        tests = []
        for _ in range(max(1, min(UNITS_AT_ONCE, len(self.workqueue) // UNITS_LEFT))):
            scope, unit = self.workqueue.popitem(last=False)  # the largest units come first
            self.assigned_work[node][scope] = unit
            tests += [places.index(nodeid) for nodeid, done in unit.items() if not done]
            if len(unit) > 1:
                break
        node.send_runtest_some(tests)

    def mark_test_complete(self, node, item_index, duration=0):
        """Mark the test as done; drop its unit after the unit's last test."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        units = self.assigned_work[node]
        if all(units[scope].values()):
            del units[scope]


@pytest.hookimpl(optionalhook=True)  # without xdist, the hook is unused
def pytest_xdist_make_scheduler(config, log):
    """Return the scheduler of `--dist loadgroup`; xdist provides the others."""
    if config.option.dist != "loadgroup":
        return None
    config.option.loadscopereorder = False  # the workers already order the units
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)  # after xdist's own attempt, which may work in a later version
def pytest_collection_modifyitems(config, items):
    """Write the groups into the ids and order them, in workers with `--dist loadgroup`."""
    if not getattr(config.option, "loadgroup", False):
        return
    seconds = defaultdict(float)
    for item in items:
        marks = item.iter_markers("xdist_group")
        groups = {str((*mark.args, mark.kwargs.get("name", "default"))[0]) for mark in marks}
        suffix = f"@{'_'.join(sorted(groups)) or shared_by(item)}"
        if suffix != "@" and not item.nodeid.endswith(suffix):
            item._id = type(item._id).parse(item.nodeid + suffix)
        seconds[unit_of(item)] += seconds_of(item)
    items.sort(key=lambda item: -seconds[unit_of(item)])


def unit_of(item):
    """Return the group of a test, or the test itself if it has none."""
    name = item.nodeid
    return name[name.rfind("@") :] if name.rfind("@") > name.rfind("]") else name


def seconds_of(item):
    return max(
        (
            mark.kwargs.get("s", SECONDS.get(mark.name, SECONDS_OF_OTHERS))
            for mark in item.iter_markers()
        ),
        default=SECONDS_OF_OTHERS,
    )


def shared_by(item):
    """Return the module or folder whose tests share a fixture with this one, or ""."""
    for scope in ("session", "package", "module"):
        for made in item._fixtureinfo.name2fixturedefs.values():
            # not a fixture of pytest or another plug-in
            if made[-1].scope == scope and made[-1].baseid:
                return item.nodeid.partition("::")[0] if scope == "module" else made[-1].baseid
    return ""
