"""The client of a declared system, with a fake protocol that fails on request."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from harness.env import Address
from harness.errors import UsageError
from harness.ops import OpType, Request
from harness.plugins import Deployment, TargetSettings
from targets.declared import client as client_module
from targets.declared.client import DeclaredClient
from targets.declared.parts import parts_of
from targets.declared.protocols import DeclinedError, MalformedError, NoValueError, Session
from targets.declared.system import DeclaredSystem
from tests.declared.support import CLIENT, declaration, kept
from tests.support.env import Clock

NODES = [Address("n1", 8080), Address("n2", 8080), Address("n3", 8080)]
NAMES = [node.node for node in NODES]
WRITE, READ = Request("write", {"value": 1}), Request("read", None)
MISMATCH = {"result": "mismatch"}
ENV = SimpleNamespace(clock=Clock())


class FakeSession(Session):
    """A session with the answers `script[node]`: a value, or an error to raise."""

    def __init__(self, address, script):
        super().__init__(ENV, address)
        self.script, self.closed = script, False

    async def perform(self, template, arguments, *, changes):
        async def exchange():
            await asyncio.sleep(0)  # lets another request begin
            answer = self.script[self.address.node]
            if isinstance(answer, BaseException):
                raise answer
            return await answer() if callable(answer) else answer

        return await self.attempt(exchange(), changes=changes)

    async def leadership(self):
        return self.address.node in self.leaders, 0

    async def server(self):
        server = self.servers.get(self.address.node)
        if isinstance(server, Exception):
            raise server
        return server

    async def close(self):
        self.closed = True


class FakeProtocol:
    """A protocol that opens a `FakeSession` per node; nodes in `down` refuse the connection.

    It knows the leaders unless `leaders` is `None`.
    """

    name, joins_as_follower = "fake", False

    def __init__(self, script, down=(), replicas=(), leaders=None):
        self.script, self.down, self.sessions = script, set(down), []
        self.replicas, self.leaders, self.servers = set(replicas), leaders, {}

    @property
    def knows_leader(self):
        return self.leaders is not None

    async def open(self, env, address, *, observes=False):
        if address.node in self.down:
            raise ConnectionRefusedError(address.node)
        if address.node in self.replicas and not observes:
            raise DeclinedError("not a primary", elsewhere=True)
        self.sessions.append(FakeSession(address, self.script))
        self.sessions[-1].leaders, self.sessions[-1].servers = self.leaders, self.servers
        return self.sessions[-1]

    def template(self, where, written, answer):
        return written


class FakeSpeaker:
    """A fake that sends a write as a change, and any other operation as a read."""

    empty_reads = 0

    async def prepare(self, session):
        await session.perform("setup", {}, changes=True)

    async def perform(self, session, request, *, process):
        value = await session.perform("", {}, changes=request.f == "write")
        return {"result": "ok", "value": value}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(client_module, "BACK_OFF_S", 0)


def made(protocol, process=0, *, pinned=False):
    return DeclaredClient(ENV, process, NODES, protocol, FakeSpeaker(), pinned=pinned)


def done(client, *requests, timeout_s=5.0):
    async def body():
        return [await client.invoke(request, timeout_s=timeout_s) for request in requests]

    return asyncio.run(body())


async def never():
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "request_", "kind", "value"),
    [
        (5, READ, OpType.OK, {"result": "ok", "value": 5}),
        (5, WRITE, OpType.OK, {"result": "ok", "value": 5}),
        (EOFError("torn"), READ, OpType.FAIL, None),
        (EOFError("torn"), WRITE, OpType.INFO, None),
        (ValueError("empty"), READ, OpType.FAIL, None),
        (ValueError("empty"), WRITE, OpType.INFO, None),
        (never, READ, OpType.FAIL, None),
        (never, WRITE, OpType.INFO, None),
        (DeclinedError("no"), WRITE, OpType.FAIL, None),
        (DeclinedError("no", value=MISMATCH), WRITE, OpType.FAIL, MISMATCH),
    ],
)  # fmt: skip
def test_outcomes_follow_from_what_was_sent(answer, request_, kind, value):
    completion = done(
        made(FakeProtocol({"n1": answer})), request_, timeout_s=0.01 if answer is never else 60
    )[0]

    assert (completion.type, completion.value) == (kind, value)
    assert [attempt.node for attempt in completion.attempts] == ["n1"]
    assert (completion.error is None) == (value is not None)


def test_a_node_that_is_down_is_a_fail_and_the_next_one_is_asked():
    protocol = FakeProtocol({"n2": 7}, down=["n1"])
    first, second = done(made(protocol), WRITE, WRITE)

    assert (first.type, first.node) == (OpType.FAIL, None)
    assert "ConnectionRefusedError" in first.error
    assert (second.type, second.node) == (OpType.OK, "n2")


def test_a_failed_session_is_closed_and_never_used_again():
    protocol = FakeProtocol({"n1": EOFError(), "n2": 1})
    done(made(protocol), WRITE, WRITE)

    assert [(s.address.node, s.closed) for s in protocol.sessions] == [("n1", True), ("n2", False)]


def test_a_refusal_keeps_the_session_unless_another_node_may_accept():
    protocol = FakeProtocol({"n1": DeclinedError("busy")})
    done(made(protocol), WRITE, WRITE)
    assert len(protocol.sessions) == 1

    protocol = FakeProtocol({"n1": DeclinedError("replica", elsewhere=True), "n2": 1})
    assert [each.node for each in done(made(protocol), WRITE, WRITE)] == [None, "n2"]


def test_a_pinned_client_stays_with_its_node():
    protocol = FakeProtocol({"n2": EOFError()})
    done(made(protocol, 4, pinned=True), WRITE, WRITE)

    assert [session.address.node for session in protocol.sessions] == ["n2", "n2"]


def test_a_crash_of_the_protocol_closes_its_session():
    protocol = FakeProtocol({"n1": KeyError("bug")})
    client = made(protocol)

    with pytest.raises(KeyError):
        done(client, WRITE)
    assert protocol.sessions[0].closed


# --- the system --------------------------------------------------------------------------------


def system(folder, protocol, text=None):
    options = kept(folder, text or declaration())
    parts = parts_of(options["system"])
    settings = TargetSettings(profile="strict", bugs=(), options=options, vocabulary="register")
    deployment = Deployment(ENV, settings, {node.name: node for node in parts.nodes("process")})
    made = DeclaredSystem(deployment, parts)
    made._speaker, made._protocol = FakeSpeaker(), protocol
    made._leadership._protocol = protocol
    return made


def ready(made):
    return asyncio.run(made.ready())


def test_a_system_is_ready_once_every_node_of_clients_answers(tmp_path):
    protocol = FakeProtocol({"n1": 1, "n2": 1, "n3": ValueError("starting")})
    made = system(tmp_path, protocol)

    assert not ready(made).ok
    assert [line[:20] for line in ready(made).pending] == ["n3 does not answer: "]
    protocol.script["n3"] = DeclinedError("a replica")  # n3 answers, although it serves no reads
    assert ready(made).ok


def test_a_system_whose_nodes_all_refuse_is_not_ready(tmp_path):
    refuses = DeclinedError("no leader")
    made = system(tmp_path, FakeProtocol(dict.fromkeys(NAMES, refuses)))
    made._prepared = True

    state = ready(made)
    assert not state.ok
    assert all("refuses: no leader" in line for line in state.pending)


def test_it_is_prepared_on_the_first_node_that_can(tmp_path):
    protocol = FakeProtocol({"n1": DeclinedError("a replica"), "n2": 1, "n3": 1})
    assert ready(system(tmp_path, protocol)).ok

    unable = FakeProtocol(dict.fromkeys(NAMES, EOFError("torn")))
    assert "n1 cannot be prepared" in ready(system(tmp_path, unable)).pending[0]


LED = declaration(more='[leader]\nprobe = "GET /"\nleads = "state == \\"lead\\""\nterm = "term"\n')


def test_the_probe_of_the_file_says_who_leads(tmp_path):
    script = {
        "n1": {"state": "follow", "term": 3},
        "n2": {"state": "lead", "term": 4},
        "n3": EOFError("dead"),
    }
    groups = asyncio.run(system(tmp_path, FakeProtocol(script), LED).groups())

    roles = groups["system"]
    assert roles.leader == "n2"
    assert {name: role.term for name, role in roles.by_node.items()} == {"n1": 3, "n2": 4}
    assert roles.candidates == ("n1", "n2", "n3")


def test_a_node_that_takes_no_clients_has_a_role(tmp_path):
    answers = {"n1": {"state": "lead", "term": 3}, "n2": {"state": "follow", "term": 3}}
    protocol = FakeProtocol(answers, down={"n3"}, replicas={"n2"})
    roles = asyncio.run(system(tmp_path, protocol, LED).groups())["system"]
    assert {name: role.role for name, role in roles.by_node.items()} == {
        "n1": "leader",
        "n2": "follower",
    }


def test_a_probe_that_never_matches_keeps_the_system_from_being_ready(tmp_path):
    answer = {"state": "x", "term": 1}
    made = system(tmp_path, FakeProtocol(dict.fromkeys(NAMES, answer)), LED)
    (line,) = ready(made).pending
    assert "no node leads" in line
    assert "n1: {'state': 'x', 'term': 1}" in line

    answer = {"status": "lead"}
    made = system(tmp_path, FakeProtocol(dict.fromkeys(NAMES, answer)), LED)
    assert "the answer has no 'state'" in ready(made).pending[0]
    assert asyncio.run(made.groups())["system"].by_node == {}  # unknown, rather than "follows"


@pytest.mark.parametrize(
    ("count", "answers", "refused"),
    [
        (20, [None], True),
        (20, [NoValueError("the answer has no 'valeu'")], True),
        (20, [MalformedError("status 500")], False),
        (20, [None, 5], False),
        (5, [None], False),  # may be stale reads
    ],
)
def test_reads_that_never_find_a_change_prove_nothing(tmp_path, count, answers, refused):
    """The template may look in the wrong place, so the system is not blamed."""
    script = dict.fromkeys(NAMES)
    made = system(tmp_path, FakeProtocol(script))
    made._speaker = made._parts.operations.speaking("register")
    client = made.client(0)
    done(client, READ)  # before any change, nothing is there
    done(client, WRITE)
    for number in range(count):
        script.update(dict.fromkeys(NAMES, answers[number % len(answers)]))
        done(client, READ)
    script.update(dict.fromkeys(NAMES))
    if refused:
        with pytest.raises(UsageError, match=rf"operations\.read found nothing in {count} reads"):
            asyncio.run(made.converged())
    else:
        asyncio.run(made.converged())


@pytest.mark.parametrize(
    ("first", "last", "rests"),
    [
        (["n1"], ["n1"], True),
        (["n1"], ["n2"], True),
        (["n1"], ["n1", "n2"], False),
        (["n1"], [], False),
        (NAMES, NAMES, True),  # independent nodes all lead
        (NAMES, ["n1"], True),
        (None, None, True),
    ],
)
def test_a_second_leader_at_the_end_is_a_split_brain(tmp_path, first, last, rests):
    protocol = FakeProtocol(dict.fromkeys(NAMES, 1), leaders=first)
    made = system(tmp_path, protocol)
    assert ready(made).ok
    protocol.leaders = last
    assert asyncio.run(made.converged()).ok == rests


@pytest.mark.parametrize(
    ("n1", "n2", "rests"),
    [("a", "a", True), ("a", "b", False), ("a", None, False), (OSError("x"), OSError("x"), False)],
)
def test_a_proxy_of_the_leader_is_no_second_leader(tmp_path, n1, n2, rests):
    protocol = FakeProtocol(dict.fromkeys(NAMES, 1), leaders=["n1"])
    made = system(tmp_path, protocol)
    assert ready(made).ok
    protocol.leaders, protocol.servers = ["n1", "n2"], {"n1": n1, "n2": n2}
    assert asyncio.run(made.converged()).ok == rests


def test_a_proxy_of_the_leader_does_not_hide_a_split_brain(tmp_path):
    protocol = FakeProtocol(dict.fromkeys(NAMES, 1), leaders=["n1", "n2"])
    protocol.servers = {"n1": "a", "n2": "a"}
    made = system(tmp_path, protocol)
    assert ready(made).ok
    protocol.leaders, protocol.servers = ["n1", "n2", "n3"], {"n1": "a", "n2": "a", "n3": "c"}
    assert not asyncio.run(made.converged()).ok


def test_nodes_that_join_as_followers_may_all_lead_later(tmp_path):
    protocol = FakeProtocol(dict.fromkeys(NAMES, 1), leaders=["n1"])
    protocol.joins_as_follower = True
    made = system(tmp_path, protocol)
    assert ready(made).ok
    protocol.leaders = NAMES
    assert asyncio.run(made.converged()).ok


def test_nodes_that_do_not_say_who_leads_are_named(tmp_path):
    protocol = FakeProtocol(dict.fromkeys(NAMES, 1), leaders=["n1"])
    made = system(tmp_path, protocol, declaration(client=CLIENT + "\nnodes = ['n2', 'n3']"))
    assert ready(made).ok
    protocol.leaders, protocol.down = [], {"n1"}
    ended = asyncio.run(made.converged())
    assert not ended.ok
    assert any(text.startswith("n1 ") for text in ended.pending)


def test_a_probe_of_the_file_may_match_several_nodes(tmp_path):
    lead, follow = {"state": "lead", "term": 1}, {"state": "follow", "term": 1}
    script = {"n1": lead, "n2": follow, "n3": follow}
    made = system(tmp_path, FakeProtocol(script), LED)
    assert ready(made).ok
    script["n2"] = lead
    assert asyncio.run(made.converged()).ok


@pytest.mark.parametrize(
    ("quorum", "size"),
    [('"majority"', 2), ('"all"', 3), ('"one"', 1), ("2", 2), ('{ node = "all" }', 3)],
)
def test_the_core_is_a_quorum(tmp_path, quorum, size):
    made = system(tmp_path, FakeProtocol({}), declaration(top=f"quorum = {quorum}"))
    core = made.core(random.Random(1))

    assert len(core) == len(set(core)) == size
    assert set(core) <= {"n1", "n2", "n3"}


def test_questions_share_no_session_and_close_theirs(tmp_path):
    answer = {"state": "lead", "term": 1}
    protocol = FakeProtocol(dict.fromkeys(NAMES, answer))
    made = system(tmp_path, protocol, LED)

    async def body():
        await asyncio.gather(made.groups(), made.groups())
        await made.groups()

    asyncio.run(body())
    assert len(protocol.sessions) == 9
    assert all(session.closed for session in protocol.sessions)
