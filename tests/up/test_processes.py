"""`harness up` keeps clusters of processes running, which users break, heal and remove."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from harness.environments import procfs
from harness.environments.controller import Controller
from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED, EXIT_USAGE
from tests.docs.pages import ROOT
from tests.process.conftest import processes_of
from tests.support.cleaning import only_cleaner
from tests.support.waiting import wait_until
from tests.up.support import (
    addresses_of,
    ask_from_outside,
    clusters,
    holder_of,
    keep_and_go_on,
    left_of,
    lose_holder,
    see_pages,
)

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("process")]
SMALL = ("--masters", "1", "--tservers", "1")


@pytest.fixture
def up(tmp_path):
    with clusters("process", tmp_path) as found:
        yield found


def test_it_stays_is_broken_and_healed_and_leaves_nothing(up):
    cluster = up.start()
    name = cluster["name"]
    assert [node["name"] for node in cluster["nodes"]] == ["m1", "m2", "m3", "t1", "t2", "t3"]
    ask_from_outside(addresses_of(cluster))
    see_pages(*(node["pages"] for node in cluster["nodes"]))

    broken = up.call("break", name, "kill leader", "--json")
    (leader,) = broken["targets"]
    status = up.call("status", name, "--json")["status"]
    states = {node["name"]: node["state"] for node in status["nodes"]}
    assert [each for each, state in states.items() if state != "running"] == [leader]
    assert [fault["id"] for fault in status["faults"]] == [broken["id"]] == ["f1"]

    cut = up.call("break", name, "cut node:t1 from members", "--for", "300ms", "--json")
    wait_until(lambda: len(up.call("status", name, "--json")["status"]["faults"]) == 1)
    assert up.call("status", name, "--json")["status"]["healed"][0]["id"] == cut["id"]

    (healed,) = up.call("heal", name, broken["id"], "--json")["healed"]
    assert [healed["count"], healed["unit"]] == [1, "processes"]
    ask_from_outside(addresses_of(cluster))
    assert up.down(name) == f"{name} is down\n"
    assert left_of(cluster) == []


def test_several_stand_at_once_each_under_its_name(up):
    first, second = up.start(*SMALL), up.start(*SMALL)
    names = sorted([first["name"], second["name"]])
    listed = up.call("status", "--json")["clusters"]
    assert [row["name"] for row in listed] == names
    assert "is running already" in up.call(
        "up", "--env", "process", "--name", first["name"], code=EXIT_USAGE
    )
    assert "several clusters" in up.call("down", code=EXIT_USAGE)
    told = up.clean()
    assert all(f"`harness down {name}`" in told for name in names)
    up.down(first["name"])
    assert left_of(first) == []
    assert up.call("status", "--json")["cluster"]["name"] == second["name"]


@pytest.mark.parametrize("with_warden", [False, True])
def test_a_killed_holder_leaves_nothing_that_is_not_removed(with_warden, up):
    cluster, other = up.start(*SMALL), up.start(*SMALL)
    up.call("break", cluster["name"], "pause all")
    lose_holder(up, cluster, with_warden=with_warden)
    wait_until(lambda: left_of(cluster) == [])  # the warden may still be ending
    assert up.call("status", other["name"], "--json")["status"]["ready"]


def test_a_holder_that_ends_takes_all_with_it(up):
    cluster = up.start(*SMALL)
    procfs.send(holder_of(cluster), signal.SIGTERM)
    wait_until(lambda: left_of(cluster) == [cluster["folder"]])
    assert "signal" in up.call("status", code=EXIT_CRASH)


def test_a_cluster_whose_folder_is_gone_is_not_left_standing(up):
    cluster = up.start(*SMALL)
    shutil.rmtree(cluster["folder"])
    wait_until(lambda: left_of(cluster) == [])


def test_a_node_may_be_broken_when_it_is_taken_down(up):
    cluster = up.start(*SMALL)
    up.call("break", "pause role:tserver")
    up.call("break", "cut node:m1 from others")
    up.call("break", "disk role:master delay=50ms")
    up.down(cluster["name"])
    assert left_of(cluster) == []


def test_a_cluster_goes_on_from_the_data_that_were_kept(up):
    assert keep_and_go_on(up) == []
    (kept,) = (up.home / "catalog-harness" / "kept").iterdir()
    for node in ("m1", "t1"):
        assert (kept / "data" / node / "instance").is_file()
        assert (kept / "logs" / f"{node}.log").stat().st_size > 0
    (name,) = up.clusters
    assert "m1, m2" in up.call("up", "--masters", "3", "--name", name, code=EXIT_USAGE)


def test_data_are_kept_or_it_is_said_that_they_are_not(up):
    cluster = up.start(*SMALL)
    name = cluster["name"]
    with only_cleaner():
        procfs.send(holder_of(cluster), signal.SIGKILL)
        wait_until(lambda: not procfs.is_alive(holder_of(cluster)))
        assert "nothing is kept" in up.call("down", name, "--keep-data", code=EXIT_CRASH)
    assert not (up.home / "catalog-harness" / "kept").exists()


def interrupted_start(up, name, moment):
    """Interrupt an `up` as soon as `moment(order)` holds; return how it ended."""
    program, variables = up.program("up", "--env", "process", "--name", name)
    up.clusters[name] = None
    process = subprocess.Popen(program, env={**os.environ, **variables})
    order = up.folder(name) / "order.json"
    wait_until(order.exists)
    run_id = json.loads(order.read_text())["run_id"]
    wait_until(lambda: moment(run_id))
    process.send_signal(signal.SIGINT)
    return run_id, process.wait(60)


@pytest.mark.parametrize("count", [0, 4])
def test_an_interrupt_while_it_starts_leaves_nothing(count, up):
    name = f"t-interrupted-{count}"
    run_id, code = interrupted_start(up, name, lambda run_id: len(processes_of(run_id)) >= count)
    assert code == EXIT_INTERRUPTED
    wait_until(lambda: processes_of(run_id) == [])
    assert not up.folder(name).exists()


def test_a_starter_that_is_killed_takes_all_with_it(up):
    name = "t-starter"
    program, variables = up.program("up", "--env", "process", "--name", name)
    up.clusters[name] = None
    process = subprocess.Popen(program, env={**os.environ, **variables})
    owner = up.folder(name) / "owner"

    def held():
        try:
            return Controller.parse(owner.read_text().split()[0]).process.pid != process.pid
        except (OSError, ValueError):
            return False

    wait_until(held)
    holder = Controller.parse(owner.read_text().split()[0]).process
    run_id = json.loads((up.folder(name) / "order.json").read_text())["run_id"]
    process.kill()
    process.wait()
    wait_until(lambda: not procfs.is_alive(holder))
    wait_until(lambda: processes_of(run_id) == [])
    up.clean()
    assert not up.folder(name).exists()


def test_a_failed_start_is_reported_and_leaves_nothing(up):
    system = ROOT / "examples" / "etcd" / "etcd.toml"
    words = ("up", "--env", "process", "--name", "t-never", "--system", str(system))
    assert "etcd" in up.call(*words, code=EXIT_USAGE, PATH="/nowhere")
    assert not up.folder("t-never").exists()
