"""An answer that states no term gets it from observations of Kudu's servers."""

import asyncio
import contextlib

from targets.apache_kudu.wire import looks
from targets.apache_kudu.wire.looks import Leads, Looker
from targets.apache_kudu.wire.session import Lead
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import RpcConnectionError
from tests.apache_kudu.scripted import failed, raft_state, serving
from tests.support.env import Clock

M1 = "m1:7051"


class Scene:
    def __init__(self, **by_group):
        self.by_group = by_group

    async def leads(self, address, group=None):
        if not self.by_group:
            raise RpcConnectionError("down", sent=False)
        return {each: lead for each, lead in self.by_group.items() if group in {None, each}}


async def watched(leads, address):
    task = asyncio.create_task(leads.watch(address))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_lead_is_proven_if_it_is_the_same_before_the_request_and_after_the_answer():
    scene, clock = Scene(A=Lead(4, True)), Clock()
    leads = Leads(scene, clock)
    clock.advance(1.0)
    await watched(leads, M1)
    seen_ns = clock.now_ns
    clock.advance(1.0)
    assert await leads.proven(M1, seen_ns, "A") == Lead(4, True)
    assert await leads.proven(M1, seen_ns - 1, "A") is None
    assert await leads.proven("m2:7051", clock.now_ns - 1, "A") is None
    assert await leads.proven(M1, clock.now_ns, "B") is None
    for other in (Lead(5, True), Lead(5, False)):
        clock.advance(1.0)
        scene.by_group = {"A": other}
        assert await leads.proven(M1, clock.now_ns - 1, "A") is None
        # the failed attempt above has observed the server again
        assert await leads.proven(M1, clock.now_ns, "A") == other
    scene.by_group = {}
    assert await leads.proven(M1, clock.now_ns, "A") is None


async def test_a_term_that_was_seen_after_the_request_proves_nothing():
    scene, clock = Scene(A=Lead(4, True)), Clock()
    leads = Leads(scene, clock)
    await watched(leads, M1)
    sent_ns = clock.now_ns
    clock.advance(1.0)
    scene.by_group = {"A": Lead(6, True)}
    await watched(leads, M1)
    assert await leads.proven(M1, sent_ns, "A") is None  # the answer may belong to either term
    assert await leads.proven(M1, clock.now_ns, "A") == Lead(6, True)


async def test_waiting_ends_when_every_tablet_has_a_leader():
    scene = Scene(A=Lead(1, True), B=Lead(1, False))
    leads = Leads(scene, Clock())
    waiting = asyncio.create_task(leads.wait_led(["A", "B"]))
    await watched(leads, M1)
    assert not waiting.done()
    scene.by_group["B"] = Lead(2, True)
    await watched(leads, M1)
    async with asyncio.timeout(5.0):
        await waiting


async def test_the_leader_is_the_one_of_the_highest_term():
    scene = Scene()
    leads = Leads(scene, Clock())
    assert leads.leader() is None
    for address, lead in ((M1, Lead(3, True)), ("m2:7051", Lead(4, True)), ("m3", Lead(9, False))):
        scene.by_group = {SYSTEM_TABLET_ID: lead}
        await watched(leads, address)
    assert leads.leader() == "m2:7051"
    assert leads.leader("A") is None


async def test_looks_at_a_server_by_its_own_rpcs(monkeypatch):
    monkeypatch.setattr(looks, "LOOK_S", 5.0)
    host = {"host": "127.1.1.1", "port": 7051}
    answers = {
        "GetConsensusState": raft_state("A", 4),
        "GetMasterRegistration": {"registration": {"rpc_addresses": [host]}},
        "GetTableSchema": {"table_id": "i1", "schema": {}},
        "IsAlterTableDone": {"schema_version": 6, "done": True},
        "GetTableLocations": {"tablets": [{"tablet_id": "A"}], "ttl_ms": 1},
    }
    async with serving(answers.get) as env:
        looker = Looker(env, {})
        assert await looker.leads(M1) == {"A": Lead(4, True)}
        assert await looker.advertised(M1) == "127.1.1.1:7051"
        assert (await looker.version(M1, name="t")).number == 6
        assert await looker.tablets(M1, "t") == ["A"]
        answers["GetTableSchema"] = answers["GetTableLocations"] = failed(3, 1, "no such table")
        assert await looker.version(M1, name="t") is None
        assert await looker.tablets(M1, "t") == []
        looker.close()
        await asyncio.gather(*env.tasks, return_exceptions=True)
