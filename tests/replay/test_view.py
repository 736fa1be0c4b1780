"""The view of a stopped simulation, such as its nodes, messages, timers and faults."""

import re

import msgspec
import pytest

from harness.replay import gather, nodes, objects
from harness.replay.objects import Objects
from harness.replay.page import page_of
from harness.replay.text import whole_text
from tests.replay.conftest import CASE, TAKEN_OVER, changed, state_of

CUT = "time=3"  # a moment while the leader is cut off


def node_named(state, name):
    return next(node for node in state.nodes if node.name == name)


def test_every_node_has_its_state(stopped):
    state = stopped(TAKEN_OVER)
    assert [node.name for node in state.nodes] == ["m1", "m2", "m3", "t1", "t2", "t3"]
    leader = node_named(state, state.moment.node)
    assert (leader.pages["/"]["role"], leader.pages["/"]["term"]) == ("LEADER", 2)
    assert "tables" in leader.pages["/dump-entities"]
    assert "tablets" in node_named(state, "t1").pages["/tablets"]


def test_objects_of_the_target_are_read_field_by_field(stopped):
    state = stopped(TAKEN_OVER)
    objects = {each.name: each.fields for each in node_named(state, state.moment.node).objects}
    assert objects["RaftState"]["term"] == "2"
    assert "base" in objects["MemoryLog"]
    assert "tables" in objects["Catalog"]


def test_tasks_say_where_they_wait(stopped):
    tasks = {task.name: task for task in node_named(stopped("time=3"), "t3").tasks}
    assert re.fullmatch(r"targets\.kudu\.tserver\.node\.main:\d+", tasks["main"].stack[0])
    assert re.fullmatch(r"3\.\d{6} s", tasks["heartbeat-m1:7051"].waits_for)


def test_files_show_their_durable_part():
    slow = changed(CASE, knobs={"disk_ms_min": 50.0, "disk_ms_max": 50.0})
    led_s = state_of(slow, "event=leader,node=m2").moment.time_s
    sizes = []
    for later_s in (0.02, 0.2):
        state = state_of(slow, f"time={led_s + later_s}")
        files = {file.path: file for file in node_named(state, "m2").files}
        wal = files["sys-catalog/wal-0000000001"]
        assert wal.unsynced_writes > 0
        sizes.append((wal.synced_bytes, wal.bytes))
    (nothing, written), (synced, all_bytes) = sizes
    assert 0 == nothing < written <= synced < all_bytes


def test_messages_have_sender_type_and_arrival(stopped):
    state = stopped(TAKEN_OVER)
    flying = [m for m in state.messages if m.state == "in flight"]
    assert flying
    assert all(m.arrives_s >= state.moment.time_s for m in flying)
    assert any("Service." in m.what for m in state.messages)


def test_timers_are_sorted_and_name_their_tasks(stopped):
    timers = stopped("time=3").timers
    assert [t.at_s for t in timers] == sorted(t.at_s for t in timers)
    assert any(t.task is not None and t.task.startswith("heartbeat-") for t in timers)


def test_a_cut_shows_as_fault_as_links_and_as_held_messages(stopped):
    state = stopped(CUT)
    (fault,) = state.faults
    assert fault.kind == "cut"
    (target,) = fault.targets
    assert all(link.blocked and link.faults == [fault.id] for link in state.links)
    assert all(target in link.link for link in state.links)
    held = [m for m in state.messages if m.state == "held"]
    assert held
    assert all(target in {m.source, m.destination} for m in held)
    assert all(m.arrives_s is None for m in held)


def test_a_node_that_is_down_has_a_disk_and_no_tasks():
    state = state_of(changed(CASE, nemeses=("kill-leader",)), "event=node-exited")
    node = node_named(state, state.moment.node)
    assert (node.state, node.tasks, node.pages) == ("down", [], {})
    assert node.files


def test_nothing_depends_on_addresses(stopped):
    text = msgspec.json.encode(stopped(CUT)).decode()
    assert not re.search(r"0x[0-9a-f]{8,}", text)


def test_values_are_bounded_and_sets_are_sorted():
    objects = Objects()
    assert objects.text({"b", "a", "c"}) == "{'a', 'b', 'c'}"
    assert objects.text(list(range(100))).endswith("... 88 more]")
    assert len(objects.text("x" * 1000)) == 300
    deep = []
    for _ in range(50):
        deep = [deep]
    assert len(objects.text(deep)) < 40


@pytest.mark.parametrize(
    ("module", "limit", "name", "of_node"),
    [
        (gather, "MESSAGES_MAX", "messages", False),
        (gather, "TIMERS_MAX", "timers", False),
        (nodes, "TASKS_MAX", "tasks", True),
        (nodes, "FILES_MAX", "files", True),
        (objects, "OBJECTS_MAX", "objects", True),
    ],
)
def test_a_list_that_reaches_its_limit_says_how_much_it_lacks(
    stopped, monkeypatch, module, limit, name, of_node
):
    def lists_of(state):
        return node_named(state, "m2") if of_node else state

    whole = stopped(CUT)
    assert lists_of(whole).left_out.get(name, 0) == 0 or name == "objects"
    monkeypatch.setattr(module, limit, 1)
    cut = state_of(CASE, CUT)
    lacks = lists_of(cut).left_out[name]
    assert len(getattr(lists_of(cut), name)) == 1
    if name != "objects":
        assert 1 + lacks == len(getattr(lists_of(whole), name))
    assert f"{lacks} more were not read" in "\n".join(whole_text(cut, full=True))
    assert f"{lacks} more were not read" in page_of(cut)


def test_text_and_page_show_all_parts(stopped):
    state = stopped(CUT)
    text, page = "\n".join(whole_text(state)), page_of(state)
    for part in ("partition-leader-1", "heartbeat-", "sys-catalog/", state.operations[0].f):
        assert part in text
        assert part in page
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page


def test_a_page_escapes_output_of_nodes(stopped):
    state = stopped("time=3")
    evil = msgspec.structs.replace(state.nodes[0], log=["<script>alert(1)</script>"])
    assert "<script" not in page_of(msgspec.structs.replace(state, nodes=[evil]))
