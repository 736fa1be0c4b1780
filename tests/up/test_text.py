"""Texts that describe a running cluster, its faults, and the commands that heal them."""

import msgspec

from harness.cli.styles import plain
from harness.cli.up.text import (
    broken_text,
    healed_text,
    overview_text,
    standing_text,
    status_text,
)
from harness.environments.controller import Life
from harness.up.cluster import Broken, Healed, NodeStatus, StatusReport
from harness.up.records import NodeRow
from tests.up.fakes import record_of


def shown(standing):
    return plain(standing_text(standing))


def row(name, role, port, **more):
    return NodeRow(name=name, role=role, addresses={f"{name}:{port}": f"127.0.0.1:4{port}"}, **more)


STANDING = record_of(
    nodes=(
        row("m1", "master", 7051, data="/tmp/x/m1", pages="http://127.0.0.1:48051/"),
        row("t1", "tserver", 7050, data="/tmp/x/t1"),
    ),
    tools=("harness kudu --cluster dev ksck",),
)
BROKEN = Broken(id="f1", fault="kill leader", targets=("m1",), note="killed m1", left_s=30.0)
HEALED = Healed(id="f1", fault="kill leader", targets=("m1",), count=1, unit="processes")


def test_every_node_has_a_line_with_its_addresses_and_pages():
    lines = shown(STANDING)
    cells = {tuple(line.split()) for line in lines}
    assert ("m1", "master", "m1:7051", "127.0.0.1:47051", "http://127.0.0.1:48051/") in cells
    assert ("t1", "tserver", "t1:7050", "127.0.0.1:47050") in cells
    assert ("data", "/tmp/x/NODE") in cells
    assert ("end", "harness", "down", "dev") in cells
    assert ("harness", "kudu", "--cluster", "dev", "ksck") in cells


def test_without_pages_there_is_no_column_of_them():
    bare = [msgspec.structs.replace(node, pages="") for node in STANDING.nodes]
    lines = shown(msgspec.structs.replace(STANDING, nodes=tuple(bare)))
    assert [line for line in lines if "pages" in line] == []


def test_a_node_without_ports_has_a_line_too():
    bare = NodeRow(name="w1", role="worker", addresses={})
    lines = shown(msgspec.structs.replace(STANDING, nodes=(bare,)))
    assert [line.split() for line in lines if line.startswith("w1")] == [["w1", "worker"]]


def test_a_fault_says_how_it_ends():
    assert broken_text("dev", BROKEN)[1] == "it lasts 30 s, or until `harness heal dev f1`"
    for_ever = msgspec.structs.replace(BROKEN, left_s=None)
    assert broken_text("dev", for_ever)[1] == "it lasts until `harness heal dev f1`"
    over = msgspec.structs.replace(for_ever, healed=HEALED)
    assert broken_text("dev", over) == ["f1: killed m1", healed_text(HEALED)]
    done = msgspec.structs.replace(for_ever, fault="do step-down on leader")
    assert len(broken_text("dev", done)) == 1


def test_an_unmeasured_effect_is_not_reported_as_zero():
    assert "it hit 1 process" in healed_text(HEALED)
    assert "it hit 0 processes" in healed_text(msgspec.structs.replace(HEALED, count=0))
    clock = msgspec.structs.replace(HEALED, count=10_000, unit="ms")
    assert "moved by 10000 ms in total" in healed_text(clock)  # 5 s forward, and 5 s back
    assert "cannot be measured" in healed_text(msgspec.structs.replace(HEALED, count=None))


def test_status_tells_states_roles_and_faults():
    stuck = msgspec.structs.replace(BROKEN, id="f2", left_s=0.0, trouble="it resists")
    report = StatusReport(
        ready=False,
        pending=("no leader",),
        nodes=(
            NodeStatus(name="m1", state="running", roles={"catalog": "leader, term 2"}),
            NodeStatus(name="t1", state="down", roles={}),
        ),
        leaders={"catalog": "m1"},
        faults=(BROKEN, stuck),
        healed=(),
    )
    text = "\n".join(plain(status_text(STANDING, report)))
    lines = [line.split() for line in text.splitlines()]
    assert ["m1", "master", "running", "leader,", "term", "2"] in lines
    assert ["t1", "tserver", "down", "-"] in lines
    for words in ("does not serve: no leader", "on m1, 30 s left", "could not be undone: it res"):
        assert words in text


def test_an_overview_has_a_line_a_cluster():
    lines = overview_text(
        [
            ("a", Life.DEAD, None),
            ("b", Life.ALIVE, None),
            ("c", Life.UNKNOWN, None),
            ("dev", Life.ALIVE, STANDING),
        ]
    )
    assert [line.split(":")[0] for line in lines] == ["a", "b", "c", "dev"]
    assert "harness down a" in lines[0]
    assert len(overview_text([])) == 1
