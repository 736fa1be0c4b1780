"""Nodes for the tests of the process environment, written against `Env`."""

import asyncio
import errno
import json
from typing import Any

from harness.env import Address, Conn, Env

PORT = 7000


async def ask(env: Env, address: Address, request: dict[str, Any], timeout_s: float) -> Any:
    async with asyncio.timeout(timeout_s):
        conn = await env.net.connect(address)
        try:
            await conn.send(json.dumps(request).encode())
            answer = await conn.recv()
        finally:
            conn.close()
    if answer is None:
        raise ConnectionResetError("hung up")
    return json.loads(answer)


async def main(env: Env, config: dict[str, Any]) -> None:
    heard: list[Any] = []

    async def remember(word: str) -> None:
        file = await env.disk.open("words/log")
        await file.append(word.encode() + b"\n")
        await file.sync()
        file.close()

    async def answer(request: dict[str, Any], peer: str) -> Any:
        match request:
            case {"echo": text}:
                heard.append(text)
                env.event("heard", text=text)
                return {"from": env.name, "boot": env.boot, "peer": peer, "echo": text}
            case {"ask": node, "text": text, "for_s": for_s}:
                try:
                    return await ask(env, Address(node, PORT), {"echo": text}, for_s)
                except (ConnectionError, TimeoutError) as error:
                    return {"error": type(error).__name__}
            case {"heard": _}:
                return heard
            case {"remember": word}:
                try:
                    await remember(word)
                except OSError as error:
                    return {"error": errno.errorcode[error.errno]}
                return {}
            case {"clock": _}:
                return {"wall_ns": env.clock.wall_ns()}
            case {"recall": _}:
                try:
                    return (await env.disk.read("words/log")).decode().split()
                except FileNotFoundError:
                    return []
            case {"announce": kind, "data": data}:
                env.event(kind, **data)
                return {}
            case {"panic": text}:
                raise RuntimeError(text)
        raise ValueError(request)

    async def serve(conn: Conn) -> None:
        while (frame := await conn.recv()) is not None:
            await conn.send(json.dumps(await answer(json.loads(frame), conn.peer)).encode())
        conn.close()

    await env.net.listen(PORT, serve)
    env.event("ready", boot=env.boot, config=config, draw=env.random.random())
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if config.get("stumbles"):
            raise RuntimeError("asked to end, it fails") from None
        raise
