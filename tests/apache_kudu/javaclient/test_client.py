"""Operations of the Java client, with a fake Java program and fake observations of servers."""

import asyncio

import pytest

from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Convergence, Request
from targets.apache_kudu.javaclient.client import JavaClients
from targets.apache_kudu.javaclient.program import Reply
from targets.apache_kudu.wire import WireRpc
from targets.apache_kudu.wire.session import Lead
from targets.apache_kudu.wire.tables import Version
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from tests.apache_kudu.javaclient.frames import MASTER, MS, came, sent
from tests.support.env import FakeEnv

TABLE = {"table_id": "i1", "comment": "n1", "columns": ["a"], "column_ids": [11]}
GET = Request("get", {"name": "t"})
READ = Request("read", {"table": "r", "key": "k"})
SCAN = Request("scan", {"table": "r", "mode": "snapshot", "replica": "any"})
WRITE = Request("write", {"table": "r", "nonce": "n", "rows": [["upsert", "k", {"v": "a"}]]})
HELD = "s1"
SENT_MS = 3
"""The time that passes before the client sends the RPC of an operation."""


class FakeProgram:
    def __init__(self, said):
        self.said = said
        self.asked = []

    async def ask(self, masters, process, asked, *, timeout_s):
        assert timeout_s > 0
        self.asked.append((masters, process, asked))
        return self.said

    async def close(self, process):
        self.asked.append((None, process, "close"))


class FakeLooks:
    """Fake observations: `before` and `after` map servers to terms before and after a request."""

    def __init__(self, before=None, after=None, *, confirms=True, version=None):
        self.before, self.after = before or {}, after or {}
        self.confirms = confirms
        self.number = version

    def leader(self):
        return "m1:7051" if self.before else None

    async def proven(self, address, sent_ns, group=SYSTEM_TABLET_ID):
        assert sent_ns == SENT_MS * MS
        after = self.after.get((address, group))
        return after if after is not None and after == self.before.get((address, group)) else None

    learn_advertised = WireRpc.learn_advertised

    async def advertised(self, address, *, timeout_s):
        return MASTER.removeprefix("master-") if address == "m1:7051" else None

    async def confirmed(self, address, tablet_id, lead):
        return self.confirms

    async def tablets(self, address, name):
        return ["A"]

    async def wait_led(self, tablets):
        assert tablets == ["A"]

    async def watch(self, address):
        pass

    async def version(self, address, *, name=None, table_id=None):
        assert address == "m1:7051"
        return None if self.number is None else Version(table_id or "i1", self.number, True)


LEADS = {("m1:7051", SYSTEM_TABLET_ID): Lead(4, True), ("t1:7050", "A"): Lead(7, True)}


def invoke(request, said, looks, masters=("m1:7051",)):
    async def run():
        program = FakeProgram(said)
        clients = JavaClients(
            FakeEnv(), program, {HELD: "t1:7050"}, masters=masters, tservers=["t1:7050"]
        )
        clients.looker = clients.leads = looks
        client = clients.client(5)
        done = await client.invoke(request, timeout_s=5.0)
        await client.close()
        await asyncio.gather(*clients.env.tasks)
        return done, program.asked

    return asyncio.run(run())


def seen_schema():
    method = "GetTableSchema"
    return Reply(TABLE, None, [sent(SENT_MS, method=method), came(9, method=method)])


def test_a_read_of_the_catalog_has_term_version_node_and_attempts():
    done, asked = invoke(GET, seen_schema(), FakeLooks(LEADS, LEADS, version=3))
    assert (done.type, done.node, len(done.attempts)) == (OpType.OK, "m1", 1)
    assert (done.value["term"], done.value["applied_schema_version"]) == (4, 3)
    assert asked[0][:2] == (("127.1.1.1:7051",), 1)
    assert asked[0][2]["f"] == "get"
    assert asked[-1] == (None, 1, "close")


def test_an_answer_around_a_change_of_terms_proves_nothing():
    later = {("m1:7051", SYSTEM_TABLET_ID): Lead(5, True)}
    for after in (later, {}):
        done, _ = invoke(GET, seen_schema(), FakeLooks(LEADS, after))
        assert (done.type, done.value) == (OpType.FAIL, None)


def test_without_all_masters_nothing_is_sent():
    done, asked = invoke(GET, seen_schema(), FakeLooks(), masters=("m1:7051", "m2:7051"))
    assert (done.type, [each[2] for each in asked]) == (OpType.FAIL, ["close"])


def test_after_an_operation_that_goes_on_the_process_has_another_client():
    done, asked = invoke(GET, Reply(None, ("OPEN", "no answer")), FakeLooks(LEADS, LEADS))
    assert done.type is OpType.FAIL
    assert sorted(number for _, number, what in asked if what == "close") == [1, 2]


def test_operations_outside_of_its_vocabularies_are_refused():
    with pytest.raises(UsageError, match="add-master"):
        invoke(Request("add-master", {"node": "m4"}), Reply(None, None), FakeLooks())


def scan_said():
    how = {"method": "Scan", "server": HELD, "tablet": "A"}
    part = {"tablet": "A", "server": HELD, "timestamp": 500, "rows": [["k", {"v": "a"}]]}
    answer = {"table_id": "i1", "parts": [part]}
    return Reply(answer, None, [sent(SENT_MS, **how), came(9, **how)])


def test_a_row_is_read_from_a_leader_in_a_certain_term():
    done, asked = invoke(READ, scan_said(), FakeLooks(LEADS, LEADS))
    assert (done.type, done.value["row"], done.value["term"]) == (OpType.OK, {"v": "a"}, 7)
    assert (done.node, asked[0][2]["key"]) == ("t1", "k")
    follows = {**LEADS, ("t1:7050", "A"): Lead(7, False)}
    assert invoke(READ, scan_said(), FakeLooks(follows, follows))[0].type is OpType.FAIL
    assert invoke(READ, scan_said(), FakeLooks(LEADS, follows))[0].type is OpType.FAIL


def test_a_snapshot_counts_only_if_a_majority_confirms_it():
    done, _ = invoke(SCAN, scan_said(), FakeLooks(LEADS, LEADS))
    assert (done.type, done.value["timestamp"]) == (OpType.OK, 499)
    looks = FakeLooks(LEADS, LEADS, confirms=False)
    assert invoke(SCAN, scan_said(), looks)[0].type is OpType.FAIL
    latest = Request("scan", {"table": "r", "mode": "latest", "replica": "any"})
    assert invoke(latest, scan_said(), FakeLooks())[0].type is OpType.OK


def test_a_write_is_acknowledged_only_in_a_certain_term():
    how = {"method": "Write", "server": HELD, "tablet": "A"}
    row = {"tablet": "A", "server": HELD, "timestamp": 90, "code": "OK", "text": ""}
    said = Reply({"table_id": "i1", "rows": [row]}, None, [sent(SENT_MS, **how), came(9, **how)])
    done, _ = invoke(WRITE, said, FakeLooks(LEADS, LEADS))
    assert (done.type, done.value["rows"], done.value["parts"][0]["term"]) == (OpType.OK, ["ok"], 7)
    done, _ = invoke(WRITE, said, FakeLooks(LEADS, {}))
    assert (done.type, done.value["rows"]) == (OpType.INFO, [None])


@pytest.mark.parametrize(
    ("core", "wanted"),
    [
        (["m1", "m2", "t1"], ["m1", "m2", "t1"]),
        (["m2", "m3", "t1"], ["m1", "m3", "t1"]),
    ],
)
def test_the_core_has_the_leader_since_java_clients_keep_to_a_deposed_one(core, wanted):
    masters = {f"m{n}": f"m{n}:7051" for n in (1, 2, 3)}
    clients = JavaClients(FakeEnv(), FakeProgram(None), {}, masters=masters.values(), tservers=[])
    clients.leads = FakeLooks({("m1:7051", SYSTEM_TABLET_ID): Lead(1, True)})
    assert clients.core_of(core, masters) == wanted
    clients.leads = FakeLooks()
    assert clients.core_of(core, masters) == core


def test_the_program_starts_before_the_first_operation():
    async def pending(said, masters):
        program = FakeProgram(said)
        clients = JavaClients(FakeEnv(), program, {}, masters=masters, tservers=[])
        clients.looker = clients.leads = FakeLooks()
        return await clients.pending()

    listed = Reply({"tables": []}, None)
    assert asyncio.run(pending(listed, ["m1:7051"])) == ()
    assert asyncio.run(pending(listed, ["m1:7051", "m2:7051"])) != ()
    assert asyncio.run(pending(Reply(None, ("TIMED_OUT", "x")), ["m1:7051"])) != ()


async def test_the_program_is_asked_after_the_servers_are_ready_and_until_it_is():
    program = FakeProgram(Reply(None, ("TIMED_OUT", "x")))
    clients = JavaClients(FakeEnv(), program, {}, masters=["m1:7051"], tservers=[])
    clients.looker = clients.leads = FakeLooks()
    servers, starting = Convergence(ok=True), Convergence(ok=False, pending=("no leader",))
    assert await clients.ready(starting) == starting
    assert not (await clients.ready(servers)).ok
    program.said = Reply({"tables": []}, None)
    assert (await clients.ready(servers)).ok
    program.said = Reply(None, ("TIMED_OUT", "x"))
    assert await clients.ready(servers) == servers
