"""A register on asyncio's streams alone, with hand-written HTTP and a log file.

The first member keeps the log, to which one task appends. The other members pass requests on to it:
each client connection has its own connection to the first member.
"""

import argparse
import asyncio
import contextlib
import json
import os
from pathlib import Path


class Register:
    """A value, rebuilt from the lines of a log file. Only the task `apply` writes the file."""

    def __init__(self, path: Path, *, race: bool, unsynced: bool) -> None:
        self.race, self.unsynced = race, unsynced
        self.value: object = None
        self.queue: asyncio.Queue = asyncio.Queue()
        self.file = path.open("ab")
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break  # a power cut may leave a part of the last line
            self.value, whole = json.loads(line), whole + len(line)
        self.file.truncate(whole)

    def append(self, lines: bytes) -> None:
        self.file.write(lines)
        self.file.flush()
        if not self.unsynced:
            os.fsync(self.file.fileno())

    async def apply(self) -> None:
        """Check and write the changes that wait, all of them with one sync."""
        while True:
            waiting = [await self.queue.get()]
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            value, lines, outcomes = self.value, [], []
            for old, new, done in waiting:
                changes = old in ([], [value])
                if changes:
                    value = new
                    lines.append(json.dumps(new).encode() + b"\n")
                outcomes.append((done, changes))
            await asyncio.to_thread(self.append, b"".join(lines))
            self.value = value
            for done, changes in outcomes:
                if not done.done():
                    done.set_result(changes)

    async def change(self, old: list, new: object) -> bool:
        """Set the value if it is the one in `old`; an empty `old` matches any value."""
        if self.race and old:  # the race: the value may change before the task writes
            if old != [self.value]:
                return False
            old = []
        done = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((old, new, done))
        return await done

    async def answer(self, method: str, path: str, body: bytes) -> object:
        match method, path:
            case "GET", "/role":
                return {"leads": True, "term": 1}
            case "GET", "/":
                return {"value": self.value}
            case "PUT", "/":
                return {"done": await self.change([], json.loads(body))}
            case "POST", "/cas":
                asked = json.loads(body)
                return {"done": await self.change([asked["old"]], asked["new"])}


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes]:
    """Read a request or an answer: its first line, the whole head, and the body."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:-2])
    body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    return head.partition(b"\r\n")[0], head, body


def answered(status: str, value: object) -> bytes:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def serve_primary(register: Register, reader, writer) -> None:
    while True:
        first, _, body = await message(reader)
        method, path, _ = first.decode().split()
        writer.write(answered("200 OK", await register.answer(method, path, body)))
        await writer.drain()


async def serve_forwarder(primary: str, reader, writer) -> None:
    host, _, port = primary.rpartition(":")
    upstream = None
    try:
        while True:
            first, head, body = await message(reader)
            if first.startswith(b"GET /role "):
                writer.write(answered("200 OK", {"leads": False, "term": 1}))
                continue
            try:
                async with asyncio.timeout(5):
                    upstream = upstream or await asyncio.open_connection(host, int(port))
                    upstream[1].write(head + body)
                    _, head, body = await message(upstream[0])
                writer.write(head + body)
            except (OSError, EOFError):
                writer.write(answered("502 Bad Gateway", "the primary does not answer"))
                # a late answer would be taken for the answer to the next request, so close the
                # connection
                return
            await writer.drain()
    finally:
        if upstream is not None:
            upstream[1].close()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", help="host:port under which others reach this")
    parser.add_argument("--members", default="", help="host:port of all, first the primary")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--race", action="store_true", help="compare before the change's turn")
    parser.add_argument("--unsynced", action="store_true", help="do not wait for the disk")
    options = parser.parse_args()
    first = options.members.split(",")[0]
    register = None
    if first in ("", options.address):
        path = options.data / "register.log"
        register = Register(path, race=options.race, unsynced=options.unsynced)

    async def connected(reader, writer) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            if register is None:
                await serve_forwarder(first, reader, writer)
            else:
                await serve_primary(register, reader, writer)

    server = await asyncio.start_server(connected, options.host, options.port)
    await (server.serve_forever() if register is None else register.apply())
