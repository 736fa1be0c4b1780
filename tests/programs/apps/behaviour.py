"""Small random programs on asyncio, whose transcripts must not depend on the event loop.

`converse` makes both ends of a connection do random things, and writes down the calls that their
protocols receive. `schedule` runs tasks that wait for each other in random ways, and writes down
their order.
"""

import asyncio
import json
import random
import sys

from tests.programs.apps.filing import filed, streamed

SETTLED_S = 5.0
FAILURES = (RuntimeError, ValueError, OSError)


class End(asyncio.Protocol):
    """One end of a connection; it records every call, with the number of bytes received in between."""

    def __init__(self, name, heard, *, keeps_open):
        self.name, self.heard, self.keeps_open = name, heard, keeps_open
        self.bytes = 0
        self.lost = asyncio.get_running_loop().create_future()

    def note(self, what):
        self.heard.append(f"{self.name} {what}")

    def connection_made(self, transport):
        self.transport = transport
        self.note("made")

    def data_received(self, data):
        self.bytes += len(data)

    def eof_received(self):
        self.flush()
        self.note("eof")
        return self.keeps_open

    def connection_lost(self, error):
        self.flush()
        self.note(f"lost {type(error).__name__}")
        self.lost.set_result(None)

    def flush(self):
        if self.bytes:
            self.note(f"got {self.bytes}")
            self.bytes = 0

    def do(self, what, size):
        transport = self.transport
        try:
            if what == "write":
                transport.write(bytes(size))
            elif what == "write twice":
                transport.writelines([bytes(size), b"x"])
            else:
                getattr(transport, what)()
        except FAILURES as error:
            self.note(f"{what}: {type(error).__name__}")

    def state(self):
        transport = self.transport
        return f"{transport.is_closing():d}{transport.is_reading():d}"


CALLS = (
    *("write", "write", "write", "write twice", "write_eof", "close", "abort"),
    *("pause_reading", "resume_reading"),
)


async def converse(seed):
    """Hold one conversation: make one or two calls, then wait until all is quiet, and repeat."""
    draw = random.Random(seed)
    heard = []
    loop = asyncio.get_running_loop()
    accepted = loop.create_future()

    def accept():
        end = End("s", heard, keeps_open=draw_open[1])
        accepted.set_result(end)
        return end

    draw_open = draw.random() < 0.5, draw.random() < 0.5
    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = End("c", heard, keeps_open=draw_open[0])
    await loop.create_connection(lambda: client, "127.0.0.1", port)
    ends = client, await accepted
    await asyncio.sleep(SETTLED_S)
    heard.sort()  # which end hears first depends on latency
    for _ in range(draw.randrange(2, 9)):
        end = draw.choice(ends)
        # A write to a peer that has closed causes a reset; on loopback, it arrives before the next
        # call.
        closed = any(each.transport.is_closing() for each in ends)
        for _ in range(1 if closed else draw.choice((1, 1, 2, 3))):
            what, size = draw.choice(CALLS), draw.randrange(1, 3000)
            heard.append(f"{end.name}: {what}")
            end.do(what, size)
        begun = len(heard)
        await asyncio.sleep(SETTLED_S)
        for each in ends:
            each.flush()
        # Only each end's own order is compared; the order between the ends depends on latency.
        heard[begun:] = sorted(heard[begun:], key=lambda text: text[0])
        heard.append(" ".join(each.state() for each in ends))
    for end in ends:
        end.transport.abort()
    await asyncio.gather(*(end.lost for end in ends))
    server.close()
    return heard


class Plan:
    """A plan of tasks that share locks, events and queues, and wait for each other."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.heard = []
        self.lock, self.event = asyncio.Lock(), asyncio.Event()
        self.queue, self.few = asyncio.Queue(2), asyncio.Semaphore(2)
        self.condition = asyncio.Condition()
        self.tasks = []

    def delay(self):
        return self.draw.uniform(0.01, 1)

    async def values(self, name):
        try:
            for number in range(3):
                yield number
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            self.heard.append(f"{name} generator closed")

    async def step(self, name, kind):
        loop = asyncio.get_running_loop()
        match kind:
            case "yield":
                await asyncio.sleep(0)
            case "sleep":
                await asyncio.sleep(self.delay())
            case "lock":
                async with self.lock:
                    self.heard.append(f"{name} locked")
                    await asyncio.sleep(0)
            case "few":
                async with self.few:
                    await asyncio.sleep(self.delay())
            case "set":
                self.event.set()
            case "clear":
                self.event.clear()
            case "event":
                await asyncio.wait_for(self.event.wait(), self.delay())
            case "put":
                await asyncio.wait_for(self.queue.put(name), self.delay())
            case "get":
                self.heard.append(
                    f"{name} got {await asyncio.wait_for(self.queue.get(), self.delay())}"
                )
            case "notify":
                async with self.condition:
                    self.condition.notify(1)
            case "condition":
                async with asyncio.timeout(self.delay()), self.condition:
                    await self.condition.wait()
            case "cancel":
                self.draw.choice(self.tasks).cancel()
            case "soon":
                loop.call_soon(self.heard.append, f"{name} soon")
                loop.call_soon_threadsafe(self.heard.append, f"{name} threadsafe")
            case "later":
                loop.call_later(self.delay(), self.heard.append, f"{name} later")
                loop.call_at(loop.time() + self.delay(), self.heard.append, f"{name} at")
                loop.call_later(self.delay(), self.heard.append, "never").cancel()
            case "callback fails":
                loop.call_soon(lambda: 1 / 0)
            case "fails":
                raise ValueError(name)
            case "shield":
                inner = asyncio.ensure_future(self.step(name, "sleep"))
                await asyncio.shield(inner)
            case "gather":
                parts = [self.step(name, "lock"), self.step(name, "fails"), asyncio.sleep(0)]
                results = await asyncio.gather(*parts, return_exceptions=True)
                self.heard.append(f"{name} gathered {[repr(each) for each in results]}")
            case "group":
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self.step(name, "sleep"))
                        group.create_task(self.step(name, "fails"))
                except* ValueError as errors:
                    self.heard.append(f"{name} group {len(errors.exceptions)}")
            case "wait":
                parts = [asyncio.create_task(asyncio.sleep(self.delay())) for _ in range(3)]
                done, left = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                self.heard.append(f"{name} done {len(done)} left {len(left)}")
            case "completed":
                parts = [asyncio.sleep(self.delay(), number) for number in range(3)]
                order = [await each for each in asyncio.as_completed(parts)]
                self.heard.append(f"{name} completed {order}")
            case "generator":
                async for number in self.values(name):
                    self.heard.append(f"{name} value {number}")
                    if number == 1:
                        break
                await asyncio.sleep(self.delay())
            case "thread":
                self.heard.append(f"{name} {await asyncio.to_thread(str.upper, name)}")

    async def run(self, name, kinds):
        for number, kind in enumerate(kinds):
            self.heard.append(f"{name}{number} {kind}")
            try:
                await self.step(name, kind)
            except (ValueError, TimeoutError) as error:
                self.heard.append(f"{name}{number} {type(error).__name__}")
            except asyncio.CancelledError:
                self.heard.append(f"{name}{number} cancelled")
                if self.draw.random() < 0.5:
                    raise
        return name


KINDS = (
    *("yield", "sleep", "lock", "few", "set", "clear", "event", "put", "get", "notify"),
    *("condition", "cancel", "soon", "later", "callback fails", "fails", "shield", "gather"),
    *("group", "wait", "completed", "generator"),
)


async def schedule(seed):
    plan = Plan(seed)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: plan.heard.append(f"handler {context.get('exception')!r}")
    )
    for name in "abcd":
        kinds = plan.draw.choices(KINDS, k=6)
        plan.tasks.append(asyncio.create_task(plan.run(name, kinds), name=name))
    results = await asyncio.gather(*plan.tasks, return_exceptions=True)
    await asyncio.sleep(20)
    loop.set_exception_handler(None)
    return [*plan.heard, *map(repr, results)]


async def file(seed):
    return filed(seed)


PARTS = {"converse": converse, "schedule": schedule, "file": file, "stream": streamed}


async def transcripts(kind, count):
    return [await PARTS[kind](seed) for seed in range(count)]


async def main():
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for lines in await transcripts(sys.argv[1], int(sys.argv[2])):
        text = json.dumps(lines)
        for start in range(0, len(text), 4000):
            print(">", text[start : start + 4000])
        print("<")
