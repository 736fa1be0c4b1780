"""If the driver dies, no node stays cut off, paused or running. Other runs are unaffected."""

import json
import os
import signal
import socket
import struct
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.environments import procfs
from harness.environments.controller import this_controller
from harness.environments.process import ProcessEnvironment
from harness.environments.scratch import OWNER_FILE, SCRATCH_PREFIX
from tests.process.conftest import controller, processes_of, roles_of
from tests.support.cleaning import kill_at_once, only_cleaner
from tests.support.waiting import LIMIT_S, wait_until
from tests.toxiproxy.conftest import serving

pytestmark = pytest.mark.process


@contextmanager
def controlled(run_id: str, lease_s: float, link_proxy: str = "-", *more: str):
    words = ("-m", "tests.process.controller", run_id, lease_s, link_proxy, *more)
    with controller(run_id, *words) as (process, line):
        host, port = line.split()
        yield process, (host, int(port))


def scratch_of(run_id: str) -> list[Path]:
    return list(Path("/tmp").glob(f"harness-process-{run_id}-*"))


def greet(address: tuple[str, int], for_s: float) -> bytes:
    """Open a connection as a node would. Raises `TimeoutError` across a cut."""
    with socket.create_connection(address, 5) as conn:
        conn.settimeout(for_s)
        greeting = b"harness/1 test"
        conn.sendall(struct.pack(">I", len(greeting)) + greeting)
        return conn.recv(100)


def state(pid: int) -> str | None:
    process = procfs.identify(pid)
    return None if process is None else procfs.state(process)


def test_a_killed_controller_leaves_nothing(request):
    run_id = f"death-{os.getpid()}-1"
    with controlled(run_id, lease_s=600) as (process, _):
        assert sorted(roles_of(run_id)) == ["link-proxy", "node:a", "node:b", "warden"]
        assert len(scratch_of(run_id)) == 1
        process.kill()
        wait_until(lambda: processes_of(run_id) == [])
        assert scratch_of(run_id) == []


def test_leases_end_although_the_controller_is_frozen():
    def whole(b, for_s: float) -> bool:
        try:
            return b"harness/1 b" in greet(b, for_s)
        except OSError:
            return False

    for lease_s in (4.0, 40.0):  # a short lease may have ended before the test looks
        run_id = f"death-{os.getpid()}-2-{lease_s:g}"
        with controlled(run_id, lease_s) as (process, b):
            paused = roles_of(run_id)["node:a"]
            process.send_signal(signal.SIGSTOP)
            if state(paused) == "T" and not whole(b, 0.3):
                wait_until(lambda b=b: whole(b, 5.0), 2 * LIMIT_S)
                wait_until(lambda paused=paused: state(paused) not in {"T", None})
                return
    pytest.fail("the faults were not seen")


def test_a_slow_node_is_neither_left_stopped_nor_alive():
    run_id = f"death-{os.getpid()}-6"

    def frozen(process):
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: state(slow) == "T")
        process.send_signal(signal.SIGSTOP)
        return state(slow) == "T"

    with controlled(run_id, 600, "-", "slow") as (process, _):
        slow = roles_of(run_id)["node:s"]
        wait_until(lambda: frozen(process))
        wait_until(lambda: state(slow) == "R")
        wait_until(lambda: frozen(process))
        process.kill()
        wait_until(lambda: processes_of(run_id) == [])


def test_clean_removes_remains_of_dead_runs_and_spares_live_ones(monkeypatch):
    for patience in (
        "_WARDEN_TIMEOUT_S",
        "_EXIT_TIMEOUT_S",
    ):
        monkeypatch.setattr(f"harness.environments.process.cleaning.{patience}", LIMIT_S)
    dead, alive = f"death-{os.getpid()}-3", f"death-{os.getpid()}-4"
    with (
        only_cleaner(),
        controlled(alive, 600) as (living, _),
        controlled(dead, 600) as (process, _),
    ):
        kill_at_once(process.pid, roles_of(dead)["warden"])
        process.wait(LIMIT_S)
        wait_until(lambda: "warden" not in roles_of(dead))
        assert sorted(roles_of(dead)) == ["link-proxy", "node:a", "node:b"]

        lines = ProcessEnvironment().clean()
        mine = [line for line in lines if dead in line]
        assert len(mine) == 4  # two nodes, the link proxy, and the scratch folder
        assert processes_of(dead) == []
        assert scratch_of(dead) == []
        assert not any(alive in line for line in lines)
        assert sorted(roles_of(alive)) == ["link-proxy", "node:a", "node:b", "warden"]
        assert living.poll() is None
        assert not any(dead in line for line in ProcessEnvironment().clean())


def test_clean_goes_on_where_another_one_was_quicker(tmp_path, monkeypatch):
    scratch = tmp_path / f"{SCRATCH_PREFIX}quicker-1"
    (scratch / "a").mkdir(parents=True)
    (scratch / "a" / "log").write_bytes(b"x")
    owner = {
        "run_id": "quicker",
        "controller": str(this_controller()._replace(boot_id="0-0")),
        "link_proxy": None,
    }
    (scratch / OWNER_FILE).write_text(json.dumps(owner))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    unlink = os.unlink

    def after_another(*path, **options):
        unlink(*path, **options)
        unlink(*path, **options)

    with only_cleaner():
        monkeypatch.setattr(os, "unlink", after_another)
        lines = ProcessEnvironment().clean()
    assert [line for line in lines if "quicker" in line]
    assert not scratch.exists()


@pytest.mark.toxiproxy
def test_proxies_of_a_killed_controller_leave_a_real_toxiproxy():
    run_id = f"death-{os.getpid()}-5"
    with serving("real") as server, controlled(run_id, 600, server.url) as (driver, _):
        assert len(server.request("GET", "/proxies")[1]) == 4
        driver.kill()
        wait_until(lambda: server.request("GET", "/proxies")[1] == {})
