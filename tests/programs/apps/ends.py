"""Programs that end in different ways."""

import asyncio
import atexit
import os
import signal
import sys
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
    """Wait; the `finally` block must not touch the disk after a kill."""
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
    """Raise in a signal handler, as aiohttp's `run_app` does, and catch it around the loop."""

    def stop(*_: object) -> None:
        raise SystemExit(5)

    signal.signal(signal.SIGTERM, stop)
    try:
        asyncio.run(asyncio.sleep(1000))
    except SystemExit:
        print("caught")


async def lives() -> None:
    """Count lives in a file that is never synced, and in one that is."""
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
