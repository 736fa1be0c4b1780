"""An ordinary asyncio server and client, which know nothing about the harness."""

import asyncio
import dataclasses
import datetime
import hashlib
import json
import logging
import os
import pathlib
import random
import secrets
import sys
import tempfile
import time
import uuid

log = logging.getLogger("counter")
handled = 0
seen: set[str] = {"a", "b", "zed"}


@dataclasses.dataclass
class Answer:
    total: "int"
    words: list[str]


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global handled
    while line := await reader.readline():
        handled += 1
        word = line.decode().strip()
        seen.add(word)
        log.info("got %s", word)
        path = pathlib.Path("words.txt")
        with path.open("a") as file:
            file.write(word + "\n")
            file.flush()
            os.fsync(file.fileno())
        answer = Answer(handled, list(seen))
        writer.write(json.dumps(dataclasses.asdict(answer)).encode() + b"\n")
        await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(handle, "0.0.0.0", int(sys.argv[1]))
    async with server:
        await server.serve_forever()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve())


async def talk() -> None:
    """Send three words to the server that the arguments name, and print the answers."""
    for word in sys.argv[2:]:
        while True:
            try:
                reader, writer = await asyncio.open_connection(sys.argv[1], 8080)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            break
        writer.write(word.encode() + b"\n")
        print(word, (await reader.readline()).decode().strip())
        writer.close()
        await writer.wait_closed()


async def describe() -> None:
    """Print values that differ each time on a real machine."""
    print(
        time.time(), time.monotonic() >= 0, time.perf_counter_ns() >= 0, time.strftime("%H:%M:%S")
    )
    print(datetime.datetime.now(), datetime.date.today(), datetime.datetime.now(datetime.UTC))
    print(random.random(), random.Random().random(), random.Random(7).random())
    print(os.urandom(4).hex(), secrets.token_hex(4), uuid.uuid4(), uuid.uuid1())
    print(os.getpid(), os.getcwd(), sorted(os.environ.items()), os.listdir("."))
    print({"x", "y", "zed", "w"}, list(set("hash")), hash("text"), {c for c in "comprehension"})
    with tempfile.NamedTemporaryFile("w+") as file:
        print(file.name)
    print(hashlib.sha256(b"").hexdigest()[:8], object())
    tasks = [asyncio.create_task(asyncio.sleep(0, name), name=name) for name in "abcd"]
    done, _ = await asyncio.wait(tasks)
    print([task.get_name() for task in done])
    print(await asyncio.to_thread(lambda: "inline"))
    logging.getLogger().warning("warned")
