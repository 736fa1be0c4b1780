"""Stores with versioned values: ZooKeeper, Memcached and etcd."""

import asyncio
import json
import struct

import pytest

from harness.errors import InternalError
from targets.declared.protocols import FAILURES, protocol_of
from tests.declared.protocols import minis
from tests.declared.protocols.servers import CLOSE, NODE, WORLDS, Server, run

APPEND = [["r", "a", None], ["append", "a", 9]]
SYNC, GET = 9, 4


class Meddled(minis.MiniMemcached):
    """A server on which another client changes the item after each of the first reads."""

    def answer(self, request):
        answer = super().answer(request)
        if request.startswith(b"gets") and self.version < 3:
            super().answer(b"set list-append 0 0 9\r\n" + b'{"a":[%d]}\r\n' % self.version)
        return answer


def test_items_that_changed_meanwhile_are_read_again():
    async def body(call, _):
        answer = [["r", "a", [2]], ["append", "a", 9]]
        assert await call("txn", APPEND) == ("ok", answer)
        assert len(call.session.attempts) == 8
        assert await call("txn", APPEND[:1]) == ("ok", [["r", "a", [2, 9]]])

    run("memcached", body, mini=Meddled(), vocabulary="list-append")


def test_a_refused_write_had_no_effect():
    async def body(call, server):
        assert await call("txn", APPEND) == ("fail", None)
        return server.asked[-1].split(b" ")[0]

    spoiled = {"spoil": lambda _: [CLOSE], "after": 3}
    assert run("memcached", body, mini=Meddled(), vocabulary="list-append", **spoiled) == b"gets"


def test_a_write_of_a_new_znode_that_is_not_answered_is_unknown():
    async def body(call, _):
        return await call("write", {"value": 5})

    for after, expected in ((1, "info"), (2, "info"), (3, "ok")):
        spoiled = {"spoil": lambda _: [CLOSE], "after": after}
        assert run("zookeeper", body, **spoiled)[0] == expected


@pytest.mark.parametrize(("settings", "kinds"), [({}, [GET]), ({"sync": True}, [SYNC, GET])])
def test_reads_of_zookeeper_follow_a_sync_if_the_file_says_so(settings, kinds):
    async def body(call, server):
        await call("read")
        return [struct.unpack_from(">i", request, 8)[0] for request in server.asked[1:]]

    assert run("zookeeper", body, settings=settings) == kinds


def zookeeper_read(answer):
    """Read a register whose value is 7; the function `answer` changes the server's answer."""
    mini = minis.MiniZooKeeper()
    mini.data[b"/harness-register"] = b"7", 0

    async def body(call, _):
        return await call("read")

    return run("zookeeper", body, mini=mini, spoil=lambda a: [minis.frame(answer(a[4:]))], after=1)


def test_answers_of_zookeeper_that_are_none():
    whole = zookeeper_read(lambda answer: answer)
    assert whole == ("ok", {"result": "ok", "value": 7})
    header, size = struct.Struct(">iqi"), struct.Struct(">i")
    for change in (
        lambda answer: answer + b"x",
        lambda answer: header.pack(2, 0, 0) + answer[16:],  # the answer to another request
        lambda answer: header.pack(1, 0, 0) + size.pack(0) + answer[20:],
        lambda answer: header.pack(1, 0, 0) + size.pack(-1) + answer[20:],
        lambda answer: header.pack(1, 0, -4),
        lambda answer: header.pack(1, 0, -112),
        lambda answer: header.pack(1, 0, -102),
        lambda answer: header.pack(1, 0, -999),
    ):
        assert zookeeper_read(change) == ("fail", None)
    absent = zookeeper_read(lambda _: header.pack(1, 0, -101))
    assert absent == ("ok", {"result": "ok", "value": None})


@pytest.mark.parametrize("serializable", [False, True])
def test_reads_of_etcd_are_serializable_if_the_file_says_so(serializable):
    async def body(call, server):
        await call("read")
        asked = json.loads(server.asked[-1].partition(b"\r\n\r\n")[2])
        return asked["success"][0]["request_range"].get("serializable")

    assert run("etcd", body, settings={"serializable": serializable}) is serializable


def test_a_znode_that_another_client_creates_is_no_mistake():
    class Raced(minis.MiniZooKeeper):
        def _1(self, path, body, at):
            self.data.setdefault(path, (b"1", 0))
            return super()._1(path, body, at)

    async def body(call, _):
        assert await call("write", {"value": 5}) == ("ok", {"result": "ok"})
        return (await call("read"))[1]["value"]

    assert run("zookeeper", body, mini=Raced()) == 5


@pytest.mark.parametrize(
    ("name", "term"), [("etcd", 3), ("redis", 0), ("zookeeper", 5), ("postgres", 1), ("mysql", 0)]
)
def test_sessions_tell_who_leads(name, term):
    async def main(spoil):
        async with Server(WORLDS[name][0]()) as server:
            protocol = protocol_of(name, {})
            assert protocol.knows_leader
            session = await protocol.open(server.env, NODE, observes=True)
            try:
                server.spoil = spoil
                return await session.leadership()
            finally:
                await session.close()

    assert asyncio.run(main(lambda answer: [answer])) == (True, term)
    for wrong in (b"", b"x", b"\r\n\r\n"):
        with pytest.raises(FAILURES):
            asyncio.run(main(lambda _, wrong=wrong: [wrong, CLOSE]))


@pytest.mark.parametrize(
    ("mode", "zxid", "identity"),
    [
        ("leader", "0x500000002", "the leader of epoch 5"),
        ("leader", "0x600000000", "the leader of epoch 6"),
        ("standalone", "0x2", None),
        ("follower", "0x500000002", None),
    ],
)
def test_a_leader_of_zookeeper_is_known_by_its_epoch(mode, zxid, identity):
    def spoil(_):
        return [f"Zxid: {zxid}\nMode: {mode}\n".encode(), CLOSE]

    async def main():
        async with Server(minis.MiniZooKeeper()) as server:
            session = await protocol_of("zookeeper", {}).open(server.env, NODE, observes=True)
            try:
                assert await session.server() is None
                server.spoil = spoil
                await session.leadership()
                return await session.server()
            finally:
                await session.close()

    assert asyncio.run(main()) == identity


def test_a_probe_may_be_a_word_of_zookeeper():
    async def body(call, _):
        probe = call.protocol.template("leader.probe", "srvr", "raw")
        return await call.session.perform(probe, {}, changes=False)

    assert "Mode: leader\n" in run("zookeeper", body)


def test_no_other_session_is_asked_who_leads():
    async def body(call, _):
        assert not call.protocol.knows_leader
        with pytest.raises(InternalError):
            await call.session.leadership()

    run("memcached", body)


def test_bytes_that_answer_nothing_are_an_error():
    async def body(call, _):
        await call("write", {"value": 5})
        return await call("read")

    def spoil(answer):
        return [answer + b"VALUE register 0 1 1\r\n7\r\nEND\r\n"]

    assert run("memcached", body, spoil=spoil, after=1) == ("fail", None)
