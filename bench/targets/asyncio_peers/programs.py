"""Programs from simloop's documentation: a lost update of two clients, and plain exchanges."""

import asyncio
import os

PORT = 8080
HOST = None  # the host that servers bind; simloom finds a server only by this name
count = 0


async def handle(reader, writer):
    global count
    line = await reader.readline()
    if line == b"get\n":
        writer.write(b"%d\n" % count)
    else:
        count = int(line)
        writer.write(b"ok\n")
    writer.close()


async def serve():
    server = await asyncio.start_server(handle, HOST, PORT)
    async with server:
        await server.serve_forever()


async def call(line):
    reader, writer = await asyncio.open_connection("counter", PORT)
    writer.write(line)
    reply = await reader.readline()
    writer.close()
    return reply


async def increment():
    """Read the counter, and write it back increased by one."""
    await asyncio.sleep(float(os.environ.get("START_S", "0")))
    seen = int(await call(b"get\n"))
    await call(b"%d\n" % (seen + 1))


async def echo(reader, writer):
    while line := await reader.readline():
        writer.write(line)
    writer.close()


async def exchange(host, exchanges):
    """Send lines to an echo server, one after the other."""
    reader, writer = await asyncio.open_connection(host, PORT)
    for _ in range(exchanges):
        writer.write(b"line\n")
        await reader.readline()
    writer.close()


async def serve_echo():
    server = await asyncio.start_server(echo, HOST, PORT)
    async with server:
        await server.serve_forever()


async def exchange_with_counter():
    await exchange("counter", int(os.environ["EXCHANGES"]))
