"""All callers use the same address of a node, and each caller still has a link of its own."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from harness.cluster import CLIENT, Link, LinkQuality, NodeSpec
from harness.environments import procfs
from harness.environments.callers import CallerBook, CallerGoneError, socket_inode
from harness.environments.process.addresses import shared_ports
from harness.environments.process.linkproxy import _Output
from harness.errors import InfrastructureError, UsageError
from tests.faults.door import door
from tests.process.conftest import never
from tests.process.test_foreign import Web
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.process

PORT = 8080
WORDS = (
    *(sys.executable, "{package:tests}/tests/process/foreign.py", "{name}"),
    *("{host}", f"{{port:{PORT}}}", f"{{address:b:{PORT}}}", "{data}"),
)
CALL = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print(c.getsockname()[1], flush=True)
sys.stdin.read()
"""


def asks_b(name: str, command: tuple[str, ...] = WORDS) -> NodeSpec:
    me = {"ME": f"{{address:b:{PORT}}}", "HOST": "{host:b}"}
    return NodeSpec(name=name, role="register", ports=(PORT,), command=command, environment=me)


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_kernel_names_the_owner_of_a_connection(listener):
    here = listener.getsockname()
    with socket.socket(socket.AF_INET6) as mapped, socket.socket() as plain:
        plain.connect(here)
        mapped.connect(("::ffff:127.0.0.1", here[1]))
        for caller in (plain, mapped):
            accepted, there = listener.accept()
            with accepted:
                inode = os.fstat(caller.fileno()).st_ino
                assert socket_inode(there, here) == inode
                assert procfs.holds_socket(os.getpid(), inode)
                caller.close()
                assert socket_inode(there, here) == 0
    assert socket_inode(("127.0.0.1", 1), here) == 0
    assert not procfs.holds_socket(os.getpid(), inode)
    assert not procfs.holds_socket(2**22 + 1, inode)


def test_the_book_knows_processes_and_their_children(listener, tmp_path):
    here = listener.getsockname()
    book = CallerBook(tmp_path)
    me = procfs.identify(os.getpid())
    command = [sys.executable, "-c", CALL, *map(str, here)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        there = ("127.0.0.1", int(child.stdout.readline()))
        accepted, _ = listener.accept()
        with accepted:
            assert book.find(there, here) is None
            book.note("driver", me, alone=True)
            # the connection belongs to a child process, which is not recorded
            assert book.find(there, here) is None
            book.note("n1", me)
            assert book.find(there, here) == "n1"
            # the pid once belonged to an earlier process
            book.note("n1", procfs.ProcessId(me.pid, me.start_ticks - 1))
            assert book.find(there, here) is None
            book.note("n1", procfs.identify(child.pid), part="beside")
            assert book.find(there, here) == "n1"
            child.kill()
            wait_until(lambda: socket_inode(there, here) == 0)
            with pytest.raises(CallerGoneError):
                book.find(there, here)


async def test_callers_are_awaited_until_they_are_in_the_book(listener, tmp_path):
    here = listener.getsockname()
    book = CallerBook(tmp_path)

    with socket.create_connection(here) as conn:
        search = asyncio.create_task(book.wait_found(conn.getsockname(), here))
        await asyncio.sleep(0)
        (tmp_path / "n1~").touch()  # an entry that is only half written
        await asyncio.sleep(0)
        book.note("n1", procfs.identify(os.getpid()))
        assert await search == "n1"


def test_all_know_a_node_by_one_address_and_links_break_one_by_one(run):
    in_a_child = ("sh", "-c", '"$@" & wait', "sh", *WORDS)

    async def asked(web, node, for_s=LIMIT_S, bound=""):
        try:
            return await web(node, f"/peer/{for_s}{bound}")
        except OSError:
            return None

    async def is_cut(web, node, bound=""):
        return [await asked(web, node, 0.25, bound) for _ in range(3)] == [None] * 3

    async def body(driver):
        web, cluster = Web(driver), driver.cluster
        for name in "bac":
            await web.wait_up(name)
            assert await asked(web, name) == "b="
        environments = [procfs.environment_of(cluster._node(name).pid) for name in "abc"]
        (address,) = {words["ME"] for words in environments}
        assert {words["HOST"] for words in environments} == {address.split(":")[0]}
        assert address.startswith("127.")
        assert address.endswith(f":{PORT}")

        fault = await door(driver).cut([Link("c", "b")])
        # as if b had announced the port that it is bound to
        told = f"/{cluster._node('b')._listen[str(PORT)][1]}"
        assert await is_cut(web, "c")
        assert await is_cut(web, "c", told)
        assert await asked(web, "a", bound=told) == "b="
        assert [await asked(web, name) for name in "ab"] == ["b=", "b="]
        assert (await door(driver).heal(fault)).count > 0
        assert await asked(web, "c") == "b="

        everything = [*Link.between(["b"], ["a", "c"]), Link(CLIENT, "b")]
        fault = await door(driver).cut(everything)
        assert await is_cut(web, "a")
        await door(driver).heal(fault)

        fault = await door(driver).shape([Link("b", "a")], LinkQuality(delay_ms=400))
        assert await asked(web, "a", 0.2) is None
        assert (await door(driver).heal(fault)).count > 0

        host, port = address.split(":")
        client = socket.create_connection((host, int(port)))
        with client:
            await asyncio.to_thread(client.sendall, b"GET / HTTP/1.0\r\n")
            async with asyncio.timeout(LIMIT_S):
                while not await cluster.reset([Link(CLIENT, "b")]):  # noqa: ASYNC110 - a poll
                    await asyncio.sleep(0.02)
            assert await cluster.reset([Link("a", "b"), Link("c", "b")]) == 0
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(client.recv, 1)

    nodes = [asks_b("a"), asks_b("b"), asks_b("c", in_a_child)]
    run(body, nodes, wait=False)


@pytest.mark.parametrize("word", ["{address:z:1}", "{address:b:1}", "{address:b}", "{host:z}"])
def test_undeclared_ports_and_names_are_refused(run, word):
    with pytest.raises(UsageError, match=r"no declared port or node; declared are b:8080"):
        run(never, [asks_b("b", ("x", word))], wait=False)


def test_a_given_link_proxy_cannot_tell_callers_apart(run):
    with pytest.raises(UsageError, match=r"--link-proxy.*\{address:b:8080\}.*omit the option"):
        run(never, [asks_b("b")], wait=False, link_proxy="http://127.0.0.1:8474")


def test_a_port_that_is_taken_everywhere_is_refused(run):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        spec = NodeSpec(name="b", role="r", ports=(port,), command=("true", "{host:b}"))
        with pytest.raises(UsageError, match=rf"listen on 127\..*:{port}.*another port"):
            run(never, [spec], wait=False)


def test_where_the_kernel_does_not_tell_it_is_refused(run, monkeypatch):
    monkeypatch.setattr("harness.environments.callers._NETLINK_SOCK_DIAG", 999)
    with pytest.raises(UsageError, match=r"cannot name the process.*--env docker"):
        run(never, [asks_b("b")], wait=False)


def test_which_ports_are_shared():
    spec = NodeSpec(name="x", role="r", ports=(1, 2), command=("{address:y:3}", "{peer:y:4}"))
    two = NodeSpec(name="y", role="r", ports=(3, 4), files={"f": "{host} {host:x}"})
    assert shared_ports([spec, two]) == {("y", 3), ("x", 1), ("x", 2)}
    assert shared_ports([asks_b("b", ("{peer:b:1}",))]) == {("b", PORT)}


def test_an_unwritable_address_book_is_a_failure_of_the_host(tmp_path):
    book = CallerBook(tmp_path / "gone")
    with pytest.raises(InfrastructureError, match="cannot record"):
        book.note("n1", procfs.identify(os.getpid()))


async def test_reports_of_withheld_connections_are_parsed():
    output = _Output(pytest.fail)
    here = "127.9.8.7:2"

    def said(held, dropped):
        line = b'{"address":"%s","held":%d,"dropped":%d}\n' % (here.encode(), held, dropped)
        for byte in line:
            output.heard(bytes([byte]))
        return output.withheld(here)

    output.heard(b"http://127.0.0.1:1\nWARNING of something\n")
    assert await output.address == "http://127.0.0.1:1"
    assert output.withheld(here) is None
    assert "held connections back" in said(1, 0).what
    assert said(0, 0) is None
    assert said(0, 1) == said(0, 1)
    assert "dropped connections (2 or more)" in said(0, 2).what
    assert output.withheld("127.9.8.7:3") is None
