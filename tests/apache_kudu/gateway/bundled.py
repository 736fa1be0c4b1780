"""Fakes for the gateway's tests: bundled servers with a script, and a client of Kudu's RPC."""

import asyncio
import contextlib

import msgspec

from targets.apache_kudu.gateway.server import Gateway
from targets.apache_kudu.gateway.system import through
from targets.apache_kudu.wire import WireRpc
from targets.kudu import messages as m
from targets.kudu.consensus.messages import GetConsensusStateRequest, GetConsensusStateResponse
from tests.support.env import FakeEnv

MASTER, TSERVER = "m1:7051", "t1:7050"
UUIDS = {MASTER: "the-master", TSERVER: "the-tserver"}
META = m.Meta(UUIDS[MASTER], 1)
COLUMNS = (
    m.Column(0, "key", is_key=True, is_nullable=False),
    m.Column(4, "v"),
    m.Column(7, "n", "INT32"),
)
TABLET = m.HostedTablet(
    "T", "i1", "t", "RUNNING", "READY", "LEADER", 1, UUIDS[TSERVER],
    m.Partition(b"", b""), 0, 0, COLUMNS,
)  # fmt: skip
LOCATED = m.GetTableLocationsResponse(
    META,
    table_id="i1",
    tablets=(
        m.TabletLocations(
            "T",
            m.Partition(b"", b""),
            (m.ReplicaLocation(UUIDS[TSERVER], TSERVER, "LEADER", "VOTER"),),
        ),
    ),
)
SCHEMA = m.GetTableSchemaResponse(META, table_id="i1", name="t", schema=m.Schema(COLUMNS))


class Bundled:
    """Servers with a scripted reply to each type of request: an answer, an error, or a function."""

    def __init__(self, *answers):
        self.answers = {
            m.GetMasterRegistrationResponse: m.GetMasterRegistrationResponse(META, role="LEADER"),
            m.ListTabletsResponse: m.ListTabletsResponse(UUIDS[TSERVER], (TABLET,)),
            m.GetTableLocationsResponse: LOCATED,
            m.GetTableSchemaResponse: SCHEMA,
            m.IsAlterTableDoneResponse: m.IsAlterTableDoneResponse(META, None, "i1", 3, done=True),
        }
        for answer in answers:
            self.answers[type(answer)] = answer
        self.asked = []
        self.closed = 0

    async def call(self, address, request, *, timeout_s):
        assert timeout_s > 0
        self.asked.append(request)
        if isinstance(request, GetConsensusStateRequest):
            uuid = UUIDS[address]
            return GetConsensusStateResponse(uuid, 1, "LEADER", uuid, m.RaftConfig(-1, ()))
        answer = self.answers.get(request.answer_type, self.answers.get(type(request)))
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=type(request))
        return answer

    def close(self):
        self.closed += 1

    def last(self, kind):
        return [each for each in self.asked if isinstance(each, kind)][-1]


@contextlib.asynccontextmanager
async def gateway(bundled):
    """Yield a gateway in front of scripted servers, and a client that calls it with Kudu's RPC."""
    env = FakeEnv("client")
    front = Gateway(env, lambda: bundled, [MASTER], [TSERVER])
    front.start()
    client = WireRpc(through(env, front), front.names)
    try:
        yield front, client
    finally:
        client.close()
        for task in env.tasks:
            task.cancel()
        await asyncio.wait(env.tasks)
        errors = [task.exception() for task in env.tasks if not task.cancelled()]
        assert errors == [None] * len(errors), "an error of a task would end the run"
