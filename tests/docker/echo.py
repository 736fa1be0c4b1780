"""A small node that answers commands, writes a file, and sends messages to its peers."""

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from harness.env import Address, Conn, Env

PORT = 7051


def _capabilities() -> str:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("CapEff"))


async def _answer(env: Env, request: list[str]) -> Any:
    match request:
        case ["who"]:
            return {
                "name": env.name,
                "boot": env.boot,
                "uid": os.geteuid(),
                "caps": _capabilities(),
            }
        case ["append", text]:
            file = await env.disk.open("log")
            try:
                await file.append(text.encode())
                await file.sync()
            except OSError as error:
                return errno.errorcode[error.errno or 0]
            return None
        case ["work", time_s]:  # use this much processor time, and answer with the elapsed time
            begin_s, end_s = time.monotonic(), time.process_time() + float(time_s)
            while time.process_time() < end_s:
                pass
            return time.monotonic() - begin_s
        case ["wall"]:
            return env.clock.wall_ns()
        case ["read"]:
            return (await env.disk.read("log")).decode()
        case ["ask", peer, timeout_s]:
            # report whether the peer replies in time over a new connection
            try:
                async with asyncio.timeout(float(timeout_s)):
                    conn = await env.net.connect(Address(peer, PORT))
                    await conn.send(msgspec.json.encode(["who"]))
                    return msgspec.json.decode(await conn.recv() or b"null")["name"]
            except (TimeoutError, OSError) as error:
                return type(error).__name__
        case ["spin", time_s]:  # compute on the processor that all nodes share
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            end_s = env.clock.monotonic_ns() / 1e9 + float(time_s)
            while env.clock.monotonic_ns() / 1e9 < end_s:
                pass
            return None
        case ["exit", code]:
            os._exit(int(code))
        case ["event", kind]:
            env.event(kind, group="g", term=1)
            return None
    raise ValueError(f"unknown request {request}")


async def main(env: Env, config: dict[str, Any]) -> None:
    async def serve(conn: Conn) -> None:
        try:
            while (frame := await conn.recv()) is not None:
                await conn.send(msgspec.json.encode(await _answer(env, msgspec.json.decode(frame))))
        except ConnectionResetError:
            pass

    await env.net.listen(PORT, serve)
    env.event("listening", greeting=config["greeting"])
    await asyncio.Event().wait()
