"""Processes call shared addresses from their node's own address, and all others through links."""

import asyncio
import platform
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.environments.process import calling
from harness.environments.process.calling import CallingAddress
from tests.support.programs import run_program
from tests.support.unprivileged import renounce_capabilities
from tests.support.waiting import LIMIT_S, until
from tests.toxiproxy.conftest import REPOSITORY

pytestmark = pytest.mark.process

HOST, NETWORK = "127.201.7.9", "127.201.7.1"
CALL = """
import socket, subprocess, sys, threading
host, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def call():
    family = socket.AF_INET6 if how == "mapped" else socket.AF_INET
    with socket.socket(family) as conn:
        if how == "bound":
            conn.bind(("127.0.0.1", 0))
        if how == "slow":
            conn.setblocking(False)
            try:
                conn.connect((host, port))
            except BlockingIOError:
                pass
            return
        conn.connect(("::ffff:" + host if how == "mapped" else host, port))
if how == "thread":
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
elif how == "child":
    subprocess.run([sys.executable, "-c", sys.argv[4], host, str(port), "plain"], check=True)
else:
    call()
"""


async def calls_from(how, host=NETWORK, count=1):
    """Return the source addresses of a process that closes its connections at once."""
    with socket.create_server((host, 0)) as listener:
        words = [sys.executable, "-c", CALL, host, str(listener.getsockname()[1]), how, CALL]
        process = CallingAddress(HOST).started(lambda: subprocess.Popen(words))
        try:
            code = await asyncio.to_thread(process.wait, LIMIT_S)
        finally:
            process.kill()
        assert code == 0
        sources = []
        for _ in range(count):
            conn, there = listener.accept()
            conn.close()
            sources.append(there[0])
        return sources


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("plain", HOST),
        ("thread", HOST),
        ("child", HOST),
        ("mapped", HOST),
        ("slow", HOST),
        ("bound", "127.0.0.1"),
    ],
)
async def test_a_process_and_its_descendants_call_from_their_node(how, wanted):
    assert await calls_from(how) == [wanted]


async def test_calls_to_elsewhere_are_left_alone():
    assert await calls_from("plain", "127.0.0.1") == ["127.0.0.1"]
    assert await calls_from("plain", "127.201.8.1") == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("how", "host"),
    [(how, "127.0.0.1") for how in ("plain", "thread", "child", "mapped", "slow", "bound")]
    + [("plain", "127.0.1.1"), ("plain", "0.0.0.0"), ("mapped", "0.0.0.0")],
)
async def test_a_call_past_the_link_proxy_takes_the_link(how, host):
    with socket.create_server((NETWORK, 0)) as link:
        node = CallingAddress(HOST, {9: link.getsockname()})
        words = [sys.executable, "-c", CALL, host, "9", how, CALL]
        process = node.started(lambda: subprocess.Popen(words))
        assert await asyncio.to_thread(process.wait, LIMIT_S) == 0
        conn, _ = link.accept()
        conn.close()


async def test_another_address_with_the_port_of_a_node_is_left_alone():
    with (
        socket.create_server((NETWORK, 0)) as elsewhere,
        socket.create_server((NETWORK, 0)) as link,
    ):
        port = elsewhere.getsockname()[1]
        node = CallingAddress(HOST, {port: link.getsockname()})
        words = [sys.executable, "-c", CALL, NETWORK, str(port), "plain", CALL]
        process = node.started(lambda: subprocess.Popen(words))
        assert await asyncio.to_thread(process.wait, LIMIT_S) == 0
        conn, there = elsewhere.accept()
        conn.close()
        assert there[0] == HOST


async def test_a_link_that_refuses_refuses_the_call():
    with socket.create_server((NETWORK, 0)) as gone:
        link = gone.getsockname()
    node = CallingAddress(HOST, {9: link})
    words = [sys.executable, "-c", CALL, "127.0.0.1", "9", "plain", CALL]
    process = node.started(lambda: subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
    _, said = await asyncio.to_thread(process.communicate, timeout=LIMIT_S)
    assert "ConnectionRefusedError" in said


def held():
    """Return the descriptors and threads that this process has open."""
    return len([*Path("/proc/self/fd").iterdir()]), threading.active_count()


async def test_nothing_is_left_of_processes_that_have_ended():
    def fail():
        raise FileNotFoundError

    # creates the loop's threads, so that `held` counts them from the start
    await asyncio.to_thread(str)
    before = held()
    assert await calls_from("plain") == [HOST]
    with pytest.raises(FileNotFoundError):
        CallingAddress(HOST).started(fail)
    await until(lambda: held() == before)


async def test_a_process_that_is_killed_while_it_waits_leaves_nothing_either(monkeypatch):
    asked, gate = threading.Event(), threading.Event()

    def wait(*_):
        asked.set()
        gate.wait(LIMIT_S)

    before = held()
    monkeypatch.setattr(CallingAddress, "_handle", wait)
    with socket.create_server((NETWORK, 0)) as listener:
        words = [sys.executable, "-c", CALL, *map(str, listener.getsockname()), "plain"]
        process = CallingAddress(HOST).started(lambda: subprocess.Popen(words))
        # `_handle` runs in a thread, so that a blocked loop does not block a node
        await until(asked.is_set)
        process.kill()
        process.wait()
        gate.set()
    await until(lambda: held() == before)


def test_a_call_does_not_wait_for_the_loop():
    async def blocked():
        with socket.create_server((NETWORK, 0)) as listener:
            words = [sys.executable, "-c", CALL, *map(str, listener.getsockname()), "plain"]
            process = CallingAddress(HOST).started(lambda: subprocess.Popen(words))
            assert process.wait(LIMIT_S) == 0

    asyncio.run(blocked())


@pytest.mark.parametrize("machine", [platform.machine(), "riscv64"])
async def test_where_the_kernel_does_not_do_it_calls_are_as_ever(monkeypatch, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    if machine == platform.machine() and machine in calling._ARCHITECTURES:
        architecture, connect, _ = calling._ARCHITECTURES[machine]
        no_such_call = {machine: (architecture, connect, 100_000)}
        monkeypatch.setattr(calling, "_ARCHITECTURES", no_such_call)
    assert await calls_from("plain") == ["127.0.0.1"]


def test_it_takes_no_privilege():
    words = [sys.executable, "-m", "tests.process.test_calling"]
    done = run_program(*words, cwd=REPOSITORY, timeout_s=LIMIT_S)
    assert done.stdout.split() == [HOST], done.stderr


if __name__ == "__main__":
    renounce_capabilities()
    print(*asyncio.run(calls_from("child")))
