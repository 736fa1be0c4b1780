"""Runs that keep or exceed the limits of a target on outages, elections, calls and memory."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from checkers.conduct.bounds import BoundsChecker
from harness.ops import CheckResult, Op, OpType, Verdict
from harness.permits import Permit, fact_of
from targets.kudu.bounds import (
    CARRIED_OUT,
    CHANGE,
    COPY,
    INSTALL,
    MOVE,
    describe_accepted,
    describe_bounds,
)
from targets.kudu.flags import Flags
from tests.support.histories import Writer

S = 1_000_000_000
Json = dict[str, Any]


class Timeline(Writer):
    """A writer of histories whose clock is set by hand, in seconds."""

    now_s = 0.0

    def add(self, *args: Any, **more: Any) -> int:
        index = super().add(*args, **more)
        op = self.lines[index]
        self.lines[index] = Op(
            index, int(self.now_s * S), op.process, op.type, op.f, op.value, op.error, op.node
        )
        return index

    def served(self, *times_s: float) -> None:
        for time_s in times_s:
            self.now_s = time_s
            self.ok(1, "get", {"name": "a"})

    def fault(
        self, kind: str, begin_s: float, end_s: float | None, *targets: str, **more: Any
    ) -> None:
        ident = f"f{len(self.lines)}"
        self.now_s = begin_s
        inject = {"action": "inject", "fault": ident, "targets": list(targets), "kind": kind}
        self.nemesis("some-name", inject | more)
        if end_s is not None:
            self.now_s = end_s
            self.nemesis("some-name", {"action": "heal", "fault": ident})


def limit(measure: str, of: str = "", number: float = 5, **per: float) -> Json:
    return {"name": f"{measure} {of}".strip(), "measure": measure, "of": of, "limit": number,
            "per": per, "why": "it is so"}  # fmt: skip


def judge(
    h: Timeline, *limits: Json, settled: bool = True, end_s: float = 60, **more: Any
) -> CheckResult:
    h.now_s = end_s
    h.fact("phase", {"phase": "heal-core"})
    h.fact("converged", {"ok": settled})
    declared = {"limits": list(limits), "quorum": ["m1", "m2", "m3"], **more}
    h.fact("snapshot", {"bounds": declared})
    return BoundsChecker().check(h.history, SimpleNamespace(concurrency=3), time_limit_s=1)


ALL = [limit("outage", kind) for kind in ("none", "kill", "cut")]


def steady(until_s: float = 60) -> list[float]:
    return [float(second) for second in range(1, int(until_s))]


def without(begin_s: float, end_s: float) -> list[float]:
    return [second for second in steady() if not begin_s < second < end_s]


@pytest.mark.parametrize(
    ("faults", "back_s", "rule"),
    [
        ([("kill", 11, 20, "m1")], 15, None),
        ([("kill", 11, 20, "m1")], 17, "outage kill"),
        ([("kill", 11, 20, "m1"), ("cut", 12, 22, "m2")], 17, None),  # two members were hit at once
        # a majority was down for one second, and each fault adds 5 s
        ([("kill", 11, 14, "m1"), ("cut", 13, 40, "m2")], 20, None),
        ([("kill", 11, 14, "m1"), ("cut", 13, 40, "m2")], 22, "outage"),
        ([("kill", 11, 13, "m1"), ("cut", 14, 40, "m2")], 21, "outage"),  # never two at once
        ([("kill", 11, 13, "t1"), ("cut", 12, 14, "t1")], 19, None),  # each fault adds its limit
        ([("kill", 11, 13, "t1"), ("cut", 12, 14, "t1")], 21, "outage"),
        # down for 9 s; another 5 s are allowed for the recovery
        ([("kill", 11, 20, "m1", "m2", "m3")], 24, None),
        ([("kill", 11, 20, "m1", "m2", "m3")], 27, "outage kill"),
        ([("kill", 11, None, "m1", "m2")], 50, None),  # never healed
        ([("kill", 11, 20)], 17, "outage none"),  # the fault hit no node
        # the target declares no limit for this kind of fault
        ([("quake", 11, 20, "m1")], 50, None),
        ([("kill", 2, 4, "m1")], 17, "outage none"),  # the fault ended long before the outage
    ],
)
def test_faults_excuse_outages_by_their_kind(faults, back_s, rule):
    h = Timeline()
    h.served(*without(10, back_s))
    for kind, begin_s, end_s, *targets in faults:
        h.fault(kind, begin_s, end_s, *targets)
    result = judge(h, *ALL)
    assert result.verdict is (Verdict.INVALID if rule else Verdict.VALID), result
    assert result.details.get("rule", "").startswith(rule or "")


VOTERS = [["m1", "LEADER", "VOTER"], ["m2", "FOLLOWER", "VOTER"], ["m3", "FOLLOWER", "VOTER"]]


def changed(f: str, node: str, *, at_s: float, result: str | None = "ok"):
    def step(h: Timeline) -> None:
        h.now_s = at_s
        if result is None:
            h.lost(7, f, {"node": node})
        else:
            h.ok(7, f, {"node": node}, {"result": result, "term": 1})

    return step


def listed(*masters: list[str], at_s: float, term: int = 1):
    def step(h: Timeline) -> None:
        h.now_s = at_s
        h.ok(7, "list-masters", {}, {"masters": [*masters], "term": term})

    return step


def learner(name: str) -> list[str]:
    return [name, "LEARNER", "NON_VOTER"]


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ([], Verdict.INVALID),  # one of three members was down, and no client changed the members
        ([listed(*VOTERS, at_s=3)], Verdict.INVALID),
        ([changed("add-master", "m4", at_s=2), listed(*VOTERS, at_s=3)], Verdict.INVALID),
        ([listed(*VOTERS, at_s=3), changed("remove-master", "m2", at_s=4)], Verdict.VALID),
        ([listed(*VOTERS, at_s=3), changed("remove-master", "m2", at_s=4, result=None)],
         Verdict.VALID),
        ([changed("remove-master", "m2", at_s=2), listed(VOTERS[0], learner("m3"), at_s=3)],
         Verdict.VALID),
        ([changed("remove-master", "m2", at_s=2), changed("add-master", "m2", at_s=3),
          listed(*VOTERS, at_s=4)], Verdict.INVALID),
        # A deposed leader's list does not count, because it is older than the list before it.
        ([changed("remove-master", "m2", at_s=2), listed(VOTERS[0], VOTERS[2], at_s=3, term=2),
          listed(*VOTERS, at_s=4)], Verdict.VALID),
        # no list shows whether the added master votes
        ([changed("add-master", "m3", at_s=2)], Verdict.VALID),
    ],
)  # fmt: skip
def test_a_fault_that_hits_half_of_the_nodes_with_a_vote_stops_the_service(steps, verdict):
    h = Timeline()
    h.play(steps)
    h.served(*[second for second in without(10, 22) if second > 5])
    h.fault("kill", 11, 20, "m1")
    assert judge(h, *ALL).verdict is verdict


@pytest.mark.parametrize(("lossy", "verdict"), [(True, Verdict.VALID), (False, Verdict.INVALID)])
def test_a_power_cut_may_undo_changes_of_the_voters(lossy, verdict):
    h = Timeline()
    if lossy:
        h.fact("permits", fact_of("modern", [Permit(name="lost-after-power-cut", why="unsynced")]))
    changed("add-master", "m2", at_s=1)(h)
    listed(*VOTERS, at_s=2)(h)
    h.fault("power-cut", 3, 4, "m3")
    h.served(*[second for second in without(10, 22) if second > 5])
    h.fault("kill", 11, 20, "m1")
    assert judge(h, *ALL, limit("outage", "power-cut")).verdict is verdict


def faulted(*args: Any, **more: Any) -> Any:
    return lambda h: h.fault(*args, **more)


def asked(f: str, result: str | None, kind: OpType) -> Any:
    """Return a step in which, once a second from 11 s to 19 s, a client gets this answer."""

    def ask(h: Timeline) -> None:
        for h.now_s in range(11, 20):
            h.call(100 + h.now_s, f, {"name": "a"})
            h.ret(100 + h.now_s, kind, None if result is None else {"result": result})

    return ask


def opened(h: Timeline) -> None:
    h.now_s = 15
    h.call(7, "get", {"name": "a"})


def gap(h: Timeline) -> None:
    h.fact("heartbeat-gap", {"from_s": 20.0, "to_s": 22.0})


def fact(at_s: float, f: str, **value: Any) -> Any:
    def step(h: Timeline) -> None:
        h.now_s = at_s
        h.fact(f, value)

    return step


FAILED = {"node": None, "what": "the engine failed"}
CUT_OFF = partial(faulted, "cut", 11, 40)
MEMBERS_CUT_OFF = partial(CUT_OFF, "m1", "m2", "m3")
ONLY_NODE = faulted("kill", 11, 13, "x")


@pytest.mark.parametrize(
    ("served", "others", "more", "verdict"),
    [
        # a cut that also affects clients excuses their outage until it heals, plus the limit
        (without(10, 41), [CUT_OFF("m1", clients=True)], {}, Verdict.VALID),
        (without(10, 41), [CUT_OFF("m1")], {}, Verdict.INVALID),
        (without(10, 59), [CUT_OFF("m1", clients=True)], {}, Verdict.INVALID),
        # a cut excuses the outage if it hit all three clients, or separated nodes from each other
        (without(10, 41), [MEMBERS_CUT_OFF(clients_only=True, clients=["client:0", "client:1"])],
         {}, Verdict.INVALID),
        (without(10, 41),
         [MEMBERS_CUT_OFF(clients_only=True, clients=["client:0", "client:1", "client:2"])],
         {}, Verdict.VALID),
        (without(10, 41), [MEMBERS_CUT_OFF(clients_only=True, clients=["client"])], {},
         Verdict.VALID),
        (without(10, 41), [MEMBERS_CUT_OFF(clients=["client:0"])], {}, Verdict.VALID),
        # if no core is declared, any active fault may have hit the only node
        (without(10, 14), [], {"quorum": []}, Verdict.VALID),
        (without(10, 17), [], {"quorum": []}, Verdict.INVALID),
        (without(10, 16), [ONLY_NODE], {"quorum": []}, Verdict.VALID),
        (without(10, 19), [ONLY_NODE], {"quorum": []}, Verdict.INVALID),
        # a disturbance from outside during the outage leaves the verdict open
        (without(10, 50), [fact(45, "heartbeat-gap", from_s=12.0, to_s=45.0)], {},
         Verdict.UNKNOWN),
        (without(10, 50), [fact(12, "heartbeat-gap", from_s=2.0, to_s=9.5)], {}, Verdict.INVALID),
        (without(10, 50), [fact(55, "heartbeat-gap", from_s=51.0, to_s=55.0)], {},
         Verdict.INVALID),
        (without(10, 50), [fact(5, "infrastructure", **FAILED)], {}, Verdict.UNKNOWN),
        (without(10, 50), [fact(55, "infrastructure", **FAILED)], {}, Verdict.UNKNOWN),
        (without(10, 50), [fact(5, "node-exit", node="m1", by="host")], {}, Verdict.UNKNOWN),
        (without(10, 50), [fact(5, "node-exit", node="m1", by="itself")], {}, Verdict.INVALID),
        # the checker still convicts if the limit passed undisturbed before the disturbance, or
        # after it
        (without(10, 17), [fact(15, "heartbeat-gap", from_s=11, to_s=15)], {}, Verdict.UNKNOWN),
        (without(10, 17), [fact(34, "heartbeat-gap", from_s=30, to_s=34)], {}, Verdict.INVALID),
        (without(10, 50), [fact(15, "heartbeat-gap", from_s=11, to_s=15)], {}, Verdict.INVALID),
        (without(10, 50), [fact(34, "heartbeat-gap", from_s=30, to_s=34)], {}, Verdict.INVALID),
        (steady(), [], {}, Verdict.VALID),
        (steady(), [gap], {}, Verdict.VALID),  # a disturbance without an outage
        (without(10, 14), [], {}, Verdict.VALID),
        (without(10, 17), [], {}, Verdict.INVALID),
        # the effect of a reset is over at once
        (without(10, 30), [faulted("reset", 11, 40, "m1", "m2", clients=True)], {},
         Verdict.INVALID),
        # the cut separated clients only briefly, so it excuses only that time
        (without(10, 24), [faulted("cut", 11, 13, "m1", clients=True),
                           faulted("kill", 12, 40, "m2")], {}, Verdict.INVALID),
        # an outage that has no end lasts until the chaos phase ends
        (steady(30), [], {}, Verdict.INVALID),
        (steady(30), [], {"end_s": 33}, Verdict.VALID),
        # these answers come only from a target that serves
        (without(10, 20), [asked("get", None, OpType.FAIL)], {}, Verdict.INVALID),
        (without(10, 20), [asked("create", None, OpType.INFO)], {}, Verdict.INVALID),
        (without(10, 20), [asked("delete", "not-found", OpType.FAIL)], {}, Verdict.VALID),
        (without(10, 30), [opened], {}, Verdict.INVALID),
    ],
)  # fmt: skip
def test_outages(served, others, more, verdict):
    h = Timeline()
    h.served(*served)
    h.play(others)
    result = judge(h, *ALL, limit("outage", "reset"), **more)
    assert result.verdict is verdict
    assert result.details["looked"]["outages"] > 0


def in_a_slow_world(patience):
    return lambda h: h.fact("live", {"ok": True, "patience": patience})


def starved(h: Timeline, begin_s: float, end_s: float, *nodes: str) -> None:
    """Add one starvation fact per second for these nodes, as the harness does."""
    while begin_s < end_s:
        h.now_s = min(begin_s + 1, end_s)
        waited = dict.fromkeys(nodes or ("m1",), 0.6)
        h.fact("starvation", {"from_s": begin_s, "to_s": h.now_s, "waited_s": waited})
        begin_s = h.now_s


@pytest.mark.parametrize(
    ("begin_s", "end_s", "verdict"),
    [
        (9.8, 13, Verdict.UNKNOWN),
        (5, 20, Verdict.UNKNOWN),
        (13, 13.4, Verdict.INVALID),  # starved for less than a tenth of the limit
        (5, 11.5, Verdict.INVALID),  # the limit passed again after the starvation
        (2, 9, Verdict.INVALID),  # starved only before the outage
        (18, 20, Verdict.INVALID),  # starved only after the limit had been exceeded
    ],
)
def test_nodes_that_get_no_processor_are_convicted_of_no_outage(begin_s, end_s, verdict):
    h = Timeline()
    h.served(*without(10, 17))
    starved(h, begin_s, end_s, "m2", "the link proxy")
    result = judge(h, *ALL)
    assert result.verdict is verdict
    assert ("m2 and the link proxy waited" in result.reason) is (verdict is Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("back_s", "verdict"), [(25, Verdict.VALID), (27, Verdict.UNKNOWN), (40, Verdict.INVALID)]
)
def test_downtime_of_a_majority_does_not_hide_starvation(back_s, verdict):
    """A majority is down from 10 to 20 s, then starved until 22 s; the 5 s limit ends at 25 s."""
    h = Timeline()
    h.fault("kill", 10, 20, "m1", "m2")
    h.served(*without(10, back_s))
    starved(h, 20, 22)
    h.now_s = back_s
    h.ok(1, "get", {"name": "a"})
    assert judge(h, *ALL).verdict is verdict


def test_starvation_counts_in_any_order_and_from_any_node():
    for facts in (
        [{"from_s": 13, "to_s": 14}, {"from_s": 9, "to_s": 13.5, "waited_s": {}}],
        [{"from_s": 9, "to_s": 14, "waited_s": 3}, {"from_s": 10, "to_s": 11, "waited_s": None}],
    ):
        h = Timeline()
        h.served(*without(10, 17))
        for fact in facts:
            h.fact("starvation", fact)
        result = judge(h, *ALL)
        assert result.verdict is Verdict.UNKNOWN
        assert "from 9.000 to 14.000 s" in result.reason


def one_fault(h: Timeline) -> None:
    h.fault("kill", 3, 4, "m1")


@pytest.mark.parametrize(
    ("disturb", "terms", "bound", "verdict"),
    [
        # a disturbance from outside excuses as many elections as one fault
        (lambda h: None, 5, limit("elections", number=2, fault=3), Verdict.INVALID),
        (fact(0, "infrastructure", **FAILED), 5, limit("elections", number=2, fault=3),
         Verdict.VALID),
        # the allowed number grows with the faults and with the seconds
        (one_fault, 9, limit("elections", number=2, fault=3, second=0.1), Verdict.VALID),
        (one_fault, 12, limit("elections", number=2, fault=3, second=0.1), Verdict.INVALID),
        # each second of starvation counts as a fault
        (lambda h: starved(h, 2, 4), 11, limit("elections", number=2, fault=3), Verdict.INVALID),
        (lambda h: starved(h, 2, 5), 11, limit("elections", number=2, fault=3), Verdict.VALID),
        (lambda h: starved(h, 2, 4), 0, limit("calls", "c", number=2, fault=3), Verdict.INVALID),
        (lambda h: starved(h, 2, 5), 0, limit("calls", "c", number=2, fault=3), Verdict.VALID),
        # in a slow world, calls are repeated more often
        (in_a_slow_world(1.0), 0, limit("calls", "c", 10, **{"slow second": 0.1}), Verdict.INVALID),
        (in_a_slow_world(2.0), 0, limit("calls", "c", 10, **{"slow second": 0.1}), Verdict.VALID),
        (in_a_slow_world(2.0), 0, limit("calls", "c", 10, **{"slow second": 0}), Verdict.INVALID),
    ],
)  # fmt: skip
def test_limits_of_elections_and_calls_grow_with_events(disturb, terms, bound, verdict):
    h = Timeline()
    disturb(h)
    for term in range(terms):
        h.fact("leader", {"node": "m1", "term": term})
    assert judge(h, bound, calls={"c": 11}).verdict is verdict


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ([("m1", 1), ("m2", 2), ("m1", 3)], Verdict.VALID),
        ([("m1", 1), ("m2", 2), ("m3", 2)], Verdict.INVALID),
        # the target has no terms, so elections cannot be counted
        ([("m1", 0), ("m2", 0)], Verdict.UNKNOWN),
    ],
)
def test_a_term_has_one_leader(facts, verdict):
    h = Timeline()
    for node, term in facts:
        h.fact("leader", {"node": node, "term": term})
    assert judge(h, limit("leaders", number=1)).verdict is verdict


def test_a_polled_leader_is_no_announcement():
    h = Timeline()
    h.fact("leader", {"node": "m1", "term": 1})
    h.fact("leader", {"node": "m2", "term": 1, "asked": True})
    assert judge(h, limit("leaders", number=1)).verdict is Verdict.VALID
    assert judge(h, limit("diverged", number=0)).verdict is Verdict.VALID
    fact = h.fact("divergence", {"group": "g", "index": 4})
    result = judge(h, limit("diverged", number=0))
    assert (result.verdict, result.operations) == (Verdict.INVALID, (fact,))


@pytest.mark.parametrize(
    ("calls", "amounts", "verdict"),
    [
        ({}, {}, Verdict.VALID),
        ({"Create": 16}, {"replica": 3}, Verdict.VALID),
        ({"Create": 17}, {"replica": 3}, Verdict.INVALID),
        ({"Create": 10}, {}, Verdict.VALID),
        # the history does not show how much the limit grows
        ({"Create": 11}, {}, Verdict.UNKNOWN),
    ],
)
def test_calls_are_held_against_amounts(calls, amounts, verdict):
    bound = limit("calls", "Create", 10, replica=2)
    assert judge(Timeline(), bound, calls=calls, amounts=amounts).verdict is verdict


def test_a_cluster_whose_masters_are_all_silent_is_not_convicted_of_its_calls():
    create = "TabletServerAdminService.CreateTablet"
    dumps = {"m1": None, "m2": None, "m3": None}
    declaration = describe_bounds(dumps, {"t1": {"calls": {create: 111}}}, Flags())
    limits = [each for each in declaration.pop("limits") if each["of"] == create]
    result = judge(Timeline(), *limits, **{**declaration, "quorum": []})
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "incomplete")


def master_of(tablets: int, replicas: int = 1, **more: Any) -> Json:
    table = {"id": "A", "state": "RUNNING", "num_replicas": replicas, "version": 0}
    rows = [{"table_id": "A", "state": "RUNNING"}] * tablets
    return {"revision": 1, "tables": [table], "tablets": rows, **more}


CARRIED = f"{INSTALL} {CARRIED_OUT}"


def moved(changes: int) -> Json:
    return {"calls": {CHANGE: changes, MOVE: 100}}


def copied(installs: int, refused: int = 0) -> Json:
    return {"calls": {INSTALL: installs, COPY: 100}, "put_off": {INSTALL: refused}}


@pytest.mark.parametrize(
    ("name", "server", "tablets", "faults", "verdict"),
    [
        (CHANGE, moved(103), 10, 0, "valid"),  # measured: one call per move, and a few more
        (CHANGE, moved(900), 10, 0, "valid"),  # each move was requested many times
        (CHANGE, moved(1100), 10, 0, "invalid"),  # a tablet evicts and adds forever (KUDU-2443)
        (CHANGE, moved(1100), 10, 2, "valid"),  # lost replicas are replaced elsewhere
        (CARRIED, copied(103), 10, 0, "valid"),  # measured: one call per copy
        (CARRIED, copied(206), 10, 0, "valid"),
        (CARRIED, copied(230), 10, 0, "invalid"),
        # a snapshot in many chunks counts once, with its last chunk
        (CARRIED, copied(900, refused=700), 10, 0, "valid"),
        # followers that were away for too long also need copies
        (CARRIED, copied(280), 10, 2, "valid"),
        (CARRIED, copied(400), 10, 2, "invalid"),
        ("files", {"files": 9}, 2, 0, "valid"),
        ("files", {"files": 20}, 2, 0, "valid"),
        ("files", {"files": 21}, 2, 0, "invalid"),
        ("files", {"files": 21}, 3, 0, "valid"),
    ],
)
def test_limits_go_with_copies_moves_and_faults(name, server, tablets, faults, verdict):
    master = master_of(tablets, replicas=3 if name == "files" else 1)
    declared = describe_bounds({"m1": master}, {"t1": server}, Flags())
    limits = [each for each in declared.pop("limits") if name in {each["of"], each["name"]}]
    h = Timeline()
    h.served(*steady())
    for _ in range(faults):
        h.fault("kill", 10, 20, "t1")
    result = judge(h, *limits, **{**declared, "quorum": []})
    assert limits
    assert result.verdict == verdict, result


DELETE = "TabletServerAdminService.DeleteTablet"


@pytest.mark.parametrize(
    ("calls", "put_off", "rules"),
    [
        # measured without bugs: most calls were refused by a busy tablet or server, and resent
        (22_710, 20_170, set()),
        (22_710, 16_000, {"deletions"}),
        (100_000, 97_000, {"calls of DeleteTablet"}),  # resent without ever doubling the wait
    ],
)
def test_calls_that_were_put_off_may_be_resent_with_growing_waits(calls, put_off, rules):
    server = {"calls": {DELETE: calls}, "put_off": {DELETE: put_off}}
    declared = describe_bounds({"m1": master_of(2628)}, {"t1": server}, Flags())
    limits = [each for each in declared.pop("limits") if each["of"].startswith(DELETE)]
    result = judge(Timeline(), *limits, **{**declared, "quorum": []})
    assert set(result.details.get("by_invariant", {})) == rules


def per_second(of: str, flags: Flags, masters: int = 3, tservers: int = 3) -> float:
    nodes = [dict.fromkeys(f"{role}{n}" for n in range(many))
             for role, many in (("m", masters), ("t", tservers))]  # fmt: skip
    limits = describe_bounds(*nodes, flags)["limits"]
    return next(each["per"]["second"] for each in limits if each["of"].endswith(of))


def test_limits_of_calls_follow_the_flags_that_say_how_often_they_come():
    assert per_second("TSHeartbeat", Flags()) == 60
    assert per_second("TSHeartbeat", Flags(), masters=5, tservers=4) == 60
    assert per_second("TSHeartbeat", Flags(), masters=5, tservers=40) == 600
    assert per_second("TSHeartbeat", Flags(heartbeat_interval_ms=10)) == 6000
    assert per_second("TSHeartbeat", Flags(heartbeat_interval_ms=3000)) == 20
    assert per_second("RequestConsensusVote", Flags()) == 4
    assert per_second("RequestConsensusVote", Flags(raft_heartbeat_interval_ms=50)) == 40
    halved = Flags(leader_failure_max_missed_heartbeat_periods=1.5)
    assert per_second("RequestConsensusVote", halved) == 8


def test_outages_have_no_limit_if_an_update_may_hold_a_single_entry():
    def limited(*flags):
        limits = describe_bounds({"m1": None}, {"t1": None}, *flags)["limits"]
        return {each["measure"] for each in limits} >= {"outage"}

    small, least = (
        Flags(consensus_max_batch_size_bytes=500),
        Flags(consensus_max_batch_size_bytes=2000),
    )
    assert limited(least)
    assert not limited(small)
    assert not limited(least, small)


def test_limits_of_usual_calls_are_whole_numbers_as_in_stored_histories():
    limits = describe_bounds({"m1": None}, {"t1": None}, Flags())["limits"]
    shares = [each for limit in limits if limit["measure"] == "calls" for each in
              limit["per"].values() if each > 10]  # fmt: skip
    assert shares
    assert {type(share) for share in shares} == {int}


def test_counters_are_held_of_each_node_at_rest():
    counters = {"m1": {"locks": 5}, "m2": {"locks": 6}, "t1": {}}
    result = judge(Timeline(), limit("counter", "locks"), counters=counters)
    assert result.verdict is Verdict.INVALID
    assert len(result.explanation) == 1
    result = judge(Timeline(), limit("counter", "locks"), counters=counters, settled=False)
    assert result.verdict is Verdict.UNKNOWN


def test_memory_is_held_of_each_node_that_was_measured():
    def judged(**held: int | None) -> CheckResult:
        h = Timeline()
        h.fact("memory", {"bytes": {node: mib and mib << 20 for node, mib in held.items()}})
        return judge(h, limit("memory", number=40, operation=0.5), *ALL[:1])

    assert judged(m1=40, m2=39).verdict is Verdict.VALID
    over = judged(m1=40, m2=41, m3=None)
    assert over.verdict is Verdict.INVALID
    assert over.details["rule"] == "memory"
    assert len(over.explanation) == 1
    assert over.details["exempt"] == {"memory": 1}
    assert judge(Timeline(), limit("memory")).verdict is Verdict.UNKNOWN  # nothing was measured
    h = Timeline()
    h.served(*steady())
    beside = judge(h, limit("memory"), *ALL)
    assert beside.verdict is Verdict.VALID
    assert beside.reason.endswith("; not measured: memory")


MIB = 1 << 20


def used(h: Timeline, at_s: float, **told: Json) -> None:
    """Add a measurement in MiB, by kind and node; `None` means that nothing was measured."""
    h.now_s = at_s
    bytes_of = {
        f"{kind}_bytes": {node: mib and int(mib * MIB) for node, mib in nodes.items()}
        for kind, nodes in told.items()
    }
    h.fact("usage", bytes_of)


@pytest.mark.parametrize(
    ("measure", "of", "kind"), [("disk", "", "disk"), ("memory", "any time", "memory")]
)
def test_held_bytes_are_limited_at_every_measurement(measure, of, kind):
    def judged(*looks: Json, number: float = 40) -> CheckResult:
        h = Timeline()
        for second, nodes in enumerate(looks, 1):
            used(h, second, **{kind: nodes})
        return judge(h, limit(measure, of, number, operation=0.5), *ALL[:1])

    name = f"{measure} {of}".strip()
    assert judged({"m1": 40, "t1": 1}, {"m1": 3, "t1": 40}).verdict is Verdict.VALID
    over = judged({"m1": 41}, {"m1": 50, "t1": 1}, {"m1": 3, "t1": None})
    assert (over.verdict, over.details["rule"]) == (Verdict.INVALID, name)
    assert over.operations == (1,)  # the highest measurement
    assert len(over.explanation) == 1
    missed = judged({"m1": 4, "m2": None}, {"m1": 4, "m2": None})
    assert (missed.verdict, missed.details["exempt"]) == (Verdict.VALID, {name: 1})
    for nothing in ([], [{"m1": None}]):
        assert judged(*nothing).verdict is Verdict.UNKNOWN  # without measurements, never `valid`
        assert judged(*nothing).details["unmeasured"] == [name]


def test_the_limit_of_held_bytes_grows_with_operations():
    h = Timeline()
    h.served(*range(1, 11))
    used(h, 20, disk={"m1": 45, "m2": 44})
    assert judge(h, limit("disk", number=40, operation=0.5)).verdict is Verdict.VALID
    used(h, 21, disk={"m1": 45, "m2": 45.5})
    assert judge(h, limit("disk", number=40, operation=0.5)).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("looks", "verdict"),
    [
        ([(0, 100), (30, 105), (60, 110)], Verdict.VALID),  # earlier bytes do not count
        ([(0, 0), (30, 5), (60, 10), (90, 15), (120, 20)], Verdict.VALID),
        ([(0, 0), (30, 5), (60, 11)], Verdict.INVALID),
        # 11 MiB in the minute from 30 s to 90 s
        ([(0, 0), (30, 1), (60, 6), (90, 12)], Verdict.INVALID),
        # no two measurements are exactly a minute apart
        ([(0, 0), (30, 1), (60, 6), (91, 12)], Verdict.VALID),
        ([(0, 0), (120, 20)], Verdict.VALID),  # 10 MiB per minute, for two minutes
        ([(0, 0), (120, 21)], Verdict.INVALID),
        ([(0, 50), (10, 4), (20, 9)], Verdict.VALID),  # a restarted process counts from zero
        ([(0, 50), (10, 6), (20, 11)], Verdict.INVALID),
        ([(0, 50), (10, None), (20, 5), (30, 10)], Verdict.VALID),
        ([(0, 50), (10, None), (20, 61)], Verdict.INVALID),
        ([(0, 50)], Verdict.UNKNOWN),  # one measurement is not enough
        ([(0, None), (10, None)], Verdict.UNKNOWN),
        ([], Verdict.UNKNOWN),
    ],
)
def test_written_bytes_are_limited_for_each_minute(looks, verdict):
    h = Timeline()
    for at_s, mib in looks:
        used(h, at_s, written={"t1": mib})
    result = judge(h, limit("written", number=10), end_s=200)
    assert result.verdict is verdict, result
    assert result.details["unmeasured"] == (["written"] if verdict is Verdict.UNKNOWN else [])


@pytest.mark.parametrize(
    ("mib", "verdict"),
    # 10 MiB; 60 s at 0.1 MiB each; 1 MiB for each of the four operations from 61 s on; 3 MiB for
    # the fault.
    [(10 + 6 + 4 + 3, Verdict.VALID), (10 + 6 + 4 + 3.5, Verdict.INVALID)],
)
def test_the_limit_of_written_bytes_grows_with_the_load_of_its_minute(mib, verdict):
    h = Timeline()
    h.served(10, 59, 61, 90, 130, 180)
    h.fault("kill", 100, 125, "m1")
    h.fault("kill", 30, 40, "m1")
    h.served(181, 190, 200)
    used(h, 120, written={"t1": 1})
    used(h, 180, written={"t1": 1 + mib})
    grows = limit("written", number=10, operation=1, second=0.1, fault=3)
    assert judge(h, grows, end_s=240).verdict is verdict


def test_a_limit_of_written_bytes_with_unknown_growth_never_convicts():
    h = Timeline()
    used(h, 10, written={"t1": 0.5})
    used(h, 20, written={"t1": 100})
    grows = limit("written", number=10, replica=1)
    assert judge(h, grows).verdict is Verdict.UNKNOWN
    assert judge(h, grows, amounts={"replica": 89}).verdict is Verdict.INVALID


def test_masters_are_expected_to_write_their_known_state():
    def share(made: int, **flags: int) -> float:
        limits = describe_bounds({"m1": master_of(made)}, {"t1": None}, Flags(**flags))["limits"]
        (written,) = [each for each in limits if each["measure"] == "written"]
        return written["per"]["operation"] * 1024 - 64

    assert share(0) == 0
    # 1000 rows of 200 bytes are rewritten once per 60 log entries; an operation makes three
    # entries.
    assert share(1000) == pytest.approx(10)
    assert share(1000, master_snapshot_every=10) == pytest.approx(60)


def test_nothing_is_valid_without_limits_or_a_snapshot():
    h = Timeline()
    h.served(*steady())
    assert BoundsChecker().check(h.history, None, time_limit_s=1).verdict is Verdict.UNKNOWN
    assert judge(Timeline()).verdict is Verdict.UNKNOWN
    h = Timeline()
    h.fact("snapshot", None)
    assert BoundsChecker().check(h.history, None, time_limit_s=1).verdict is Verdict.UNKNOWN
    assert judge(Timeline(), limit("weight")).verdict is Verdict.UNKNOWN


def test_the_bundled_target_declares_the_reports_of_its_nodes():
    tables = [
        {"id": "A", "state": "RUNNING", "num_replicas": 3, "version": 2},
        {"id": "B", "state": "REMOVED", "num_replicas": 1, "version": 1},
    ]
    tablets = [
        {"table_id": "A", "state": "RUNNING"},
        {"table_id": "A", "state": "CREATING"},
        {"table_id": "A", "state": "REPLACED"},
        {"table_id": "B", "state": "DELETED"},
    ]
    group = {"counters": {"garbage segments": 1}}
    leader = {
        "revision": 9, "tables": tables, "tablets": tablets, "raft": group,
        "counters": {"locks": 1}, "calls": {"x": 1},
    }  # fmt: skip
    server = {
        "calls": {"x": 5, COPY: 9},
        "put_off": {"x": 2, COPY: 7},
        "files": 17,
        "tablets": [
            {"raft": {"counters": {"garbage segments": n, "log segments": n + 1}}} for n in (0, 3)
        ]
        + [{"raft": None}],
    }
    behind = {"revision": 3, "tables": [], "tablets": []}
    declaration = describe_bounds({"m1": leader, "m2": behind, "m3": None}, {"t1": server}, Flags())
    assert declaration["calls"] == {
        "x": 6, "x carried out": 3, COPY: 9, f"{COPY} carried out": 2
    }  # fmt: skip
    assert declaration["counters"]["m1"] == {"locks": 1, "garbage segments of a group": 1}
    assert declaration["counters"]["t1"] == {
        "garbage segments of a group": 3, "log segments of a group": 4, "files": 12
    }  # fmt: skip
    assert declaration["amounts"] == {
        "live table": 1, "live tablet": 2, "configuration changed": 0, "replica asked to move": 0,
        "replica copied": 2, "replica made": 10, "tablet altered": 7,
    }  # fmt: skip
    assert declaration["quorum"] == ["m1", "m2", "m3"]
    kinds = {each["of"] for each in declaration["limits"] if each["measure"] == "outage"}
    assert kinds == {"none", "cut", "kill", "power-cut", "pause", "restart", "reset"}
    assert len({each["name"] for each in declaration["limits"]}) == len(declaration["limits"])


def test_only_limits_of_requests_that_are_not_usual_are_declared():
    assert describe_accepted(3, Flags()) == {}
    assert describe_accepted(4, Flags(heartbeat_interval_ms=100)) == {}
    assert describe_accepted(4, Flags(max_create_tablets_per_ts=2)) == {
        "accepts": {"new_replicas": 8}
    }
    narrow = Flags(max_num_columns=2, max_identifier_length=1, max_num_replicas=1)
    assert describe_accepted(3, narrow) == {
        "accepts": {"columns": 2, "name_bytes": 1, "replicas": [1, 1]}
    }


def idle(flags: Flags, changed: Flags | None = None, names: int = 1) -> dict[str, Any]:
    declared = describe_bounds({"m1": None}, {"t1": None}, flags, changed, names=names)
    return next(each for each in declared["limits"] if each["name"] == "idle heartbeats")


def test_idle_heartbeats_come_once_per_interval_of_the_server_and_name_of_the_master():
    assert idle(Flags())["limit"] == idle(Flags(heartbeat_interval_ms=10))["limit"] == 15
    assert idle(Flags(), names=2)["limit"] == 30
    assert idle(Flags(), Flags(heartbeat_interval_ms=500))["limit"] == 30
    assert idle(Flags(heartbeat_interval_ms=500), Flags())["limit"] == 30


def test_forgotten_rows_still_count_as_made():
    forgotten = {"tables": 1, "tablets": 2, "replicas": 6, "altered": 8}
    master = {"revision": 1, "tables": [], "tablets": [], "forgotten": forgotten}
    amounts = describe_bounds({"m1": master}, {}, Flags())["amounts"]
    assert (amounts["replica made"], amounts["tablet altered"]) == (6, 8)
