"""An error states which plug-in and which method broke a contract."""

import asyncio

import msgspec
import pytest

from harness.case import Fault
from harness.cli import main
from harness.errors import EXIT_CRASH, TargetError
from harness.nodes.faults import Aim, Cut, Kill
from harness.ops import Attempt, OpType, Verdict
from harness.plan.planning import plan_case
from harness.plugins import Completion, Convergence, Request, Roles
from harness.registry import load_plugin
from harness.store import RunFolder
from harness.verdict.judge import judge
from harness.vocabularies.register import Read
from tests.run.test_conduct_sim import Behaving, only, run, toy, toy_target
from tests.support.distributions import installed

CASE = toy(12, time_limit_s=3.0)


def answering(value):
    async def method():
        return value

    return method


def raising(*_args):
    raise ValueError("boom")


async def raising_later():
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("method", "mistake", "words"),
    [
        ("core", lambda _rng: ["r1", "nobody"], "core() names 'nobody', which is not a node"),
        ("core", raising, "core() raised ValueError: boom (test_plugin_mistakes.py, line "),
        ("converged", answering(None), "returned None, not a Convergence"),
        ("converged", raising_later, "raising_later() raised ValueError: boom"),
        ("ready", answering(True), "returned True, not a Convergence"),
        ("ready", raising, "raised ValueError: boom"),
        ("groups", raising_later, "raised ValueError: boom"),
        ("groups", answering(None), "returned None; it must map names of groups"),
        ("groups", answering({"g": ["r1"]}), "returned ['r1'] for the group 'g'"),
        ("groups", answering({"g": Roles({"r1": "leader"}, ("r1",))}), "for the group 'g'"),
        ("core", lambda _rng: [["r1"]], "core() names ['r1'], which is not a node"),
        ("core", lambda _rng: "r1", "core() raised TypeError: 'r1' is one text"),
        ("converged", answering(Convergence("no")), "returned ok='no'"),
        ("converged", answering(Convergence(ok=None)), "returned ok=None"),
        ("converged", answering(Convergence(ok=False, pending=(1,))), "returned pending=(1,)"),
        ("converged", answering(Convergence(ok=True, at=object())), "which is not plain JSON"),
        ("ready", answering(Convergence(ok=False, pending=None)), "returned pending=None"),
        (
            "snapshot",
            answering({"n": {1, 2}, "o": object()}),
            "snapshot() returned a value that is not plain",
        ),
        ("snapshot", answering(["n1"]), "snapshot() returned ['n1'], which is not a dict"),
    ],
)
def test_a_targets_mistake_names_it_and_the_method(method, mistake, words):
    with pytest.raises(TargetError) as caught:
        run(CASE, target=toy_target(**{method: mistake}))
    assert "the target 'toy-register'" in str(caught.value)
    assert words in str(caught.value)


def test_the_error_for_a_system_without_the_base_class_names_it():
    class Mine:
        pass

    target = Behaving(load_plugin("targets", "toy-register"), open=lambda _deployment: Mine())
    with pytest.raises(TargetError, match=r"not a harness.plugins.System; write `class Mine\(Sys"):
        run(CASE, target=target)


@pytest.mark.parametrize(
    ("method", "mistake"),
    [
        ("generator", raising),
        ("probe", raising),
        ("probe", lambda *_args: 7),
        ("final", raising),
        ("final", lambda _case: [7]),
    ],
)
def test_a_workloads_mistake_names_it_and_the_method(method, mistake):
    workload = Behaving(load_plugin("workloads", "register"), **{method: mistake})
    with pytest.raises(TargetError) as caught:
        run(CASE, workload=workload)
    assert f"the workload 'register': {method}() raised" in str(caught.value)


def test_a_generator_that_fails_while_it_runs_is_the_workloads():
    workload = Behaving(load_plugin("workloads", "register"), generator=lambda _case: raising)
    with pytest.raises(TargetError, match="the generator of the workload raised ValueError: boom"):
        run(CASE, workload=workload)


@pytest.mark.parametrize(
    ("method", "mistake", "words"),
    [
        ("aim", lambda *_: None, "aim() returned None, which is not an Aim"),
        ("aim", lambda *_: Aim(what=None, targets=("r1",)), "not an Aim with a fault"),
        (
            "aim",
            lambda *_: Aim(what=Kill(), targets=("zz",)),
            "aim() names 'zz', which is not a node; the nodes are r1",
        ),
        ("aim", lambda *_: Aim(what=Kill(), targets="r1"), "must be tuples"),
        ("aim", lambda *_: Aim(what=Cut(), targets=("r1",), links="r1"), "must be tuples"),
        ("aim", lambda *_: Aim(what=Cut(), targets=("r1",)), "hits links but names no link"),
        ("trigger_of", lambda _fault: 7, "trigger_of() raised TypeError: 7 is not a Trigger"),
        ("needs_leader", raising, "needs_leader() raised ValueError: boom"),
    ],
)
def test_a_nemesis_mistake_names_it_and_the_method(method, mistake, words):
    case = toy(12, "kill-leader", time_limit_s=6.0, interval_s=2.0, duration_s=1.0)
    nemesis = Behaving(load_plugin("nemeses", "kill-leader"), **{method: mistake})
    with pytest.raises(TargetError) as caught:
        run(case, nemeses={"kill-leader": nemesis})
    assert "the nemesis 'kill-leader': " in str(caught.value)
    assert words in str(caught.value)


def faults(**fields):
    fault = Fault("f1", "kill-leader", 10**9, 10**9)
    return lambda *_args, **_sizes: [msgspec.structs.replace(fault, **fields)]


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda *_args, **_sizes: None, "plan() raised TypeError"),
        (lambda *_args, **_sizes: [7], "plan() returned 7, which is not a Fault"),
        (lambda *_args, **_sizes: 2 * faults()(), "plan() returned an impossible schedule"),
        (faults(at_ns=-1), "plan() returned an impossible schedule"),
        (faults(at_ns=1.5), "its times must be whole numbers"),
        (faults(nemesis="pause-leader"), "a fault of another nemesis, 'pause-leader'"),
        (faults(args={"x": object()}), "which is not plain JSON"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_names_the_nemesis(monkeypatch, mistake, words):
    nemesis = Behaving(load_plugin("nemeses", "kill-leader"), plan=mistake)
    monkeypatch.setattr("harness.plan.planning.load_nemesis", lambda _name: nemesis)
    with pytest.raises(TargetError) as caught:
        run(toy(12, "kill-leader", time_limit_s=6.0))
    assert "the nemesis 'kill-leader': plan()" in str(caught.value)
    assert words in str(caught.value)


def test_faults_of_a_nemesis_have_the_name_that_it_was_asked_by(monkeypatch):
    nemesis = load_plugin("nemeses", "kill-leader")
    monkeypatch.setattr("harness.plan.planning.load_nemesis", lambda _name: nemesis)
    plan = plan_case(
        toy(12, "theirs:kill-leader", time_limit_s=6.0), load_plugin("environments", "sim")
    )
    assert {fault.nemesis for fault in plan.case.faults} == {"theirs:kill-leader"}


def test_faults_of_two_nemeses_have_ids_of_their_own(monkeypatch):
    nemesis = load_plugin("nemeses", "kill-leader")
    monkeypatch.setattr("harness.plan.planning.load_nemesis", lambda _name: nemesis)
    sim = load_plugin("environments", "sim")
    case = toy(12, "kill-leader", "theirs:kill-leader", time_limit_s=30.0)
    planned = plan_case(case, sim).case
    ids = [fault.id for fault in planned.faults]
    assert len(ids) == len(set(ids)) > 2
    assert plan_case(planned, sim).case.faults == planned.faults


class UnwritableError(ValueError):
    def __repr__(self):
        raise ValueError("boom")

    __str__ = __repr__


class Client:
    """A client that answers with `completion`, which may be anything."""

    completion = None

    async def invoke(self, request, *, timeout_s):
        del request, timeout_s
        return self.completion

    async def close(self):
        pass


@pytest.mark.parametrize(
    "completion",
    [
        None,
        7,
        UnwritableError(),
        Completion("ok"),
        Completion(OpType.INVOKE),
        Completion(OpType.OK, error=3),
        Completion(OpType.OK, attempts=None),
        Completion(OpType.OK, attempts=(Attempt("r1", "soon", 2.5, "ok"),)),
    ],
)
def test_a_client_that_answers_nonsense_says_nothing(completion):
    client = Client()
    client.completion = completion
    _, outcome = run(CASE, target=toy_target(client=lambda _env, _process: client))
    types = {pair.type for pair in outcome.history.pairs}
    assert types == {OpType.INFO}
    assert "client crashed: it returned" in outcome.history.pairs[0].completion.error


def test_a_value_that_is_not_json_names_its_plugin(tmp_path):
    client = Client()
    client.completion = Completion(OpType.OK, object())
    target = toy_target(client=lambda _env, _process: client)
    folder = RunFolder(tmp_path, "test", "run")
    with pytest.raises(TargetError, match="which is not plain JSON"):
        run(CASE, folder=folder, target=target)


@pytest.mark.parametrize(
    "behave",
    [
        raising,
        lambda: None,
        lambda: throw(UnwritableError()),
        lambda: throw(SystemExit(3)),
        lambda: throw(asyncio.CancelledError()),
        lambda: asyncio.Event().wait(),
    ],
)
def test_a_client_that_breaks_its_contract_convicts_nothing(behave):
    class Careless(Client):
        async def invoke(self, request, *, timeout_s):
            answer = behave()
            return await answer if asyncio.iscoroutine(answer) else answer

    target = toy_target(client=lambda _env, _process: Careless())
    plan, outcome = run(CASE, target=target)
    judgement = judge(outcome.history, plan.case, plan.checkers)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "client" in only(outcome.history, "live")["breach"]


def throw(error):
    raise error


def test_a_contradiction_of_one_client_convicts_despite_other_operations():
    class Client:
        async def invoke(self, request, *, timeout_s):
            if request.f == "write":
                raise ValueError("boom")
            return Completion(OpType.FAIL, request.value, error="no")

        async def close(self):
            pass

    result, history = verdict_of(
        "liveness", target=toy_target(client=lambda _env, _process: Client())
    )
    assert "breach" not in only(history, "live")
    assert result.verdict is Verdict.INVALID


def verdict_of(checker, **replaced):
    plan, outcome = run(CASE, **replaced)
    (result,) = judge(outcome.history, plan.case, [load_plugin("checkers", checker)]).results
    return result, outcome.history


def test_a_core_of_no_node_demands_nothing():
    result, history = verdict_of("liveness", target=toy_target(core=lambda _rng: []))
    assert only(history, "live")["core"] == []
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "live")


def test_a_probe_without_operations_asks_nothing():
    workload = Behaving(load_plugin("workloads", "register"), probe=lambda *_args: [])
    result, history = verdict_of("liveness", workload=workload)
    assert only(history, "live")["kinds"] == []
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "live")
    assert "kinds" not in only(run(CASE)[1].history, "live")


def test_a_snapshot_of_nothing_is_unknown():
    result, history = verdict_of("stats", target=toy_target(snapshot=answering(None)))
    assert [op.value for op in history.facts("snapshot")] == [None]
    assert result.verdict is Verdict.UNKNOWN
    assert any("snapshot() returned nothing" in line for line in result.explanation)
    result, _ = verdict_of("stats", target=toy_target(snapshot=answering({})))
    assert not any("snapshot()" in line for line in result.explanation)


def test_a_workload_that_only_reads_has_nothing_to_lose():
    register = load_plugin("workloads", "register")
    reads = Behaving(register, generator=lambda _case: lambda _ctx: Request.of(Read()))
    result, _ = verdict_of("stats", workload=reads)
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "few-changes")


# --- third-party packages ----------------------------------------------------------------------

MODULE = """
from toy_register import ToyRegister

class NoNodes(ToyRegister):
    name = "no-nodes"

    def nodes(self, settings):
        raise ValueError("boom")
"""
POINTS = "[harness.targets]\nno-nodes = mistaken_plugins:NoNodes\n"


def test_a_bug_of_a_package_is_not_reported_as_ours(tmp_path, monkeypatch, capsys):
    words = ["run", "--env", "sim", "--target", "no-nodes", "--workload", "register"]
    with installed(tmp_path, monkeypatch, "mistaken", MODULE, POINTS):
        assert main([*words, "--store", str(tmp_path / "store"), "--seed", "1"]) == EXIT_CRASH
    error = capsys.readouterr().err
    assert "a bug in the harness" not in error
    assert "the target 'no-nodes': nodes() raised" in error
    assert "mistaken_plugins.py" in error
