"""Workloads taken from Jepsen find each bug of a target, and pass a target without bugs.

Every run is a whole run in the simulation, with all phases.
"""

import itertools

import pytest

from harness.case import Case
from harness.errors import UsageError
from harness.ops import Completion, OpType, Verdict
from harness.registry import load_plugin
from tests.support.cases import case_of, convicting, simulated
from tests.support.drafts import Driver, take
from tests.support.objects import BUGS, THINGS, installed_objects

CHECKERS = {
    "set": "set-full-linearizable",
    "causal-reverse": "causal-reverse",
    "counter": "counter",
    "bank": "bank",
    "queue": "total-queue",
    "fifo-queue": "queue",
    "lock": "owned-mutex",
    "unique-ids": "unique-ids",
    "registers": "linearizable-registers",
    "list-append": "elle-list-append",
    "rw-register": "elle-rw-register",
    "long-fork": "long-fork",
    "g2": "g2",
    "causal": "causal",
    "kafka": "kafka",
    "lease": "lease",
}
FOUND = {
    "set": ("lose-add", "forget", "stale-read", "repeat", "invent"),
    "causal-reverse": ("reverse", "lose-add", "invent"),
    "counter": ("lose-add", "double-add", "stale-read"),
    "bank": ("lose-money", "overdraw", "torn-read", "no-balance"),
    "queue": ("lose-element", "deliver-twice", "invent"),
    "fifo-queue": ("lose-element", "deliver-twice", "invent", "reorder"),
    "lock": ("two-holders", "lost-release", "stuck"),
    "unique-ids": ("repeat-id",),
    "registers": ("lose-write", "stale-read", "blind-cas"),
    "list-append": ("lose-write", "stale-read"),
    "rw-register": ("lose-write", "stale-read"),
    "long-fork": ("fork",),
    "g2": ("write-skew",),
    "causal": ("lose-write", "stale-read"),
    "lease": ("early-end", "old-token", "lower-token", "any-release"),
    "kafka": ("lose-message", "append-twice", "same-offset", "skip-message", "step-back"),
}
PAIRS = [(workload, bug) for workload, bugs in FOUND.items() for bug in bugs]
SEEDS = 8
OPTIONS = {
    "registers": {"cas_percent": 80},
    "fifo-queue": {"enqueues": 60},
    "lease": {"lease_ms": 100},
}


@pytest.fixture(autouse=True)
def objects(tmp_path, monkeypatch):
    with installed_objects(tmp_path, monkeypatch):
        yield


def judgement(workload, seed, *bugs, nemesis="none", **options):
    plugin = load_plugin("workloads", workload)
    case = Case(
        seed=seed,
        target="objects",
        bugs=bugs,
        target_options={"object": plugin.vocabulary},
        workload=workload,
        workload_options={**OPTIONS.get(workload, {}), **options},
        nemeses=(nemesis,),
        time_limit_s=8.0,
        interval_s=3.0,
        duration_s=1.0,
        concurrency=5,
        op_timeout_s=1.0,
    )
    return simulated(case).judgement()


def assert_valid(judged):
    wrong = [(r.checker, r.reason) for r in judged.results if r.verdict is not Verdict.VALID]
    assert wrong == []


def assert_found(judged, workload):
    assert CHECKERS[workload] in convicting(judged), judged
    (result,) = [r for r in judged.results if r.checker == CHECKERS[workload]]
    assert result.operations
    assert result.explanation


@pytest.mark.parametrize("workload", CHECKERS)
def test_a_healthy_object_is_valid(workload):
    assert_valid(judgement(workload, 1))


@pytest.mark.parametrize(("workload", "bug"), PAIRS)
def test_a_bug_is_found(workload, bug):
    assert_found(judgement(workload, 1, bug), workload)


@pytest.mark.slow
@pytest.mark.parametrize("workload", CHECKERS)
def test_a_healthy_object_is_valid_for_every_seed(workload):
    nemeses = itertools.cycle(("kill-leader", "pause-leader"))
    for seed, nemesis in zip(range(SEEDS), nemeses, strict=False):
        judged = judgement(workload, seed, nemesis=nemesis)
        # unknown is fine: a client whose answer was lost may hold the lock to the end
        if workload == "lock":
            assert convicting(judged) == set()
        else:
            assert_valid(judged)


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "bug"), PAIRS)
def test_a_bug_is_found_for_every_seed(workload, bug):
    for seed in range(SEEDS):
        assert_found(judgement(workload, seed, bug), workload)


def test_every_bug_and_every_vocabulary_is_tried():
    assert {bug for _, bug in PAIRS} == set(BUGS)
    assert {load_plugin("workloads", name).vocabulary for name in CHECKERS} == set(THINGS)


def test_options_allow_what_a_system_does_not_promise():
    assert_valid(judgement("bank", 1, "overdraw", overdraft=True))
    assert_valid(judgement("queue", 1, "deliver-twice", duplicates=True))
    assert_valid(judgement("set", 1, "stale-read", stale_reads=True))


def test_a_bank_with_other_balances_is_not_blamed():
    judged = judgement("bank", 1, balance=20)
    (result,) = [r for r in judged.results if r.checker == "bank"]
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "set-up")
    (result,) = [r for r in judgement("bank", 1, accounts=7).results if r.checker == "bank"]
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "set-up")


@pytest.mark.parametrize("workload", CHECKERS)
def test_requests_fit_the_vocabulary_and_probes_are_new(workload):
    plugin = load_plugin("workloads", workload)
    case = case_of(plugin, **OPTIONS.get(workload, {}))
    probes = [plugin.probe(case, attempt, retry) for attempt in (0, 1) for retry in (0, 1)]
    assert all(probes)
    drafts = take(plugin.generator(case), 300)
    assert drafts == take(plugin.generator(case), 300)
    written = [str(d.value) for d in drafts if d.f in {"write", "enqueue", "insert"}]
    assert len(written) == len(set(written))


def test_a_client_that_holds_the_lock_releases_it_next():
    plugin = load_plugin("workloads", "lock")
    driver = Driver(plugin.generator(case_of(plugin)), threads=1)
    asked = []
    for kind in (OpType.FAIL, OpType.OK, OpType.FAIL, OpType.OK, OpType.OK):
        draft = driver.draft()
        asked.append(draft.f)
        driver.complete(draft, kind)
    assert asked == ["acquire", "acquire", "release", "release", "acquire"]


@pytest.mark.parametrize(
    ("completion", "serves"),
    [
        (Completion(OpType.OK, {"result": "ok"}), True),
        (Completion(OpType.FAIL, {"result": "refused"}), True),
        (Completion(OpType.FAIL, None, "ConnectionResetError"), False),
        (Completion(OpType.INFO, None, "TimeoutError"), False),
    ],
)
def test_a_lock_that_a_client_may_still_hold_is_served_by_a_refusal(completion, serves):
    assert load_plugin("workloads", "lock").serves(completion) is serves
    assert load_plugin("workloads", "counter").serves(completion) is (completion.type is OpType.OK)


def test_every_key_of_a_fork_is_written_once_and_groups_are_whole():
    plugin = load_plugin("workloads", "long-fork")
    drafts = take(plugin.generator(case_of(plugin, group=4)), 300)
    writes = [d.value[0][1] for d in drafts if d.value[0][0] == "w"]
    assert len(writes) == len(set(writes)) > 50
    reads = [{key for _, key, _ in d.value} for d in drafts if d.value[0][0] == "r"]
    assert all(len(keys) == 4 for keys in reads)
    numbers = {min(int(key[1:]) for key in keys) % 4 for keys in reads}
    assert numbers == {0}


def test_both_inserts_of_a_key_begin_together():
    drafts = take(load_plugin("workloads", "g2").generator(None), 10)
    assert [d.value["key"] for d in drafts] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [d.value["table"] for d in drafts] == ["a", "b"] * 5
    assert [d.together for d in drafts] == [False, True] * 5


@pytest.mark.parametrize(
    ("workload", "options"),
    [("bank", {"accounts": 1}), ("long-fork", {"group": 1}), ("registers", {"keys": 0})],
)
def test_impossible_options_are_refused(workload, options):
    with pytest.raises(UsageError):
        case_of(load_plugin("workloads", workload), **options)
