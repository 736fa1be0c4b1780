"""`harness run --freeze` keeps a violating run's processes paused until users remove them."""

import json
import signal
from pathlib import Path

import pytest

from harness.environments import procfs
from harness.store import load_run
from tests.freeze.support import RUN, Freezing
from tests.support.cleaning import only_cleaner
from tests.support.waiting import wait_until
from tests.up.support import left_of, lose_holder

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("process")]


@pytest.fixture
def broken(tmp_path):
    runs = Freezing(tmp_path)
    yield runs
    runs.close()


def test_a_violation_pauses_all_nodes_until_they_are_thawed_and_removed(broken):
    report = broken.run("--time-limit", "60", code=1)
    frozen, record = report["frozen"], broken.record()
    assert frozen["cluster"] == "frozen"
    assert set(broken.states().values()) == {"paused"}
    stored = load_run(report["run"])
    assert stored.record.frozen == "frozen"
    (fact,) = stored.history.facts("frozen")
    assert (fact.value["checker"], fact.value["phase"]) == ("linearizable-register", "chaos")
    assert stored.history[-1] == fact
    states = json.loads((Path(frozen["states"]) / "states.json").read_text())
    assert sorted(states["roles"]["register"]) == frozen["nodes"] == ["n1", "n2", "n3"]
    assert (
        sorted(path.name for path in (Path(frozen["states"]) / "data").iterdir()) == frozen["nodes"]
    )
    assert frozen["errors"] == {}

    (healed,) = broken.call("heal", "frozen", frozen["pause"], "--json")["healed"]
    assert healed["count"] == 3
    assert set(broken.states().values()) == {"running"}
    # inject a fault by hand, as for a cluster of `harness up`
    broken.call("break", "frozen", "kill node:n1")
    broken.down("frozen")
    assert left_of(record) == []


def test_a_run_without_a_violation_leaves_no_cluster(tmp_path):
    right = Freezing(tmp_path, broken=False)
    report = right.run("--time-limit", "1", code=0)
    assert report["frozen"] is None
    assert list(load_run(report["run"]).history.facts("snapshot"))
    assert not right.folder("frozen").exists()


def test_a_killed_holder_leaves_nothing_that_is_not_removed(broken):
    broken.run("--time-limit", "60", code=1)
    record = broken.record()
    lose_holder(broken, record, with_warden=False)
    wait_until(lambda: left_of(record) == [])


def test_a_killed_command_takes_its_run_with_it(tmp_path):
    right = Freezing(tmp_path, broken=False)
    with right.started("--time-limit", "600") as run:
        wait_until(lambda: any(right.store.glob("*/latest/logs/n3.log")))
        holder = right.holder
        run.kill()
    wait_until(lambda: not procfs.is_alive(holder))
    with only_cleaner():
        right.call("clean")
    assert not right.folder("frozen").exists()


def test_ctrl_c_ends_the_workload_and_freezes_nothing(tmp_path):
    right = Freezing(tmp_path, broken=False)
    with right.started("--time-limit", "600", "--json") as run:
        wait_until(lambda: any(right.store.glob("*/latest/logs/n3.log")))
        log = next(right.store.glob("*/latest/ops.log"))
        wait_until(lambda: b'"chaos"' in log.read_bytes())
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=120)
    report = json.loads(output)
    assert (report["interrupted"], report["frozen"]) == (True, None), errors
    assert report["verdict"] != "invalid"
    assert not right.folder("frozen").exists()


def test_a_soak_stops_at_the_run_that_froze(broken):
    broken.clusters["frozen"] = None
    words = ["soak" if word == "run" else word for word in RUN if word not in {"--seed", "1"}]
    error = broken.call(
        *words, "--nemesis", "none", "--seeds", "1..3", "--store", broken.store, "--quiet", code=1
    )
    assert "a run froze" in error
    assert set(broken.states().values()) == {"paused"}
    assert len([each for each in broken.store.glob("*/2*") if not each.is_symlink()]) == 1
