"""A server that starts to listen after three seconds."""

import asyncio
import sys


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
    writer.close()


async def main() -> None:
    await asyncio.sleep(3)
    server = await asyncio.start_server(answer, None, int(sys.argv[1]))
    print("late, but ready")
    await server.serve_forever()
