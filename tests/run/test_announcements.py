"""Nodes announce events, but not under the names of the driver's own events."""

import pytest

from harness.cluster import CLIENT
from harness.errors import TargetError
from harness.run.announcements import DRIVER_KINDS, check_announced


@pytest.mark.parametrize("kind", sorted(DRIVER_KINDS))
def test_reserved_kinds_are_refused_with_the_node_named(kind):
    with pytest.raises(TargetError, match=rf"node 'm1' announced the event '{kind}'"):
        check_announced("m1", kind, {})


def test_a_client_may_say_that_it_overrules_votes_and_nothing_else_of_these():
    check_announced(CLIENT, "config-forced", {"group": "g"})
    for kind in DRIVER_KINDS - {"config-forced"}:
        with pytest.raises(TargetError, match="a client of the harness"):
            check_announced(CLIENT, kind, {})


@pytest.mark.parametrize("term", ["third", "3", None, 1.5, True, -1, [1]])
def test_a_term_is_a_whole_number(term):
    with pytest.raises(TargetError, match="node 'm1' announced the event 'leader' with term="):
        check_announced("m1", "leader", {"term": term})


def test_a_group_is_text():
    with pytest.raises(TargetError, match="group=7"):
        check_announced("m1", "leader", {"term": 1, "group": 7})


@pytest.mark.parametrize("data", [{}, {"term": 0}, {"term": 3, "group": "g", "main": False}])
def test_good_announcements_pass(data):
    check_announced("m1", "leader", data)
    check_announced("m1", "node-left", {"term": "third"})
    check_announced("m1", "config-overruled", {"group": "g"})
