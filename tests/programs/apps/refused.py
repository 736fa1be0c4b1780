"""Programs that need features which the simulation does not have."""

import asyncio
import socket
import threading
import time


async def thread() -> None:
    threading.Thread(target=print).start()


async def sleep() -> None:
    time.sleep(1)


async def connect() -> None:
    socket.create_connection(("n1", 80))


async def receive() -> None:
    socket.socket().recv(1)


async def subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


async def popen() -> None:
    import subprocess

    subprocess.run(["true"], check=False)


async def tls() -> None:
    import ssl

    await asyncio.open_connection("n1", 1, ssl=ssl.create_default_context())


async def fork() -> None:
    import os

    os.fork()


async def sqlite() -> None:
    import sqlite3

    sqlite3.connect("file.db")


async def reader() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def swallowed() -> None:
    try:
        time.sleep(1)
    except BaseException:
        pass
    await asyncio.sleep(100)
