"""A register on aiohttp: the first member keeps it on its disk, and the others forward to it.

python -c 'import aiohttp_service; aiohttp_service.main()' --port 8080
"""

import argparse
import asyncio
import json
import logging
import os
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, web

log = logging.getLogger("register")


class Register:
    """The value, on disk. With `race`, a compare-and-set takes no lock."""

    def __init__(self, folder: Path, *, race: bool, unsynced: bool) -> None:
        self.path = folder / "register.json"
        self.lock = asyncio.Lock()
        self.race, self.unsynced = race, unsynced
        self.value = json.loads(self.path.read_text()) if self.path.exists() else None

    def save(self, value: object) -> None:
        aside = self.path.with_suffix(".new")
        with aside.open("w") as file:
            json.dump(value, file)
            file.flush()
            if not self.unsynced:
                os.fsync(file.fileno())
        aside.replace(self.path)
        if not self.unsynced:
            folder = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    async def write(self, value: object) -> None:
        await asyncio.to_thread(self.save, value)
        self.value = value

    async def set(self, value: object) -> None:
        async with self.lock:
            await self.write(value)

    async def compare_and_set(self, old: object, new: object) -> bool:
        if self.race:
            return await self._compare_and_set(old, new)
        async with self.lock:
            return await self._compare_and_set(old, new)

    async def _compare_and_set(self, old: object, new: object) -> bool:
        if self.value != old:
            return False
        await self.write(new)
        return True


async def role(request: web.Request) -> web.Response:
    return web.json_response({"leads": request.app["leads"], "term": 1})


def primary(register: Register) -> web.Application:
    async def read(_: web.Request) -> web.Response:
        return web.json_response({"value": register.value})

    async def write(request: web.Request) -> web.Response:
        await register.set(await request.json())
        return web.json_response(None)

    async def cas(request: web.Request) -> web.Response:
        body = await request.json()
        done = await register.compare_and_set(body["old"], body["new"])
        return web.json_response({"done": done})

    app = web.Application()
    app["leads"] = True
    app.add_routes([web.get("/", read), web.put("/", write), web.post("/cas", cas)])
    app.router.add_get("/role", role)
    return app


def forwarder(address: str) -> web.Application:
    """Return an application for a node that passes each request to the primary."""

    async def session(app: web.Application):
        app["session"] = ClientSession(timeout=ClientTimeout(total=5))
        yield
        await app["session"].close()

    async def forward(request: web.Request) -> web.Response:
        url = f"http://{address}{request.path}"
        try:
            call = request.app["session"].request(request.method, url, data=await request.read())
            async with call as answer:
                body = await answer.read()
                return web.Response(
                    status=answer.status, body=body, content_type="application/json"
                )
        except (ClientError, TimeoutError) as error:
            log.warning("cannot reach the primary: %r", error)
            return web.Response(status=502, text="the primary does not answer")

    app = web.Application()
    app["leads"] = False
    app.cleanup_ctx.append(session)
    app.router.add_get("/role", role)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", help="host:port under which others reach this")
    parser.add_argument("--members", default="", help="host:port of all, first the primary")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--race", action="store_true", help="compare and set without the lock")
    parser.add_argument("--unsynced", action="store_true", help="do not wait for the disk")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    first = options.members.split(",")[0]
    if first in ("", options.address):
        app = primary(Register(options.data, race=options.race, unsynced=options.unsynced))
    else:
        app = forwarder(first)
    web.run_app(app, host=options.host, port=options.port, access_log=None)
