"""A target in memory that supports every vocabulary of objects, with bugs to switch on.

One node on `Env` holds one object and stores it on its disk. The target's option `object` names the
vocabulary. Each bug in `BUGS` breaks a promise at random moments, which the node draws. Install the
target with `installed_objects`.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from harness.cluster import NodeSpec
from harness.env import Address, ClientEnv, Conn, Env
from harness.ops import Attempt, Completion, OpType, Request
from harness.plugins import Convergence, Deployment, NodeRole, Option, Roles, System, Target
from harness.plugins import TargetSettings as Settings
from tests.support.distributions import installed

PORT = 7000
NODE = Address("n1", PORT)
HISTORY = 40
"""The number of earlier states from which a stale read may choose."""
Answer = dict[str, Any]
OK: Answer = {"result": "ok"}
REFUSED: Answer = {"result": "refused"}


class Thing:
    """One object: `state` is plain JSON, and `do` answers one operation."""

    first: ClassVar[Any] = None
    reads: frozenset[str] = frozenset({"read"})
    bugs: ClassVar[Mapping[str, str]] = {}

    def __init__(self, state: Any, broken: Callable[[str], bool], rng: random.Random) -> None:
        self.state, self.broken, self.rng = state, broken, rng
        self.before: list[bytes] = []
        self.now_ns: Callable[[], int] = lambda: 0

    def do(self, f: str, value: Any, session: int) -> Answer:
        raise AssertionError(f"{type(self).__name__} does not know {f!r}")

    def seen(self) -> Any:
        """Return the state that a read shows; with the bug `stale-read`, at times an older one."""
        if self.before and self.broken("stale-read"):
            return msgspec.json.decode(self.rng.choice(self.before))
        return self.state

    def remember(self) -> bytes:
        """Return the state as bytes, and keep it for stale reads."""
        data = msgspec.json.encode(self.state)
        self.before = [*self.before[-HISTORY:], data]
        return data


class SetThing(Thing):
    """The vocabulary `set`; with the bug `reverse`, adds become visible late."""

    first: ClassVar[Any] = []
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-add": "an acknowledged element is not stored",
        "forget": "an element leaves the set",
        "stale-read": "a read shows an earlier state",
        "repeat": "a read shows an element twice",
        "invent": "a read shows an element that was never added",
        "reverse": "an element is hidden for a while, but not the later ones",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        if f == "add":
            if not self.broken("lose-add"):
                self.state.append(value["value"])
            return OK
        elements = list(self.seen())
        if elements and self.broken("forget"):
            self.state.remove(self.rng.choice(self.state))
            elements = list(self.state)
        if elements and self.broken("repeat"):
            elements.append(elements[0])
        if self.broken("invent"):
            elements.append(10**9)
        if len(elements) > 5 and self.broken("reverse"):
            elements.pop(self.rng.randrange(len(elements) - 5, len(elements) - 1))
        return {**OK, "value": elements}


class CounterThing(Thing):
    """The vocabulary `counter`."""

    first: ClassVar[Any] = 0
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-add": "an acknowledged add changes nothing",
        "double-add": "an add counts twice",
        "stale-read": "a read shows an earlier state",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        if f == "add":
            times = 0 if self.broken("lose-add") else 2 if self.broken("double-add") else 1
            self.state += value["amount"] * times
            return OK
        return {**OK, "value": self.seen()}


class BankThing(Thing):
    """The vocabulary `bank`, with eight accounts of 10 each."""

    first: ClassVar[Any] = {str(account): 10 for account in range(8)}
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-money": "a transfer takes the amount, and no account gets it",
        "overdraw": "a transfer does not look at the balance",
        "torn-read": "a read sees one account as it was before",
        "no-balance": "a read shows an account without its balance",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        if f == "read":
            balances = dict(self.state)
            if self.before and self.broken("torn-read"):
                account = self.rng.choice(sorted(balances))
                balances[account] = msgspec.json.decode(self.rng.choice(self.before))[account]
            if self.broken("no-balance"):
                balances["0"] = None
            return {**OK, "value": balances}
        source, target = str(value["from"]), str(value["to"])
        if self.state[source] < value["amount"] and not self.broken("overdraw"):
            return REFUSED
        self.state[source] -= value["amount"]
        if not self.broken("lose-money"):
            self.state[target] += value["amount"]
        return OK


class QueueThing(Thing):
    """The vocabulary `queue`: first in, first out."""

    first: ClassVar[Any] = []
    reads = frozenset()
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-element": "an acknowledged element is not stored",
        "deliver-twice": "a dequeue leaves the element in the queue",
        "invent": "a dequeue gets an element that was never enqueued",
        "reorder": "a dequeue takes the newest element",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        if f == "enqueue":
            if not self.broken("lose-element"):
                self.state.append(value["value"])
            return OK
        if f == "drain":
            taken, self.state = self.state, []
            return {**OK, "value": taken}
        if self.broken("invent"):
            return {**OK, "value": 10**9}
        if not self.state:
            return {**OK, "value": None}
        place = -1 if self.broken("reorder") else 0
        element = self.state[place] if self.broken("deliver-twice") else self.state.pop(place)
        return {**OK, "value": element}


class LockThing(Thing):
    """The vocabulary `lock`; the state is the session that holds the lock."""

    reads = frozenset()
    bugs: ClassVar[Mapping[str, str]] = {
        "two-holders": "an acquire succeeds although another client has the lock",
        "lost-release": "an acknowledged acquire is forgotten",
        "stuck": "the lock stays held after an acknowledged release",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        if f == "close":
            self.state = None if self.state == session else self.state
            return OK
        if f == "acquire":
            if self.state is not None and not self.broken("two-holders"):
                return REFUSED
            self.state = None if self.broken("lost-release") else session
            return OK
        if self.state != session:
            return REFUSED
        self.state = -1 if self.broken("stuck") else None
        return OK


class LogsThing(Thing):
    """The vocabulary `logs`: the state has the logs, and the next offset of each session's keys."""

    first: ClassVar[Any] = {"logs": {}, "at": {}, "next": 0}
    reads = frozenset()
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-message": "an acknowledged message is not stored",
        "append-twice": "a message is stored twice",
        "same-offset": "a message replaces the last one",
        "skip-message": "a poll leaves out a message",
        "step-back": "a poll shows the last message again",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        if f == "assign":
            self.state["at"][str(session)] = dict.fromkeys(value["keys"], 0)
            return OK
        if f == "send":
            return {**OK, "value": self._send(value["key"], value["value"])}
        at, answer = self.state["at"].get(str(session), {}), {}
        for key, offset in at.items():
            log = self.state["logs"].get(key, [])
            back = bool(offset) and self.broken("step-back")
            new = [each for each in log if each[0] >= offset - back][:50]
            if len(new) > 1 and self.broken("skip-message"):
                new.pop(self.rng.randrange(len(new) - 1))
            answer[key] = new
            at[key] = new[-1][0] + 1 if new else at[key]
        return {**OK, "value": answer}

    def _send(self, key: str, message: int) -> int:
        log = self.state["logs"].setdefault(key, [])
        if log and self.broken("same-offset"):
            log.pop()
            self.state["next"] -= 1
        for _ in range(2 if self.broken("append-twice") else 1):
            if not self.broken("lose-message"):
                log.append([self.state["next"], message])
            self.state["next"] += 1
        return self.state["next"] - 1


class LeaseThing(Thing):
    """The vocabulary `lease`: the holder, the end of its lease, and the last token."""

    first: ClassVar[Any] = {"holder": None, "end_ns": 0, "token": 0}
    reads = frozenset()
    bugs: ClassVar[Mapping[str, str]] = {
        "early-end": "a lease ends after a third of its time",
        "old-token": "an acquire gets the last token again",
        "lower-token": "an acquire gets a lower token",
        "any-release": "a client releases the lock of another",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        state, now_ns = self.state, self.now_ns()
        free = state["holder"] is None or now_ns >= state["end_ns"]
        if f == "release":
            if (free or state["holder"] != session) and not self.broken("any-release"):
                return REFUSED
            state["holder"] = None
            return OK
        if not free:
            return REFUSED
        part = 3 if self.broken("early-end") else 1
        state["holder"] = session
        state["end_ns"] = now_ns + value["lease_ms"] * 1_000_000 // part
        state["token"] += 0 if self.broken("old-token") else 2
        return {**OK, "value": state["token"] - (5 if self.broken("lower-token") else 0)}


class IdThing(Thing):
    """The vocabulary `ids`."""

    first: ClassVar[Any] = 0
    reads = frozenset()
    bugs: ClassVar[Mapping[str, str]] = {"repeat-id": "an id is given out again"}

    def do(self, f: str, value: Any, session: int) -> Answer:
        if not self.state or not self.broken("repeat-id"):
            self.state += 1
        return {**OK, "value": self.state}


class RegistersThing(Thing):
    """The vocabulary `registers`."""

    first: ClassVar[Any] = {}
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-write": "an acknowledged write is not stored",
        "stale-read": "a read shows an earlier state",
        "blind-cas": "a compare-and-set does not compare",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        key = value["key"]
        if f == "read":
            return {**OK, "value": self.seen().get(key)}
        if f == "cas" and self.state.get(key) != value["old"] and not self.broken("blind-cas"):
            return {"result": "mismatch"}
        if not self.broken("lose-write"):
            self.state[key] = value["new" if f == "cas" else "value"]
        return OK


class TxnThing(Thing):
    """The vocabularies `list-append` and `rw-register`."""

    first: ClassVar[Any] = {}
    bugs: ClassVar[Mapping[str, str]] = {
        "lose-write": "an acknowledged write is not stored",
        "stale-read": "a transaction that only reads sees an earlier state",
        "fork": "odd clients see writes of odd keys late, even clients writes of even keys",
    }

    def do(self, f: str, value: Any, session: int) -> Answer:
        only_reads = all(kind == "r" for kind, _, _ in value)
        state = self.seen() if only_reads else self.state
        late = only_reads and self.broken("fork")
        answer = []
        for kind, key, new in value:
            if kind == "r":
                hidden = late and self._is_late(key, session)
                answer.append(["r", key, None if hidden else state.get(key)])
                continue
            if not self.broken("lose-write"):
                before = state.get(key)
                state[key] = [*(before or []), new] if kind == "append" else new
            answer.append([kind, key, new])
        return {**OK, "value": answer}

    def _is_late(self, key: str, session: int) -> bool:
        """Whether the key is among the newest, which this client's replica does not have yet."""
        newest = list(self.state)[-6:]
        number = key.removeprefix("k")
        return key in newest and number.isdigit() and int(number) % 2 == session % 2


class InsertsThing(Thing):
    """The vocabulary `inserts`; the state is the list of inserted keys."""

    first: ClassVar[Any] = []
    reads = frozenset()
    bugs: ClassVar[Mapping[str, str]] = {"write-skew": "an insert does not see the other one"}

    def do(self, f: str, value: Any, session: int) -> Answer:
        if value["key"] in self.state and not self.broken("write-skew"):
            return REFUSED
        self.state.append(value["key"])
        return OK


THINGS: dict[str, type[Thing]] = {
    "set": SetThing,
    "counter": CounterThing,
    "bank": BankThing,
    "queue": QueueThing,
    "lock": LockThing,
    "ids": IdThing,
    "logs": LogsThing,
    "lease": LeaseThing,
    "registers": RegistersThing,
    "list-append": TxnThing,
    "rw-register": TxnThing,
    "inserts": InsertsThing,
}
BUGS = {bug: text for thing in THINGS.values() for bug, text in thing.bugs.items()}
BUG_PERCENT = 10


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run the node: it answers one JSON frame with another, once a change is synced."""
    kind, bugs = THINGS[config["object"]], frozenset(config["bugs"])
    try:
        state = msgspec.json.decode(await env.disk.read("object"))
    except FileNotFoundError:
        state = msgspec.json.decode(msgspec.json.encode(kind.first))

    def broken(bug: str) -> bool:
        return bug in bugs and env.random.randrange(100) < BUG_PERCENT

    thing = kind(state, broken, env.random)
    thing.now_ns = env.clock.wall_ns
    lock = asyncio.Lock()

    async def answer(request: dict[str, Any]) -> Answer:
        async with lock:
            reply = thing.do(request["f"], request["value"], request["session"])
            if request["f"] not in thing.reads:
                await env.disk.replace("object", thing.remember())
            return reply

    async def serve(conn: Conn) -> None:
        with contextlib.suppress(ConnectionResetError):
            while (frame := await conn.recv()) is not None:
                await conn.send(msgspec.json.encode(await answer(msgspec.json.decode(frame))))

    await env.net.listen(PORT, serve)
    env.event("leader", group="object", term=env.boot + 1)
    await asyncio.Event().wait()


class ObjectClient:
    """A client of one process, whose number is its session; `close` ends the session."""

    def __init__(self, env: ClientEnv, session: int, kind: str) -> None:
        self.env, self.session, self.kind = env, session, kind
        self.conn: Conn | None = None

    async def _ask(self, f: str, value: Any) -> Answer | None:
        self.conn = self.conn or await self.env.net.connect(NODE)
        request = {"f": f, "value": value, "session": self.session}
        await self.conn.send(msgspec.json.encode(request))
        frame = await self.conn.recv()
        return None if frame is None else msgspec.json.decode(frame)

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Carry out a request; without an answer, a change is `info` and a read is `fail`."""
        start = self.env.clock.monotonic_ns()
        reply, error = None, "CLOSED: the node closed the connection"
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._ask(request.f, request.value)
        except (OSError, TimeoutError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        end = self.env.clock.monotonic_ns()
        attempts = (Attempt("n1", start, end, "ok" if reply else error),)
        if reply is None:
            self._drop()
            only_reads = request.f in THINGS[self.kind].reads
            kind = OpType.FAIL if only_reads else OpType.INFO
            return Completion(kind, None, error, None, attempts)
        kind = OpType.OK if reply["result"] == "ok" else OpType.FAIL
        value = reply["value"] if request.f == "txn" else reply
        return Completion(kind, value, None, "n1", attempts)

    def _drop(self) -> None:
        if self.conn is not None:
            self.conn.close()
            self.conn = None

    async def close(self) -> None:
        if self.kind == "lock":
            with contextlib.suppress(OSError):
                await self._ask("close", {})
        self._drop()


class Objects(Target):
    api_version = 2
    name = "objects"
    doc = "for tests: one object in memory, in any vocabulary of objects"
    vocabularies = frozenset(THINGS)
    profiles = ("strict",)
    bugs = BUGS
    options = (Option("object", "set", "the vocabulary of the object"),)

    def nodes(self, settings: Settings) -> Sequence[NodeSpec]:
        config = {"object": settings.options["object"], "bugs": list(settings.bugs)}
        entry = "tests.support.objects:main"
        return [NodeSpec(name="n1", role="object", ports=(PORT,), entry=entry, config=config)]

    def open(self, deployment: Deployment) -> "ObjectsSystem":
        return ObjectsSystem(deployment.env, deployment.settings.options["object"])


class ObjectsSystem(System):
    def __init__(self, env: ClientEnv, kind: str) -> None:
        self.env, self.kind = env, kind

    def client(self, process: int) -> ObjectClient:
        return ObjectClient(self.env, process, self.kind)

    def core(self, rng: random.Random) -> Sequence[str]:
        return ["n1"]

    async def groups(self) -> dict[str, Roles]:
        state = await self.ready()
        return {"object": Roles({"n1": NodeRole("leader")} if state.ok else {}, ("n1",))}

    async def ready(self) -> Convergence:
        try:
            async with asyncio.timeout(1.0):
                (await self.env.net.connect(NODE)).close()
        except (OSError, TimeoutError) as error:
            return Convergence(ok=False, pending=(str(error),))
        return Convergence(ok=True)

    converged = ready


@contextlib.contextmanager
def installed_objects(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = "from tests.support.objects import Objects\n"
    points = "[harness.targets]\nobjects = objects_plugins:Objects\n"
    with installed(folder, monkeypatch, "objects", module, points):
        yield
