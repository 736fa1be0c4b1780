"""Whole simulated runs, from a case to a verdict or to an error."""

import asyncio
import functools
import itertools

import msgspec
import pytest
import toy_register

from harness.case import Case, Fault
from harness.cluster import Link
from harness.environments.sim.cluster import SimCluster
from harness.errors import InfrastructureError, TargetError, UsageError
from harness.ops import NEMESIS, OpType, Verdict
from harness.plan.planning import plan_case
from harness.plugins import Completion, Convergence
from harness.registry import load_plugin
from harness.run.phases import FINAL_BOUND_S, FINALS_MAX, LIVE_BOUND_S, conduct
from harness.store import RunFolder, load_run
from harness.verdict.judge import judge

PHASES = ["setup", "warm-up", "chaos", "heal-core", "heal-all", "converge", "final"]
SHORT = {"interval_s": 5.0, "duration_s": 3.0, "time_limit_s": 15.0}
BRIEF = {"interval_s": 2.0, "duration_s": 1.5, "time_limit_s": 8.0}


def kudu(seed, *nemeses, bugs=(), **fields):
    return Case(seed=seed, nemeses=nemeses or ("none",), bugs=bugs, **{**SHORT, **fields})


def toy(seed, *nemeses, **fields):
    return kudu(seed, *nemeses, target="toy-register", workload="register", **fields)


def run(case, folder=None, environment=None, **replaced):
    sim = load_plugin("environments", "sim")
    plan = msgspec.structs.replace(plan_case(case, sim), **replaced)
    outcome = conduct(plan, environment or sim, run_id="test", folder=folder)
    return plan, outcome


def judged(case):
    plan, outcome = run(case)
    return judge(outcome.history, plan.case, plan.checkers)


def phases_of(history):
    return [op.value["phase"] for op in history.facts("phase")]


def only(history, f):
    (op,) = history.facts(f)
    return op.value


class Behaving:
    """A stand-in for a plug-in: forwards everything to it except the members in `overrides`."""

    def __init__(self, plugin, **overrides):
        self._plugin = plugin
        self.__dict__.update(overrides)

    @property
    def __class__(self):
        return type(self._plugin)

    def __getattr__(self, name):
        return getattr(self._plugin, name)

    def for_target(self, target):
        return self


def toy_target(*, client=None, **overrides):
    """Return the toy register, with a system defined by the test. `client` makes clients."""
    target = load_plugin("targets", "toy-register")

    def opened(deployment):
        if client is not None:
            overrides["client"] = functools.partial(client, deployment.env)
        return Behaving(target.open(deployment), **overrides)

    return Behaving(target, open=opened)


# --- runs that get a verdict -----------------------------------------------------------------


def test_the_history_tells_the_run_in_order():
    _, outcome = run(toy(1, "kill-leader"))
    history = outcome.history
    assert phases_of(history) == PHASES
    assert not outcome.interrupted
    times = [op.time for op in history]
    assert times == sorted(times)
    assert only(history, "live")["ok"]
    assert only(history, "converged")["ok"]
    assert [op.f for op in history][-1] == "snapshot"
    assert history[0].value == {"phase": "setup"}


def test_every_fault_that_hit_is_healed_once_and_the_last_outlives_chaos():
    _, outcome = run(kudu(2, "kill-leader", "partition-leader"))
    notes = list(outcome.history.of_process(NEMESIS))
    hit = [
        op.value["fault"] for op in notes if op.value["action"] == "inject" and op.value["targets"]
    ]
    healed = [op.value["fault"] for op in notes if op.value["action"] == "heal"]
    assert len(hit) == len(set(hit)) > 2
    assert sorted(hit) == sorted(healed)
    heal_all = next(op for op in outcome.history.facts("phase") if op.value["phase"] == "heal-all")
    assert any(op.value["action"] == "heal" and op.index > heal_all.index for op in notes)


def test_a_killed_node_is_recorded_as_expected_and_is_no_crash():
    _, outcome = run(toy(3, "kill-leader"))
    exits = [op.value for op in outcome.history.facts("node-exit")]
    assert exits
    assert all(value["expected"] for value in exits)


def test_faults_overlap_and_each_heals_only_its_own():
    s = 1_000_000_000
    faults = (
        Fault("one", "kill-random", 1 * s, 2 * s, {"draw": 0}),
        Fault("all", "kill-all", 2 * s, 7 * s),
        Fault("none-left", "pause-random", 2 * s + 1, 1 * s, {"draw": 4}),
        Fault("again", "power-cut-all", 5 * s, 1 * s),
    )
    _, outcome = run(kudu(2, time_limit_s=12.0, faults=faults))
    notes = [op.value for op in outcome.history.of_process(NEMESIS)]
    hit = {note["fault"]: note for note in notes if note["action"] == "inject"}
    assert hit["one"]["targets"] == ["m1"]
    assert hit["all"]["targets"] == ["m2", "m3", "t1", "t2", "t3"]
    assert hit["none-left"]["targets"] == []
    # The first fault is healed in the meantime, so its node is up again; the second fault's nodes
    # are down.
    assert hit["again"]["targets"] == ["m1"]
    kinds = {fault: note["kind"] for fault, note in hit.items()}
    assert kinds == {"one": "kill", "all": "kill", "none-left": "pause", "again": "power-cut"}
    assert [note["fault"] for note in notes if note["action"] == "heal"] == ["one", "again", "all"]


def test_same_case_same_bytes():
    brief = {**BRIEF, "time_limit_s": 3.0}
    first, second, other = (run(kudu(seed, "partition-leader", **brief))[1] for seed in (4, 4, 5))
    assert first.history.digest() == second.history.digest()
    assert first.trace_digest == second.trace_digest
    assert other.history.digest() != first.history.digest()


def test_a_valid_run_certifies_what_it_did():
    judgement = judged(kudu(6, "partition-leader"))
    assert judgement.verdict is Verdict.VALID
    certificates = [
        r.details["certificate"] for r in judgement.results if "certificate" in r.details
    ]
    assert certificates
    assert certificates[0]["changes_of_leader"] >= 1
    assert certificates[0]["acknowledged_changes"] > 20


@pytest.mark.parametrize(
    "nemeses",
    [
        ("none",),
        ("partition-halves",),
        ("partition-random-node",),
        ("partition-leader", "kill-leader", "pause-leader"),
    ],
)
def test_a_clean_target_is_not_blamed(nemeses):
    judgement = judged(kudu(7, *nemeses, **BRIEF))
    assert [r.reason for r in judgement.results if r.verdict is not Verdict.VALID] == []


@pytest.mark.parametrize(
    ("bug", "nemesis", "known", "tries"),
    [
        ("NO-LEASE", "partition-leader", (4, 7, 15), 6),
        ("KUDU-765", "kill-leader", (13, 18, 2, 3), 12),
        ("ORDER-CREATE", "partition-leader", (24, 7, 19), 40),
    ],
)
def test_a_switch_is_found(bug, nemesis, known, tries):
    for seed in itertools.chain(known, range(100, 100 + tries)):
        judgement = judged(kudu(seed, nemesis, bugs=(bug,)))
        assert judgement.verdict is not Verdict.UNKNOWN
        if judgement.verdict is Verdict.INVALID:
            break
    bad = [result for result in judgement.results if result.verdict is Verdict.INVALID]
    assert bad
    assert any(result.operations for result in bad)
    assert all(result.explanation for result in bad)


class Changed:
    """The simulation, with sessions that `change` modifies."""

    def __init__(self, change):
        self.sim, self._change = load_plugin("environments", "sim"), change

    def execute(self, plan, main):
        async def changed(session):
            return await main(self._change(session))

        return self.sim.execute(plan, changed)


def interrupting(after_s):
    """Return the simulation with a Ctrl-C `after_s` seconds after the run's begin."""

    def change(session):
        asyncio.get_running_loop().call_later(after_s, session.interrupted.set)
        return session

    return Changed(change)


@pytest.mark.parametrize("after_s", [0.01, 1.0, 9.0])
def test_an_interrupted_run_heals_and_is_judged(after_s):
    case = toy(8, "kill-leader", time_limit_s=1000.0)
    plan, outcome = run(case, environment=interrupting(after_s))
    assert outcome.interrupted
    assert phases_of(outcome.history) == PHASES
    assert outcome.wall_ns < 60e9
    notes = [op.value for op in outcome.history.of_process(NEMESIS)]
    hit = [note["fault"] for note in notes if note["action"] == "inject" and note["targets"]]
    assert hit == [note["fault"] for note in notes if note["action"] == "heal"]
    judgement = judge(outcome.history, plan.case, plan.checkers)
    assert judgement.verdict is not Verdict.INVALID


def test_impatient_clients_do_not_make_the_target_dead():
    """The timeout is below the network's latency, so nothing succeeds and the run is vacuous."""
    judgement = judged(toy(9, op_timeout_s=0.0001))
    verdicts = {result.checker: result.verdict for result in judgement.results}
    assert verdicts["liveness"] is Verdict.VALID
    assert verdicts["stats"] is Verdict.UNKNOWN


# --- clients and targets that misbehave ------------------------------------------------------


class Client:
    """A client that answers by a function of the request, and may hang in `close`."""

    def __init__(self, behave, *, close_hangs=False):
        self._behave = behave
        self._close_hangs = close_hangs

    async def invoke(self, request, *, timeout_s):
        await asyncio.sleep(0.01)
        return await self._behave(request)

    async def close(self):
        if self._close_hangs:
            await asyncio.Event().wait()


async def crash(request):
    if request.f == "write" and request.value["value"] < 0:
        raise ConnectionError("no route to the register")
    return Completion(OpType.OK, {"value": None})


async def hang(request):
    if request.f == "write" and request.value["value"] < 0:
        await asyncio.Event().wait()
    return Completion(OpType.OK, {"value": None})


@pytest.mark.parametrize(("behave", "words"), [(crash, "client crashed: Conn"), (hang, "hung")])
def test_a_client_that_fails_the_probe_costs_an_operation_not_the_run(behave, words):
    target = toy_target(client=lambda env, process: Client(behave, close_hangs=True))
    _, outcome = run(toy(10, time_limit_s=1.0), target=target)
    probes = [p for p in outcome.history.pairs if p.invoke.value.get("value", 0) < 0]
    assert {pair.type for pair in probes} == {OpType.INFO}
    assert all(words in pair.completion.error for pair in probes)
    assert len({pair.invoke.process for pair in probes}) == len(probes)
    live = only(outcome.history, "live")
    assert (live["ok"], live["missing"]) == (False, ["write", "read"])
    assert LIVE_BOUND_S <= live["took_s"] < LIVE_BOUND_S + 10


# --- neither the harness's own routing nor its absence may convict --------------------------------


@pytest.mark.parametrize("works", [0, 1, 2])
def test_a_probe_that_fails_goes_on_with_another_process(works):
    def pinned(env, process):
        async def behave(request):
            own = process % 3 == works
            return Completion(OpType.OK if own else OpType.FAIL, {"value": None})

        return Client(behave)

    target = toy_target(client=pinned)
    plan, outcome = run(toy(10, time_limit_s=3.0), target=target)
    assert only(outcome.history, "live")["ok"]
    assert list(outcome.history.facts("unread")) == []
    judgement = judge(outcome.history, plan.case, [load_plugin("checkers", "liveness")])
    assert judgement.verdict is Verdict.VALID


@pytest.mark.slow
def test_a_probe_names_nodes_asked_after_the_bound():
    def astray(env, process):
        async def behave(request):
            if env.clock.monotonic_ns() < 5e9:
                return Completion(OpType.OK, {"value": None})
            return Completion(OpType.FAIL, None, "DOWN: not here", "elsewhere")

        return Client(behave)

    target = toy_target(client=astray)
    _, outcome = run(toy(10, time_limit_s=3.0), target=target)
    live = only(outcome.history, "live")
    assert (live["ok"], live["asked_late"]) == (False, ["elsewhere"])


class Clock:
    """The driver's clock, which can jump as if the harness had been stopped for a while."""

    def __init__(self, clock):
        self._clock = clock
        self.jumped_ns = 0

    def monotonic_ns(self):
        return self._clock.monotonic_ns() + self.jumped_ns

    def __getattr__(self, name):
        return getattr(self._clock, name)


class Stoppable(Changed):
    """The simulation with a harness that a test can stop."""

    def __init__(self):
        super().__init__(self._stoppable)
        self.clock = None

    def _stoppable(self, session):
        self.clock = Clock(session.env.clock)
        return Behaving(session, env=Behaving(session.env, clock=self.clock))

    def stop(self, gap_s):
        """Let time pass while the harness does not run."""
        self.clock.jumped_ns += int(gap_s * 1e9)


@pytest.mark.parametrize(("gap_s", "gaps"), [(0.5, 0), (3.0, 1), (63.0, 1), (93.0, 1)])
@pytest.mark.parametrize(("phase", "bound_s"), [("heal-core", 60.0), ("converge", 90.0)])
def test_a_frozen_harness_never_convicts(phase, bound_s, gap_s, gaps):
    environment = Stoppable()

    def listener(op):
        if op.f == "phase" and op.value["phase"] == phase:
            asyncio.get_running_loop().call_later(0.01, environment.stop, gap_s)

    def client(env, process):
        async def behave(request):
            start_ns = env.clock.monotonic_ns()
            await asyncio.sleep(0.1)
            late = env.clock.monotonic_ns() - start_ns > 2e9
            return Completion(OpType.FAIL if late else OpType.OK, {"value": None})

        return Client(behave)

    async def settles():
        await asyncio.sleep(0.1)
        return Convergence(True)

    plan = msgspec.structs.replace(
        plan_case(toy(10, time_limit_s=3.0), environment.sim),
        target=toy_target(client=client, converged=settles),
    )
    outcome = conduct(plan, environment, run_id="test", folder=None, listener=listener)
    found = [op.value for op in outcome.history.facts("heartbeat-gap")]
    assert len(found) == gaps
    assert all(abs(fact["gap_s"] - gap_s) < 0.5 for fact in found)
    (result,) = judge(outcome.history, plan.case, [load_plugin("checkers", "liveness")]).results
    assert result.verdict is (Verdict.UNKNOWN if gap_s > bound_s else Verdict.VALID)
    assert ("did not run" in result.reason) is (gap_s > bound_s)


def test_a_run_of_its_own_time_has_no_gaps():
    _, outcome = run(toy(1, "kill-leader"))
    assert list(outcome.history.facts("heartbeat-gap")) == []


# --- targets that do not recover -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "bound_s"),
    [
        ({}, 90.0),
        ({"disk_ms_max": 25.0}, 180.0),
        ({"disk_ms_max": 50.0}, 360.0),
        ({"disk_ms_max": 5000.0}, 900.0),
    ],
)
def test_a_target_that_never_settles_is_convicted_by_a_look_after_the_bound(knobs, bound_s):
    async def never():
        return Convergence(False, ("the register is restless",))

    target = toy_target(converged=never)
    plan, outcome = run(toy(12, time_limit_s=3.0, knobs=knobs), target=target)
    converged = only(outcome.history, "converged")
    assert (converged["ok"], converged["pending"]) == (False, ["the register is restless"])
    assert converged["bound_s"] == bound_s
    assert converged["took_s"] >= converged["bound_s"]
    (result,) = judge(outcome.history, plan.case, [load_plugin("checkers", "liveness")]).results
    assert result.verdict is Verdict.INVALID
    assert "the register is restless" in result.reason


@pytest.mark.parametrize("calm_after", [0, 1, 2, 100])
def test_what_is_disturbed_while_it_is_read_is_read_again(calm_after):
    snapshots = []

    async def settles():
        return Convergence(True, at={"revision": len(snapshots)})

    async def snapshot():
        snapshots.append(None)
        pending = ["a call came late"] if len(snapshots) <= calm_after else []
        return {"pending": pending, "at": {"revision": len(snapshots) - 1}}

    target = toy_target(converged=settles, snapshot=snapshot)
    _, outcome = run(toy(12, time_limit_s=3.0), target=target)
    rounds = min(calm_after + 1, FINALS_MAX)
    assert len(snapshots) == rounds
    assert bool(only(outcome.history, "snapshot")["pending"]) is (calm_after > rounds)
    facts = [(op.f, op.index) for op in outcome.history.facts("converged")]
    assert len(facts) == min(calm_after, FINALS_MAX) + 1
    last_read = max(op.index for op in outcome.history if op.is_client)
    assert (facts[-1][1] < last_read) is (calm_after < FINALS_MAX)


@pytest.mark.parametrize("field", ["term", "revision"])
def test_a_state_that_went_on_is_read_again(field):
    snapshots = []

    async def settles():
        return Convergence(True, at={"term": 1, "revision": 7} | {field: 8 + len(snapshots)})

    async def snapshot():
        snapshots.append(None)
        return {"at": {"term": 1, "revision": 7} | {field: 9}}

    target = toy_target(converged=settles, snapshot=snapshot)
    run(toy(12, time_limit_s=3.0), target=target)
    assert len(snapshots) == 2


class Spying(Changed):
    """The simulation, with a list of all cuts, thaws and heals in order."""

    def __init__(self):
        super().__init__(self._spied)
        self.noted = []
        self.thawed = []

    def _spied(self, session):
        cluster = session.cluster

        async def set_links(wanted, *, lease_s):
            self.noted.append(("set-links", wanted))
            return await cluster.set_links(wanted, lease_s=lease_s)

        async def resume(node):
            self.thawed.append(node)
            await cluster.resume(node)

        async def mend():
            self.noted.append(("mend",))
            await cluster.mend()

        spied = Behaving(cluster, set_links=set_links, resume=resume, mend=mend)
        return Behaving(session, cluster=spied)


def test_the_rest_is_cut_off_from_the_core_until_all_is_healed():
    spying = Spying()
    _, outcome = run(kudu(2, time_limit_s=3.0), environment=spying)
    live = only(outcome.history, "live")
    assert live["core"]
    assert live["rest"]
    links = Link.between(live["core"], live["rest"])
    assert spying.noted == [
        ("set-links", {link: {"f1": None} for link in links}),
        ("set-links", {link: {} for link in links}),
        ("mend",),
    ]
    assert spying.thawed == live["core"]


def test_final_reads_are_bounded_and_list_unread_objects():
    async def refuse(request):
        await asyncio.sleep(0.5)
        return Completion(OpType.FAIL if request.value.get("key") else OpType.OK)

    plugin = load_plugin("workloads", "register")
    read = plugin.final(None)[0]
    reads = [msgspec.structs.replace(read, value={"key": n + 1}) for n in range(500)]
    target = toy_target(client=lambda *_: Client(refuse))
    workload = Behaving(plugin, final=lambda case: (read, *reads))
    _, outcome = run(toy(11, time_limit_s=1.0), target=target, workload=workload)
    unread = only(outcome.history, "unread")
    assert (unread["count"], unread["of"]) == (500, 501)
    final = [op for op in outcome.history.facts("phase") if op.value["phase"] == "final"]
    assert (outcome.wall_ns - final[0].time) / 1e9 < FINAL_BOUND_S + 5


async def never_ready():
    return Convergence(False, ("the register is shy",))


async def never_says():
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("ready", "words"), [(never_ready, "the register is shy"), (never_says, "60 s")]
)
def test_a_target_that_does_not_come_up_is_an_error_and_no_verdict(ready, words, tmp_path):
    folder = RunFolder(tmp_path, "toy", "run")
    folder.write_case(toy(12))
    target = toy_target(ready=ready)
    with pytest.raises(TargetError, match=words):
        run(toy(12), folder, target=target)
    stored = load_run(folder.path)
    assert phases_of(stored.history) == ["setup"]
    assert "cut short" in stored.note


# --- failures of the environment -------------------------------------------------------------


def stubborn():
    """Return the simulation with a second kill that fails."""
    kills = itertools.count(1)

    def change(session):
        async def kill(node, **named):
            if next(kills) == 2:
                raise InfrastructureError("the process would not die")
            return await session.cluster.kill(node, **named)

        return Behaving(session, cluster=Behaving(session.cluster, kill=kill))

    return Changed(change)


def test_a_fault_that_does_not_take_ends_the_run_at_once_and_keeps_the_history(tmp_path):
    folder = RunFolder(tmp_path, "toy", "run")
    faults = tuple(
        Fault(f"k{n}", "kill-leader", at_ns=n * 2 * 10**9, duration_ns=10**9) for n in range(3)
    )
    case = toy(13, faults=faults, time_limit_s=1000.0)
    folder.write_case(case)
    with pytest.raises(InfrastructureError, match="would not die"):
        run(case, folder, stubborn())
    stored = load_run(folder.path)
    assert stored.record is None
    assert [op.value["action"] for op in stored.history.of_process(NEMESIS)] == ["inject", "heal"]
    assert stored.history[-1].time < 10e9
    assert any(pair.type is OpType.OK for pair in stored.history.pairs)


def test_a_full_disk_ends_the_run_and_keeps_written_data(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path, "toy", "run")
    folder.write_case(toy(14))
    write = type(folder.open_log())._write
    (folder.path / "ops.log").unlink()
    left = iter(range(60))

    def fill(log, data):
        if next(left, None) is None:
            raise InfrastructureError("the op log cannot be written: no space left")
        write(log, data)

    monkeypatch.setattr("harness.store.oplog.OpLog._write", fill)
    with pytest.raises(InfrastructureError, match="no space left"):
        run(toy(14), folder)
    assert len(load_run(folder.path).history) == 59


@pytest.mark.parametrize("raised", [SystemExit(0), KeyboardInterrupt()])
def test_a_client_that_wants_to_end_the_process_has_crashed_at_one_operation(raised):
    count = itertools.count()

    def client(env, process):
        real = toy_register.ToyClient(env)

        async def invoke(request, *, timeout_s):
            if next(count) % 7 == 3:
                raise raised
            return await real.invoke(request, timeout_s=timeout_s)

        return Behaving(real, invoke=invoke)

    plan, outcome = run(toy(1, time_limit_s=3.0), target=toy_target(client=client))
    name = type(raised).__name__
    crashed = [op for op in outcome.history if op.is_client and name in (op.error or "")]
    assert crashed
    assert {op.type for op in crashed} == {OpType.INFO}
    results = judge(outcome.history, plan.case, plan.checkers).results
    assert {r.verdict for r in results if r.checker == "linearizable-register"} == {Verdict.VALID}


def test_a_cluster_that_can_do_less_than_its_environment_refuses_before_any_fault(monkeypatch):
    monkeypatch.setattr(SimCluster, "capabilities", property(lambda _: {}))
    with pytest.raises(UsageError, match=r"cannot run here.*'partition'; use (?!.*--env sim)"):
        run(kudu(1, "partition-leader"))
