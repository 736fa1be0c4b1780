"""The defaults of all protocols implement each vocabulary, and refuse wrong answers."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from targets.declared.operations import Operations
from targets.declared.protocols import DeclinedError, MalformedError, Template, protocol_of
from targets.declared.protocols.http import Http
from targets.declared.protocols.shapes import SHAPES
from targets.declared.protocols.updates import played
from tests.declared.protocols.scenarios import SCENARIOS
from tests.declared.protocols.servers import KV, run
from tests.declared.protocols.test_values import same

STORES = ("redis", "etcd", "zookeeper", "memcached")
stores = pytest.mark.parametrize("name", STORES)


@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        (name, vocabulary)
        for name in STORES
        for vocabulary in SCENARIOS
        if vocabulary not in {"inserts", "lease"} or (name, vocabulary) == ("redis", "lease")
    ],
)
def test_every_vocabulary(name, vocabulary):
    async def body(call, _):
        await call.speaker.prepare(call.session)
        await SCENARIOS[vocabulary](call)

    run(name, body, vocabulary=vocabulary)


mops = st.lists(
    st.tuples(st.sampled_from(["r", "append"]), st.sampled_from("xyz"), st.integers(0, 9)),
    max_size=5,
).map(lambda mops: [[f, key, value if f == "append" else None] for f, key, value in mops])


@stores
@settings(max_examples=10)
@given(st.lists(mops, max_size=5))
def test_transactions_over_lists(name, transactions):
    async def body(call, _):
        lists = {}
        for txn in transactions:
            expected = []
            for f, key, value in txn:
                if f == "append":
                    lists.setdefault(key, []).append(value)
                expected.append([f, key, value if f == "append" else list(lists.get(key, []))])
            assert await call("txn", txn) == ("ok", expected)

    run(name, body, vocabulary="list-append")


@stores
@settings(max_examples=10)
@given(st.lists(mops, max_size=5))
def test_transactions_over_registers(name, transactions):
    async def body(call, _):
        registers = {}
        for lists in transactions:
            txn = [["w" if f == "append" else f, key, value] for f, key, value in lists]
            expected = []
            for f, key, value in txn:
                if f == "w":
                    registers[key] = value
                expected.append([f, key, value if f == "w" else registers.get(key)])
            assert await call("txn", txn) == ("ok", expected)

    run(name, body, vocabulary="rw-register")


def test_items_of_the_wrong_kind_are_refused():
    with pytest.raises(MalformedError):
        played([["append", "a", 1]], {"a": 5})


class Answers(Template):
    """A template whose session returns arbitrary answers."""


class Session:
    def __init__(self, *answers):
        self.answers = list(answers)

    async def perform(self, *_, **__):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def speaking(vocabulary, *answers):
    """Return a function that performs operations on a system that gives these answers in turn."""
    templates = {vocabulary: {name: Answers() for name in SHAPES[vocabulary] if name != "drain"}}
    protocol = SimpleNamespace(
        name="fake", defaults=lambda: templates, setup=lambda _: (), template=None
    )
    speaker = Operations(protocol, {}).speaking(vocabulary)
    session = Session(*answers)

    def ask(f, value):
        request = SimpleNamespace(f=f, value=value)
        return asyncio.run(speaker.perform(session, request, process=0))

    return ask


def answered(vocabulary, f, value, *answers):
    return speaking(vocabulary, *answers)(f, value)


@pytest.mark.parametrize(
    ("vocabulary", "f", "value", "answer"),
    [
        ("set", "read", None, 5),
        ("set", "read", None, {"1": 2}),
        ("counter", "read", None, "5 or so"),
        ("counter", "read", None, True),
        ("counter", "read", None, 1.5),
        ("bank", "read", None, None),
        ("bank", "read", None, []),
        ("bank", "read", None, {}),
        ("bank", "read", None, {"0": "ten"}),
        ("bank", "read", None, {"0": None}),
        ("bank", "read", None, [[0, 10, 1]]),
        ("bank", "read", None, [5]),
        ("ids", "generate", None, None),
        ("ids", "generate", None, ""),
        ("ids", "generate", None, True),
        ("ids", "generate", None, [1]),
        ("list-append", "txn", [["r", "a", None]], None),
        ("list-append", "txn", [["r", "a", None]], []),
        ("list-append", "txn", [["r", "a", None]], [["r", "a", 5]]),
        ("list-append", "txn", [["r", "a", None]], [["r", "b", []]]),
        ("list-append", "txn", [["r", "a", None]], [["append", "a", []]]),
        ("list-append", "txn", [["r", "a", None]], [["r", "a"]]),
        ("list-append", "txn", [["append", "a", 1]], [["append", "a", 2]]),
        ("list-append", "txn", [["append", "a", 1]], [5]),
        ("rw-register", "txn", [["w", "a", 1]], [["w", "a", None]]),
    ],
)
def test_an_answer_of_the_wrong_type_is_no_value(vocabulary, f, value, answer):
    with pytest.raises(MalformedError):
        answered(vocabulary, f, value, answer)


@pytest.mark.parametrize("five", ["5", "5.0", " 5\n", 5.0])
def test_a_number_that_the_system_keeps_as_a_text_or_a_float_is_the_number(five):
    ask = speaking("registers", None, five, None, five)
    ask("write", {"key": "a", "value": 5})
    assert same(ask("read", {"key": "a"})["value"], 5)
    ask("write", {"key": "a", "value": "5"})
    assert same(ask("read", {"key": "a"})["value"], five)
    assert same(answered("set", "read", None, [five])["value"], [5])
    assert same(answered("queue", "drain", None, five, None)["value"], [5])
    assert same(answered("queue", "dequeue", None, five)["value"], 5)
    assert same(answered("counter", "read", None, five)["value"], 5)
    assert same(answered("bank", "read", None, {"0": five})["value"], {"0": 5})
    assert same(answered("rw-register", "txn", [["r", "5", None]], [["r", "5", five]])[0][2], 5)


@pytest.mark.parametrize("other", ["", "five", "0x5", "5 5", "5.5", "1e3", 5.5, True, None])
def test_no_other_answer_becomes_a_number(other):
    ask = speaking("register", 7, other)
    ask("read", None)
    assert same(ask("read", None)["value"], other)
    assert answered("ids", "generate", None, "5")["value"] == "5"


@pytest.mark.parametrize("whole", ['{"value": 5}', {"value": 5}, True, [{"id": 5}], [["five"]]])
def test_a_template_that_takes_the_wrong_part_of_the_answer_convicts_no_system(whole):
    for vocabulary, f in [("register", "read"), ("queue", "dequeue")]:
        with pytest.raises(MalformedError):
            answered(vocabulary, f, None, whole)
    with pytest.raises(MalformedError):
        answered("set", "read", None, [whole])
    with pytest.raises(MalformedError):
        answered("rw-register", "txn", [["r", "a", None]], [["r", "a", whole]])
    ask = speaking("register", None, "", whole, 5, None, whole)
    for _ in range(2):
        ask("read", None)
    with pytest.raises(MalformedError):
        ask("read", None)
    assert ask("read", None)["value"] == 5
    ask("write", {"value": "five"})
    assert ask("read", None)["value"] == whole


def test_answers_that_are_values():
    assert answered("list-append", "txn", [["r", "a", None]], [["r", "a", None]]) == [
        ["r", "a", []]
    ]
    assert answered("rw-register", "txn", [["r", "a", None]], [["r", "a", None]]) == [
        ["r", "a", None]
    ]
    assert answered("counter", "read", None, None) == {"result": "ok", "value": 0}
    assert answered("bank", "read", None, [[0, 1], [1, -2]])["value"] == [[0, 1], [1, -2]]
    assert answered("queue", "drain", None, 4, 5, None) == {"result": "ok", "value": [4, 5]}


def test_a_drain_that_took_elements_is_never_a_refusal():
    with pytest.raises(DeclinedError):
        answered("queue", "drain", None, DeclinedError("no"))
    with pytest.raises(MalformedError):
        answered("queue", "drain", None, 4, DeclinedError("no"))


def test_operations_of_a_file():
    operations = Operations(Http({}), {**KV, "txn": "POST /txn {mops}"})
    assert operations.vocabularies == {"register", "registers", "list-append"}
    assert operations.speaking("register")
    keyless = {
        "read": {**KV["read"], "request": "GET /register"},
        "write": "PUT /register {value}",
        "cas": {**KV["cas"], "request": "POST /register"},
    }
    assert Operations(Http({}), keyless).vocabularies == {"register"}
    queue = {"queue": {"enqueue": "POST /q {value}", "dequeue": {"request": "DELETE /q"}}}
    assert Operations(Http({}), queue).vocabularies == {"queue"}


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"write": "PUT /kv/{key}"}, "operations.write"),
        ({"write": "PUT /kv/{key} 7"}, "operations.write"),
        ({"read": "GET /kv/a"}, "operations.read"),
        ({"cas": 'POST /kv/{key} {"new": {new}}'}, "operations.cas"),
        ({"txn": "POST /txn {}"}, "operations.txn"),
        ({"registers": {"read": "GET /r", "write": "PUT /r {value}"}}, "operations.registers.read"),
        ({"counter": {"add": "POST /c", "read": "GET /c"}}, "operations.counter.add"),
        ({"bank": {"transfer": "POST /b {from} {amount}"}}, "operations.bank.transfer"),
        ({"logs": {"poll": "GET /l/{key}"}}, "operations.logs.poll"),
        ({"set": {"add": "PUT /{key}/{value}", "read": "GET /"}}, "operations.set.read"),
    ],
)
def test_a_template_uses_every_argument_on_which_the_verdict_depends(more, place):
    """Otherwise the run blames the system for data that the template mixes up."""
    with pytest.raises(UsageError, match=rf"^{place.replace('.', '[.]')} is"):
        Operations(Http({}), {**KV, **more})


def test_a_register_needs_no_cas():
    two = {"read": "GET /{key}", "write": "PUT /{key} {value}"}
    operations = Operations(Http({}), two)
    assert operations.vocabularies == {"register", "registers"}
    request = SimpleNamespace(f="cas", value={"old": 1, "new": 2})
    with pytest.raises(DeclinedError):
        asyncio.run(operations.speaking("register").perform(Session(), request, process=0))


def test_a_file_may_replace_one_default():
    operations = Operations(protocol_of("redis", {}), {"write": "SET {key} {value} EX 60"})
    assert {"register", "registers", "list-append", "bank"} <= operations.vocabularies
    fixed = Operations(protocol_of("redis", {}), {"read": "GET fixed"})
    assert "register" in fixed.vocabularies
    assert "registers" not in fixed.vocabularies


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ({"raed": "GET /"}, "operations.raed"),
        ({"add": "POST /"}, "operations.add"),
        ({"set": "POST /"}, "operations.set"),
        ({"set": {"remove": "POST /"}}, "operations.set.remove"),
        ({"set": {"add": "POST / {vlaue}"}}, "operations.set.add"),
        ({"read": "GET /{key:base46}"}, "operations.read"),
        ({"setup": 5}, "operations.setup"),
        ({"txn": {"request": "POST /{key} {mops}"}}, "operations.txn"),
        ({"setup": ["GET /", "{key}"]}, r"operations.setup\[1\]"),
        ({"read": "get /"}, "operations.read"),
        ({"read": {"request": "GET /", "vlaue": "x"}}, "operations.read"),
    ],
)
def test_errors_name_the_place(written, where):
    with pytest.raises(UsageError, match=f"^{where}( is |:)"):
        Operations(Http({}), written)


def test_a_missing_operation_is_named():
    operations = Operations(Http({}), {"read": "GET /"})
    with pytest.raises(UsageError, match=r"^operations: write of"):
        operations.speaking("register")
    with pytest.raises(UsageError, match=r"^operations.set: add, read"):
        operations.speaking("set")
    with pytest.raises(UsageError):
        operations.speaking("sets")
    with pytest.raises(UsageError):
        protocol_of("cassandra", {})
