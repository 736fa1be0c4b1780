"""A register on the Raft library `consensual` from PyPI, over aiohttp.

A write is a command in the log. It is answered once the library has applied it on the node that got
the request. A read is a command, too, unless `--race` answers it from the node's own copy.
"""

import argparse
import asyncio
import logging
import uuid

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from consensual.raft import MessageKind, Node, ReceiverUnavailable, Sender
from yarl import URL

JOIN_S = 0.2


class Register:
    """The value that the commands in the log produce, and the requests that wait for a command."""

    def __init__(self) -> None:
        self.value: object = None
        self.waiting: dict[str, asyncio.Future] = {}

    def apply(self, command: dict) -> None:
        """Apply a command; the library calls this on every node, in the order of the log."""
        result = {"done": True, "value": self.value}
        if command["kind"] == "write":
            self.value = command["value"]
        elif command["kind"] == "cas":
            result["done"] = self.value == command["old"]
            if result["done"]:
                self.value = command["new"]
        waiter = self.waiting.pop(command["id"], None)
        if waiter is not None and not waiter.done():
            waiter.get_loop().call_soon_threadsafe(waiter.set_result, result)


def http(node: Node, register: Register, members: int, *, race: bool) -> web.Application:
    async def submit(command: dict) -> web.Response:
        command["id"] = uuid.uuid4().hex
        waiter = register.waiting[command["id"]] = asyncio.get_running_loop().create_future()
        error = await node.enqueue("apply", command)
        if error is not None:
            del register.waiting[command["id"]]
            return web.json_response({"error": error}, status=503)
        return web.json_response(await waiter)

    async def read(_: web.Request) -> web.Response:
        if race:
            return web.json_response({"done": True, "value": register.value})
        return await submit({"kind": "read"})

    async def write(request: web.Request) -> web.Response:
        return await submit({"kind": "write", "value": await request.json()})

    async def cas(request: web.Request) -> web.Response:
        return await submit({"kind": "cas", **await request.json()})

    async def role(_: web.Request) -> web.Response:
        role = node._role  # the library has no public attribute for the role
        whole = node._cluster.stable and len(node._cluster.nodes_ids) == members
        leads = whole and role.leader_node_id == node._id
        return web.json_response({"leads": leads, "term": role.term})

    async def receive(request: web.Request) -> web.Response:
        body = await request.json()
        kind = MessageKind(body["kind"])
        return web.json_response(await node.receive(kind=kind, message=body["message"]))

    app = web.Application()
    app.add_routes([web.get("/", read), web.put("/", write), web.post("/cas", cas)])
    app.add_routes([web.get("/role", role), web.post("/raft", receive)])
    return app


class HttpSender(Sender):
    """Carries the library's messages as POST requests."""

    def __init__(self, url: URL, timeout_s: float) -> None:
        self.urls = [url]
        self._timeout = ClientTimeout(total=timeout_s)
        self._session: ClientSession | None = None

    async def send(self, *, kind: MessageKind, message: dict, url: URL) -> dict:
        if self._session is None:
            self._session = ClientSession(timeout=self._timeout)
        try:
            body = {"kind": kind.value, "message": message}
            async with self._session.post(url / "raft", json=body) as answer:
                if answer.status != 200:
                    raise ReceiverUnavailable(url)
                return await answer.json()
        except (ClientError, OSError, TimeoutError) as error:
            raise ReceiverUnavailable(url) from error


async def found(node: Node, peers: list[URL]) -> None:
    """Make the first node a cluster of its own, and attach the others one after another."""
    await node.solo()
    for peer in peers:
        while peer not in node._cluster.nodes_urls.values() or not node._cluster.stable:
            await node.attach_nodes([peer])  # refused while the cluster changes
            await asyncio.sleep(JOIN_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", required=True, help="host:port under which others reach this")
    parser.add_argument("--members", required=True, help="host:port of all; the first founds")
    parser.add_argument("--heartbeat", type=float, default=0.3)
    parser.add_argument("--data", help="nothing: the library keeps its log in memory")
    parser.add_argument("--race", action="store_true", help="read without asking the others")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    asyncio.run(serve(options))


async def serve(options: argparse.Namespace) -> None:
    register = Register()
    url = URL(f"http://{options.address}")
    node = Node.from_url(
        url,
        heartbeat=options.heartbeat,
        logger=logging.getLogger("raft"),
        processors={"apply": register.apply},
        sender=HttpSender(url, options.heartbeat),
    )
    first, *others = options.members.split(",")
    app = http(node, register, 1 + len(others), race=options.race)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.port).start()
    if first == options.address:
        await found(node, [URL(f"http://{peer}") for peer in others])
    await asyncio.Event().wait()
