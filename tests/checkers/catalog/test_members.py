"""Lists of masters must show acknowledged membership changes, and may show lost ones."""

import random
from operator import methodcaller as do
from types import SimpleNamespace

import pytest

from checkers.catalog.members import MembersChecker
from harness.ops import CheckResult, OpType, Verdict
from tests.checkers.catalog.stale_histories import permitting
from tests.support.histories import Writer
from tests.support.orders import has_order


def judged(h: Writer) -> CheckResult:
    return MembersChecker().check(h.history, None, time_limit_s=5.0)


def listed(h: Writer, *nodes: str, term: int = 1) -> int:
    masters = [[node, "LEADER" if node == nodes[0] else "FOLLOWER", "VOTER"] for node in nodes]
    return h.ok(1, "list-masters", {}, {"masters": masters, "term": term})


def changed(h: Writer, f: str, node: str, term: int = 1) -> int:
    return h.ok(0, f, {"node": node}, {"term": term})


POWER_CUT = {"action": "inject", "fault": "f1", "targets": ["m1"], "kind": "power-cut"}


def history() -> Writer:
    """Return a history in which m4 is added and m2 removed."""
    h = Writer()
    listed(h, "m1", "m2", "m3")
    changed(h, "add-master", "m4")
    listed(h, "m1", "m2", "m3", "m4")
    changed(h, "remove-master", "m2")
    return h


def test_lists_that_follow_the_changes():
    h = history()
    listed(h, "m1", "m3", "m4")
    result = judged(h)
    assert result.verdict is Verdict.VALID, result
    assert (result.details["changes"], result.details["looked"]["members"]) == (2, 12)


@pytest.mark.parametrize(
    "nodes", [("m1", "m3"), ("m1", "m2", "m3", "m4"), ("m3", "m4"), ("m1", "m3", "m4", "m9")]
)
def test_one_master_too_many_or_too_few(nodes):
    h = history()
    index = listed(h, *nodes)
    result = judged(h)
    assert result.verdict is Verdict.INVALID
    assert index in result.operations


REMAINING = ("m1", "m3", "m4")


def shows(*nodes, term=1):
    return lambda h: listed(h, *nodes, term=term)


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        # A list from the leader of an older term is not judged.
        (
            [lambda h: changed(h, "add-master", "m5", term=3), shows(*REMAINING, term=2)],
            shows(*REMAINING, term=3),
        ),
        # A change of unknown outcome excuses only answers about its own master.
        (
            [do("lost", 2, "add-master", {"node": "m2"}), shows("m1", "m2", "m3", "m4"),
             shows(*REMAINING)],
            shows("m1", "m2", "m3"),
        ),
        # A change in progress may be visible or not.
        (
            [do("call", 3, "add-master", {"node": "m2"}), shows("m1", "m2", "m3", "m4"),
             shows(*REMAINING), do("ret", 3, OpType.OK, {"result": "ok", "term": 1})],
            shows(*REMAINING),
        ),
        # A refused change has no effect.
        ([do("fail", 2, "remove-master", {"node": "m1"}, None), shows(*REMAINING)],
         shows("m3", "m4")),
    ],
)  # fmt: skip
def test_a_list_is_compared_with_certain_facts(steps, wrong):
    h = history().play(steps)
    assert judged(h).verdict is Verdict.VALID
    wrong(h)
    assert judged(h).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("cut_at", "permits", "verdict"),
    [
        (1, ["lost-after-power-cut"], Verdict.PERMITTED),
        (1, [], Verdict.INVALID),
        (2, ["lost-after-power-cut"], Verdict.INVALID),  # the list was read before the power cut
    ],
)
def test_a_power_cut_may_undo_a_change(cut_at, permits, verdict):
    h = history()
    steps = [lambda: listed(h, "m1", "m2", "m3", "m4")]
    steps.insert(cut_at - 1, lambda: h.nemesis("power-cut-all", POWER_CUT))
    for step in steps:
        step()
    judged_under = permitting(h.history, *permits)
    result = MembersChecker().check(judged_under, None, time_limit_s=5.0)
    assert result.verdict is verdict, result


def test_without_lists_nothing_is_proven():
    h = Writer()
    changed(h, "add-master", "m4")
    assert judged(h).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("weight", "verdict"), [(2, Verdict.UNKNOWN), (0, Verdict.VALID)])
def test_unchanged_members_prove_nothing_if_changes_were_requested(weight, verdict):
    h = Writer()
    for _ in range(2):
        listed(h, "m1", "m2", "m3")
    h.fail(2, "add-master", {"node": "m4"}, None)
    case = SimpleNamespace(workload_options={"members": weight})
    assert MembersChecker().check(h.history, case, time_limit_s=5.0).verdict is verdict


@pytest.mark.parametrize(
    ("lacks", "moves", "verdict"),
    [
        (("add-master", "remove-master"), False, Verdict.VALID),
        (("add-master", "remove-master"), True, Verdict.UNKNOWN),
        (("add-master",), False, Verdict.UNKNOWN),
    ],
)
def test_where_a_profile_has_no_such_changes_none_need_be(lacks, moves, verdict):
    h = Writer()
    for _ in range(2):
        listed(h, "m1", "m2", "m3")
    if moves:
        h.fail(2, "move-replica", {}, None)
    history = permitting(h.history, "offline-members", lacks=lacks)
    assert MembersChecker().check(history, None, time_limit_s=5.0).verdict is verdict


# --- compared with every order -------------------------------------------------------------------

NODES = ("m1", "m2", "m3", "m4")
CHANGES = ("add-master", "remove-master")


def random_members(rng: random.Random) -> Writer:
    """Build a history in which three clients change a set of members.

    A change takes effect between its call and its return. If its answer is lost, the change takes
    effect later or never.
    """
    h, members, term = Writer(), {"m1", "m2", "m3"}, 1
    flights: dict[int, list] = {}
    late: list[tuple[str, str]] = []
    free, left, newest = [0, 1, 2], rng.randint(4, 10), 3

    def change(f: str, node: str) -> None:
        (members.add if f == "add-master" else members.discard)(node)

    while left or flights:
        for item in [each for each in late if rng.random() < 0.2]:
            late.remove(item)
            change(*item)
        term += rng.random() < 0.1
        if left and free and (not flights or rng.random() < 0.5):
            process, f = free.pop(), rng.choice([*CHANGES, "list-masters", "list-masters"])
            node = rng.choice(NODES)
            h.call(process, f, {} if f == "list-masters" else {"node": node})
            flights[process], left = [f, node, None], left - 1
            continue
        process = rng.choice(sorted(flights))
        f, node, done = flights[process]
        if done is not None:
            del flights[process]
            is_lost = done == "lost"
            h.ret(process, OpType.INFO if is_lost else OpType.OK, None if is_lost else done)
            free.append(newest if is_lost else process)
            newest += is_lost
        elif f == "list-masters":
            masters = [[name, "FOLLOWER", "VOTER"] for name in sorted(members)]
            flights[process][2] = {"masters": masters, "term": term}
        elif rng.random() < 0.25:
            late += [(f, node)] * (rng.random() < 0.6)
            flights[process][2] = "lost"
        else:
            change(f, node)
            flights[process][2] = {"result": "ok", "term": term}
    return h


def is_explained(h: Writer, node: str, is_in: bool) -> bool:
    """Whether some order of all changes explains what the lists say about one master."""
    todo = []
    for pair in h.history.pairs:
        end = pair.completion.index if pair.type is OpType.OK else float("inf")
        if pair.invoke.f in CHANGES and pair.invoke.value["node"] == node:
            todo.append((pair.invoke.index, end, (pair.invoke.f == "add-master", True)))
        elif pair.invoke.f == "list-masters" and pair.type is OpType.OK:
            seen = any(entry[0] == node for entry in pair.completion.value["masters"])
            todo.append((pair.invoke.index, end, (seen, False)))

    def after(state: bool, what: tuple[bool, bool]) -> list[bool]:
        said, changes = what
        return [said] if changes or said == state else []

    return has_order(todo, is_in, after)


def test_histories_explained_by_some_order_are_not_blamed():
    caught = missed = 0
    for seed in range(400):
        rng = random.Random(seed)
        h = random_members(rng)
        assert judged(h).verdict is not Verdict.INVALID, seed
        lists = [op.value["masters"] for op in h.lines if op.f == "list-masters" and op.value]
        if not lists:
            continue
        masters, node = rng.choice(lists), rng.choice(NODES)
        entry = [node, "FOLLOWER", "VOTER"]
        (masters.remove if entry in masters else masters.append)(entry)
        is_wrong = not all(is_explained(h, n, True) or is_explained(h, n, False) for n in NODES)
        is_blamed = judged(h).verdict is Verdict.INVALID
        assert is_wrong or not is_blamed, seed
        caught, missed = caught + is_blamed, missed + (is_wrong and not is_blamed)
    assert caught > 3 * missed
