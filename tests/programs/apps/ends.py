"""Programs that end in different ways, or react differently to signals."""

import asyncio
import atexit
import os
import signal
import sys
import time
import warnings


def code() -> None:
    atexit.register(print, "at exit")
    sys.exit(3)


async def warns() -> None:
    warnings.warn("careful", stacklevel=1)
    print("after")


async def fails() -> None:
    raise ValueError("a mistake")


async def waits() -> None:
    """Wait until killed; the `finally` block must not touch the disk after a kill."""
    try:
        await asyncio.sleep(1000)
    finally:
        with open("after", "w") as file:
            file.write("x")


def handles() -> None:
    """Handle SIGTERM as servers do."""

    async def body() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        print("stopped")

    asyncio.run(body())


def interrupted() -> None:
    """Clean up on SIGINT, as `asyncio.run` does."""

    async def body() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            print("cleaned")

    try:
        asyncio.run(body())
    except KeyboardInterrupt:
        print("interrupted")


def raises_in_handler() -> None:
    """Raise in a signal handler and catch the exception around the loop, like aiohttp's `run_app`."""

    def stop(*_: object) -> None:
        raise SystemExit(5)

    signal.signal(signal.SIGTERM, stop)
    try:
        asyncio.run(asyncio.sleep(1000))
    except SystemExit:
        print("caught")


async def lives() -> None:
    """Count starts in two files, of which only one is synced."""
    for name in ("synced", "unsynced"):
        with open(name, "a") as file:
            file.write("x" * 10)
            file.flush()
            if name == "synced":
                os.fsync(file.fileno())
    with open("new", "w") as file:
        file.write("content")
    os.replace("new", "renamed")
    await asyncio.sleep(1000)


left_open = []


async def leaves_a_file_open() -> None:
    left_open.append(open("left", "w"))  # noqa: SIM115 - the interpreter flushes it at its end
    left_open[0].write("kept")


async def measures() -> None:
    """Sleep after a blocking call, and measure the sleep by both clocks."""
    with open("file", "w") as file:
        file.write("x")
        file.flush()
        os.fsync(file.fileno())
    start, begun = time.monotonic(), asyncio.get_running_loop().time()
    await asyncio.sleep(0.01)
    print(start == begun, time.monotonic() - start >= 0.01, os.stat("file").st_mtime > 1e9)


async def answers_once() -> None:
    """Answer one line with another, and read no more."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.transport.pause_reading()
        await asyncio.sleep(1000)

    server = await asyncio.start_server(answer, "0.0.0.0", int(sys.argv[1]))
    await server.serve_forever()


async def asks() -> None:
    """Read an answer and the rest of the stream from a server that has been killed in the meantime."""
    reader, writer = await asyncio.open_connection(sys.argv[1], 8080)
    writer.write(b"line\n")
    await asyncio.sleep(1)
    writer.write(b"unread" * int(sys.argv[2]))
    await asyncio.sleep(5)
    try:
        print(await reader.read())
    except ConnectionResetError:
        print("reset")
    writer.close()
