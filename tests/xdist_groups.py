"""`--dist loadgroup` with the versions we have: tests of one `xdist_group` on one worker.

pytest-xdist 3.8 tells the groups to its scheduler by a suffix of the node id, which it writes into
`Item._nodeid`. pytest 9.2 keeps the id in `Item._id` and never reads the other, so groups were
silently ignored: tests that must not run at once did. This writes the suffix where it is read.

Tests that share what is started or built once (a browser, a store) are a group too: on two workers
it would be started twice.

The scheduler of xdist also counts through all units of work after each test, those done included,
looks through all tests for the place of the next, and sends it by itself. Most of our tests are a
unit of their own: with thousands of them that takes seconds.
"""

import pytest
from xdist.scheduler import LoadGroupScheduling

UNITS_AT_ONCE = 16
UNITS_LEFT = 100
"""One is sent for so many that are left, so that all workers have something to do to the end."""


class Collection(list):
    """Tests by id, which knows where each of them stands."""

    def __init__(self, ids):
        super().__init__(ids)
        self._places = {nodeid: place for place, nodeid in enumerate(ids)}

    def index(self, nodeid):
        """The place of a test."""
        return self._places[nodeid]


class Scheduling(LoadGroupScheduling):
    """Forgets what is done, finds what is next without a search, and sends some at once."""

    def add_node_collection(self, node, collection):
        """Take the tests that a worker collected."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Collection(collection)

    def _assign_work_unit(self, node):
        """Give a worker the next unit, and if that is one test, some more of these."""
        places = self.registered_collections[node]
        tests = []
        for _ in range(max(1, min(UNITS_AT_ONCE, len(self.workqueue) // UNITS_LEFT))):
            scope, unit = self.workqueue.popitem(last=False)  # the largest are the first
            self.assigned_work[node][scope] = unit
            tests += [places.index(nodeid) for nodeid, done in unit.items() if not done]
            if len(unit) > 1:
                break
        node.send_runtest_some(tests)

    def mark_test_complete(self, node, item_index, duration=0):
        """Mark the test; its unit is dropped after its last one."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        units = self.assigned_work[node]
        if all(units[scope].values()):
            del units[scope]


@pytest.hookimpl(optionalhook=True)  # without xdist nobody asks
def pytest_xdist_make_scheduler(config, log):
    """For `--dist loadgroup`; xdist has its own for the others."""
    return Scheduling(config, log) if config.option.dist == "loadgroup" else None


@pytest.hookimpl(trylast=True)  # after xdist's own attempt, which may work again some day
def pytest_collection_modifyitems(config, items):
    """Write the groups into the ids, in workers of a run with `--dist loadgroup`."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        marks = item.iter_markers("xdist_group")
        groups = {str((*mark.args, mark.kwargs.get("name", "default"))[0]) for mark in marks}
        suffix = f"@{'_'.join(sorted(groups)) or shared_by(item)}"
        if suffix != "@" and not item.nodeid.endswith(suffix):
            item._id = type(item._id).parse(item.nodeid + suffix)


def shared_by(item):
    """The module or folder whose tests share a fixture with this one, or ""."""
    for scope in ("session", "package", "module"):
        for made in item._fixtureinfo.name2fixturedefs.values():
            if made[-1].scope == scope and made[-1].baseid:  # not of pytest or another plug-in
                return item.nodeid.partition("::")[0] if scope == "module" else made[-1].baseid
    return ""
