"""One conversation per vocabulary with an empty store, run against fake and real servers."""

from types import SimpleNamespace

from targets.declared.protocols import DeclinedError
from targets.declared.protocols.updates import BANK

REFUSED = ("fail", {"result": "refused"})
MISMATCH = ("fail", {"result": "mismatch"})


def ok(*value):
    return "ok", {"result": "ok", **({"value": value[0]} if value else {})}


async def register(call):
    assert await call("read") == ok(None)
    assert await call("cas", {"old": 4, "new": 6}) == MISMATCH
    assert await call("write", {"value": 5}) == ok()
    assert await call("write", {"value": 5}) == ok()
    assert await call("read") == ok(5)
    assert await call("cas", {"old": 4, "new": 6}) == MISMATCH
    assert await call("cas", {"old": 5, "new": 5}) == ok()
    assert await call("cas", {"old": 5, "new": 6}) == ok()
    assert await call("read") == ok(6)


async def registers(call):
    for number, text in enumerate(("a", "b", "A", "ü", "'\"\\%s", "😀 \n")):
        key, value = f"key {text}", {text: [number, 10**30, None, 1.5]}
        assert await call("read", {"key": key}) == ok(None)
        assert await call("write", {"key": key, "value": value}) == ok()
        assert await call("read", {"key": key}) == ok(value)
        assert await call("cas", {"key": key, "old": value, "new": text}) == ok()
        assert await call("cas", {"key": key, "old": text.swapcase() + " ", "new": 0}) == MISMATCH
        assert await call("read", {"key": key}) == ok(text)


async def a_set(call):
    assert await call("read") == ok([])
    for value in (3, 1, 2):
        assert await call("add", {"value": value}) == ok()
    assert sorted((await call("read"))[1]["value"]) == [1, 2, 3]


async def counter(call):
    assert await call("read") == ok(0)
    for amount in (5, -2, 10**15):
        assert await call("add", {"amount": amount}) == ok()
    assert await call("read") == ok(10**15 + 3)


async def queue(call):
    assert await call("dequeue") == ok(None)
    for value in (1, 2, 3, 4):
        assert await call("enqueue", {"value": value}) == ok()
    assert await call("dequeue") == ok(1)
    assert await call("drain") == ok([2, 3, 4])
    assert await call("drain") == ok([])
    assert await call("dequeue") == ok(None)


async def lock(call):
    async def other(f):
        try:
            request = SimpleNamespace(f=f, value=None)
            return await call.speaker.perform(call.session, request, process=1)
        except DeclinedError as declined:
            return declined.value

    assert await call("release") == REFUSED
    assert await call("acquire") == ok()
    assert await call("acquire") == REFUSED
    assert await other("acquire") == REFUSED[1]
    assert await other("release") == REFUSED[1]
    assert await call("release") == ok()
    assert await other("acquire") == {"result": "ok"}
    assert await call("release") == REFUSED


async def lease(call):
    async def other(f, value=None):
        try:
            request = SimpleNamespace(f=f, value=value)
            return await call.speaker.perform(call.session, request, process=1)
        except DeclinedError as declined:
            return declined.value

    _, first = await call("acquire", {"lease_ms": 60_000})
    assert await other("acquire", {"lease_ms": 60_000}) == REFUSED[1]
    assert await other("release") == REFUSED[1]
    assert await call("release") == ok()
    second = await other("acquire", {"lease_ms": 60_000})
    assert second["value"] > first["value"]
    assert await call("release") == REFUSED
    assert await other("release") == {"result": "ok"}


async def logs(call):
    assert await call("poll") == ok({})
    assert await call("assign", {"keys": ["log-x", "log-y"]}) == ok()
    assert await call("poll") == ok({"log-x": [], "log-y": []})
    offsets = [(await call("send", {"key": "log-x", "value": n}))[1]["value"] for n in range(130)]
    assert offsets == sorted(set(offsets))
    polled = []
    for _ in range(3):
        polled += (await call("poll"))[1]["value"]["log-x"]
    assert polled == [[offset, n] for n, offset in enumerate(offsets)]
    assert await call("assign", {"keys": ["log-x"]}) == ok()
    assert (await call("poll"))[1]["value"]["log-x"][0] == [offsets[0], 0]


async def ids(call):
    values = [(await call("generate"))[1]["value"] for _ in range(5)]
    assert len(set(values)) == 5


async def bank(call):
    await call.speaker.prepare(call.session)  # a set-up may be repeated
    assert balances(await call("read")) == BANK
    assert await call("transfer", {"from": 0, "to": 3, "amount": 7}) == ok()
    assert await call("transfer", {"from": 0, "to": 3, "amount": 7}) == REFUSED
    await call.speaker.prepare(call.session)
    after = {**BANK, "0": BANK["0"] - 7, "3": BANK["3"] + 7}
    assert balances(await call("read")) == after


def balances(outcome):
    value = outcome[1]["value"]
    pairs = value.items() if isinstance(value, dict) else value
    return {str(account): balance for account, balance in pairs}


async def list_append(call):
    mops = [["append", "x", 1], ["r", "x", None], ["r", "y", None], ["append", "x", 2]]
    answer = [["append", "x", 1], ["r", "x", [1]], ["r", "y", []], ["append", "x", 2]]
    assert await call("txn", mops) == ("ok", answer)
    assert await call("txn", [["r", "x", None]]) == ("ok", [["r", "x", [1, 2]]])


async def rw_register(call):
    mops = [["w", "x", 1], ["r", "x", None], ["r", "y", None], ["w", "x", 2]]
    answer = [["w", "x", 1], ["r", "x", 1], ["r", "y", None], ["w", "x", 2]]
    assert await call("txn", mops) == ("ok", answer)
    assert await call("txn", [["r", "x", None]]) == ("ok", [["r", "x", 2]])


async def inserts(call):
    assert await call("insert", {"key": 1, "table": "a", "id": 1}) == ok()
    assert await call("insert", {"key": 1, "table": "b", "id": 2}) == REFUSED
    assert await call("insert", {"key": 2, "table": "b", "id": 3}) == ok()
    assert await call("insert", {"key": 2, "table": "b", "id": 4}) == REFUSED


SCENARIOS = {
    "register": register,
    "registers": registers,
    "set": a_set,
    "counter": counter,
    "queue": queue,
    "lock": lock,
    "lease": lease,
    "logs": logs,
    "ids": ids,
    "bank": bank,
    "list-append": list_append,
    "rw-register": rw_register,
    "inserts": inserts,
}
