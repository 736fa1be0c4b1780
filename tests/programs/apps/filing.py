"""Random programs on files and streams, whose transcripts must not depend on the environment."""

import asyncio
import os
import random
import shutil
from pathlib import Path

NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/b", "missing/a")
MODES = ("r", "w", "a", "x", "r+", "w+", "a+", "rb", "wb", "ab", "r+b", "xb")
FAILURES = (OSError, ValueError, shutil.Error)


def seen(path):
    """Return a path with all its observable properties."""
    return path.exists(), path.is_dir(), path.is_file() and path.stat().st_size


def within_file(draw, path):
    mode = draw.choice(MODES)
    said = [mode]
    with path.open(mode) as file:
        for _ in range(draw.randrange(5)):
            what = draw.choice(("read", "readline", "write", "seek", "tell", "truncate", "flush"))
            content = "line\n" * draw.randrange(3) + "x"
            size = draw.randrange(12)
            try:
                match what:
                    case "read":
                        said.append(file.read(size))
                    case "readline":
                        said.append(file.readline())
                    case "write":
                        said.append(file.write(content.encode() if "b" in mode else content))
                    case "seek":
                        said.append(file.seek(size))
                    case "tell":
                        said.append(file.tell())
                    case "truncate":
                        said.append(file.truncate(size))
                    case "flush":
                        os.fsync(file.fileno())
            except FAILURES as error:
                said.append(type(error).__name__)
    return said


def on_descriptor(descriptor, size):
    return (
        lambda: os.write(descriptor, b"y" * size),
        lambda: os.read(descriptor, size),
        lambda: os.pwrite(descriptor, b"z" * size, 3),
        lambda: os.pread(descriptor, size, 2),
        lambda: os.lseek(descriptor, size, os.SEEK_SET),
        lambda: os.lseek(descriptor, 0, os.SEEK_END),
        lambda: os.ftruncate(descriptor, size),
        lambda: os.fsync(descriptor),
    )


def with_descriptor(draw, path):
    flags = draw.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR))
    for flag in (os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND):
        flags |= flag * (draw.random() < 0.4)
    descriptor = os.open(path, flags, 0o644)
    said = []
    for _ in range(0 if path.is_dir() else draw.randrange(5)):
        size = draw.randrange(9)
        calls = on_descriptor(descriptor, size)
        try:
            said.append(draw.choice(calls)())
        except FAILURES as error:
            said.append(type(error).__name__)
    os.close(descriptor)
    return said


def on_files(draw, path, other):
    return {
        "file": lambda: within_file(draw, path),
        "descriptor": lambda: with_descriptor(draw, path),
        "write": lambda: path.write_text("content"),
        "mkdir": path.mkdir,
        "makedirs": lambda: path.mkdir(parents=True, exist_ok=True),
        "rmdir": path.rmdir,
        "unlink": path.unlink,
        "touch": lambda: path.touch(exist_ok=draw.random() < 0.5),
        "rename": lambda: path.rename(other),
        "replace": lambda: os.replace(path, other),
        "move": lambda: shutil.move(path, other),
        "copy": lambda: shutil.copy(path, other),
        "copytree": lambda: shutil.copytree(path, other, dirs_exist_ok=True),
        "rmtree": lambda: shutil.rmtree(path),
        "list": lambda: sorted(os.listdir(path)),
        "walk": lambda: sorted(map(str, path.rglob("*"))),
        "same": lambda: path.samefile(other),
        "truncate": lambda: os.truncate(path, 3),
    }


def filed(seed):
    """Make random calls on files and folders; return each result or error, and the final content."""
    draw = random.Random(seed)
    root = Path(f"case-{seed}")
    root.mkdir()
    said = []
    for _ in range(25):
        path, other = root / draw.choice(NAMES), root / draw.choice(NAMES)
        calls = on_files(draw, path, other)
        name = draw.choice(list(calls))
        if name == "copytree" and path in other.parents:
            continue  # a copy into itself would never end
        try:
            result = calls[name]()
            result = str(result) if isinstance(result, Path) else result
        except FAILURES as error:
            result = f"{type(error).__name__} {getattr(error, 'errno', None)}"
        said.append(f"{name} {path} {other}: {result!r} {seen(path)}")
    said += [f"{path}: {seen(path)}" for path in sorted(root.rglob("*"))]
    said += [path.read_text() for path in sorted(root.rglob("*")) if path.is_file()]
    return said


async def streamed(seed):
    """Send lines and blocks both ways over streams, with waits, half ends and large writes."""
    draw = random.Random(seed)
    said, closed = [], asyncio.get_running_loop().create_future()
    blocks = [draw.randrange(1, 400_000) for _ in range(draw.randrange(1, 6))]
    fails = draw.random() < 0.2

    async def serve(reader, writer):
        try:
            for size in blocks:
                head = await reader.readuntil(b"\n")
                body = await reader.readexactly(int(head))
                await asyncio.sleep(draw.choice((0, 1)))
                writer.write(body[::-1])
                await writer.drain()
                said.append(f"served {size}")
            if fails:
                raise ValueError("a mistake of the server")
            said.append(f"rest {len(await reader.read())} {reader.at_eof()}")
            writer.write(b"bye")
        finally:
            writer.close()
            await writer.wait_closed()
            closed.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**14)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("localhost", port, limit=2**14)
    for size in blocks:
        writer.write(b"%d\n" % size + bytes(size))
        await writer.drain()
        answer = await reader.readexactly(size)
        said.append(f"answer {len(answer)}")
    if not fails:  # a write to a closed end causes a reset, sooner or later
        writer.write(b"rest")
        writer.write_eof()
    said.append(f"end {await reader.read()}")
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    await closed
    server.close()
    await server.wait_closed()
    try:
        await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        said.append(f"{type(error).__name__} {error.errno}")
    return [*said, server.is_serving()]
