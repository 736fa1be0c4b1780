"""A register in PostgreSQL. The server greets, reads one JSON line, and answers with one.

It implements PostgreSQL's simple query protocol, so it needs only Python.
"""

import asyncio
import contextlib
import json
import struct
import sys

DATABASE_S = 5.0  # the database's time limit for a whole request


async def answer(reader):
    """Read the answer to one query: its first column, and the tag of the command."""
    rows, done, error = [], "", ""
    while True:
        kind, length = struct.unpack("!ci", await reader.readexactly(5))
        body = await reader.readexactly(length - 4)
        if kind == b"D":
            size = struct.unpack("!i", body[2:6])[0]
            rows.append(None if size < 0 else int(body[6 : 6 + size]))
        elif kind == b"C":
            done = body[:-1].decode()
        elif kind == b"E":
            error = body.replace(b"\0", b" ").decode()
        elif kind == b"Z":
            if error:
                raise ValueError(error)
            return rows, done


async def execute(address, sql, asked):
    """Run one statement over a new connection; set `asked` once the statement may have run."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        hello = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
        writer.write(struct.pack("!i", len(hello) + 4) + hello)
        await answer(reader)
        asked.set()
        writer.write(b"Q" + struct.pack("!i", len(sql) + 5) + sql.encode() + b"\0")
        return await answer(reader)
    finally:
        writer.close()


async def respond(address, request):
    """Carry out one request; return its result, or the error and whether it may have run."""
    asked = asyncio.Event()
    if request["f"] == "read":
        sql = "select value from register"
    else:
        only = f" where value = {int(request['old'])}" if request["f"] == "cas" else ""
        sql = f"update register set value = {int(request['value'])}{only}"
    try:
        async with asyncio.timeout(DATABASE_S):
            rows, done = await execute(address, sql, asked)
    except (OSError, EOFError, TimeoutError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:200], "asked": asked.is_set()}
    return {"value": rows[0]} if request["f"] == "read" else {"changed": done == "UPDATE 1"}


async def main(host, port, database):
    """Serve until killed."""

    async def serve(reader, writer):
        with contextlib.suppress(OSError):
            writer.write(b"hello\n")
            while line := await reader.readline():
                reply = await respond(database, json.loads(line))
                writer.write(json.dumps(reply).encode() + b"\n")
            writer.close()

    server = await asyncio.start_server(serve, host, port)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
