"""Fake Kudu servers with scripted answers, in memory or behind a real socket."""

import asyncio
import contextlib

from harness.env import Address
from targets.apache_kudu.wire import frames, methods
from targets.apache_kudu.wire import protobuf as pb
from targets.apache_kudu.wire.connection import Reply
from targets.apache_kudu.wire.messages import REQUEST_HEADER, RESPONSE_HEADER, RPC_ERROR
from targets.apache_kudu.wire.session import Memory, Session
from targets.kudu.rpc import RpcError
from tests.apache_kudu import recorded
from tests.support import env

HERE = "the-server"
ADDRESS = Address("m1", 7051)
STATUS = {"status": {"instance": {"uuid": HERE}}}
METHODS = {
    method.name: method for method in vars(methods).values() if isinstance(method, methods.Method)
}


def raft_state(group, term, leader=HERE):
    state = {"current_term": term, "leader_uuid": leader, "committed_config": {"peers": []}}
    return {"tablets": [{"tablet_id": group, "state": state}]}


def failed(code, status=0, text=""):
    return {"error": {"code": code, "status": {"code": status, "message": text}}}


class Scripted:
    """A fake connection with scripted answers for each method.

    The last answer of a list repeats, and an exception in a list is raised. `asked` lists the
    requests.
    """

    address = ADDRESS
    broken = False

    def __init__(self, **answers):
        self.answers = {name: list(values) for name, values in answers.items()}
        self.asked = []

    async def call(self, method, request, *, timeout_s, rows_id=None):
        assert timeout_s > 0
        pb.encode(method.request, request)
        self.asked.append((method.name, request))
        left = self.answers[method.name]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, RpcError):
            raise answer
        return Reply(pb.decode(method.answer, pb.encode(method.answer, answer)))

    def session(self, names=None):
        deadline = asyncio.get_running_loop().time() + 60.0
        return Session(self, HERE, names or {}, Memory(), deadline)

    def names_asked(self):
        return [name for name, _ in self.asked]


class FakeEnv(env.FakeEnv):
    def __init__(self, port):
        super().__init__()
        self.port = port

    def endpoint(self, address):
        return "127.0.0.1", self.port


def answer_frame(call_id, body, *, is_error=False):
    return frames.frame(RESPONSE_HEADER, {"call_id": call_id, "is_error": is_error}, body)


def read_request(data):
    size, at = pb.decode_varint(data, 0)
    head = pb.decode(REQUEST_HEADER, data[at : at + size])
    return head["call_id"], head.get("remote_method", {}).get("method")


@contextlib.asynccontextmanager
async def serving(answer, *, status=STATUS):
    """Run a server that shakes hands, reports its `status`, and answers other calls by
    `answer(name)`. `answer` returns the values of the answer, ("error", code), `None` for silence,
    or "hang up". Without `status`, it also answers the requests for the status.
    """

    async def read_frame(reader):
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            assert await reader.readexactly(7) == frames.GREETING
            for recording in (recorded.NEGOTIATED, recorded.SUCCEEDED):
                await read_frame(reader)
                writer.write(len(recording).to_bytes(4, "big") + recording)
            while True:
                call_id, name = read_request(await read_frame(reader))
                if name is None:
                    continue
                said = status if name == methods.GET_STATUS.name else None
                if said is None:
                    said = answer(name)
                if said == "hang up":
                    break
                if isinstance(said, tuple):
                    body = pb.encode(RPC_ERROR, {"message": "no", "code": said[1]})
                    writer.write(answer_frame(call_id, body, is_error=True))
                elif said is not None:
                    body = pb.encode(METHODS[name].answer, said)
                    writer.write(answer_frame(call_id, body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield FakeEnv(server.sockets[0].getsockname()[1])
