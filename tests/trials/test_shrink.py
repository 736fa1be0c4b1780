"""Shrinking keeps the necessary parts of a case, and its result does not depend on the workers."""

import json

import msgspec
import pytest

from harness.case import Case, Fault
from harness.errors import UsageError
from harness.ops import NS_PER_S, ScheduledOp
from harness.plan.planning import plan_case
from harness.registry import load_plugin
from harness.run.phases import WARM_UP_S
from harness.soak.result import CheckerVerdict, SeedResult
from harness.trials.shrink import operations, shrink
from harness.trials.shrink.faults import (
    PACKED_MAX,
    in_plain_words,
    packed,
    packed_cases,
    shrink_faults,
    wait_less,
)
from harness.trials.shrink.load import beginnings, shrink_rate
from harness.trials.shrink.operations import (
    AFTER_NS,
    BEFORE_NS,
    drop_unrelated,
    even,
    merge_names,
    near_faults,
    recorded,
)
from harness.trials.shrink.points import POINTS_MAX, cases_at_points, points_before_ends
from harness.trials.shrink.search import Search
from harness.trials.trials import Kind, Trial, Trials, kinds_in

KIND = Kind("judge", "rule")
SIM = load_plugin("environments", "sim")


class MadeUp:
    """Trials with made-up results: a case fails with `KIND` if `fails` says so."""

    def __init__(self, fails, *, limit=10_000, lasts=lambda _: 0.0):
        self.fails = fails
        self.limit = limit
        self.lasts = lasts
        self.cases = []

    @property
    def runs(self):
        return len(self.cases)

    cpu_s = runs
    defect = None

    @property
    def exhausted(self):
        return self.runs >= self.limit

    def spend(self, cpu_s):
        pass

    def in_order(self, cases):
        for case in cases:
            if self.exhausted:
                return
            self.cases.append(case)
            result = made_up(case, fails=self.fails(case))
            yield Trial(case, msgspec.structs.replace(result, simulated_s=self.lasts(case)))


def made_up(case, *, fails):
    said = CheckerVerdict("judge", "invalid", "why", "judge · rule · kill")
    return SeedResult(seed=case.seed, verdict="invalid", reason="", checkers=(said,) * fails)


def search_of(case, fails, **more):
    planned = plan_case(case, SIM).case
    trials = MadeUp(fails, **more)
    first = Trial(planned, made_up(planned, fails=True))
    quiet = {"on_step": lambda *_: None, "on_trial": lambda: None}
    return Search(trials, first, KIND, seeds=2, **quiet), trials


def fault(at_s, *, number=1, nemesis="kill leader", for_s=2.0):
    return Fault(f"f{number}", nemesis, int(at_s * NS_PER_S), int(for_s * NS_PER_S))


def ops_of(case):
    return [op.value["name"] for op in case.ops]


def with_ops(names):
    ops = tuple(ScheduledOp(NS_PER_S, 0, "get", {"name": name}) for name in names)
    return Case(seed=1, faults=(), ops=ops)


def test_a_refusal_says_what_the_runs_left_undecided():
    class Undecided(MadeUp):
        def in_order(self, cases):
            for trial in super().in_order(cases):
                result = SeedResult(seed=trial.case.seed, verdict="unknown", reason="it is bad")
                yield trial._replace(result=result)

    with pytest.raises(UsageError, match="3 of them proved nothing: it is bad") as refused:
        shrink(Undecided(lambda _: False), with_ops("a"), start_seeds=3)
    assert "--cpu" not in str(refused.value)
    with pytest.raises(UsageError, match="--cpu"):
        shrink(Undecided(lambda _: False, limit=2), with_ops("a"), start_seeds=3)


@pytest.mark.parametrize("needed", ["", "a", "gb", "hda", "jb", "abcdefghij"])
@pytest.mark.parametrize("lucky", [{0, 1}, {0}])
def test_dropping_keeps_exactly_the_items_that_the_failure_needs(needed, lucky):
    search, _ = search_of(
        with_ops("abcdefghij"),
        lambda case: case.seed % 2 in lucky and set(needed) <= set(ops_of(case)),
    )
    search.drop(
        search.case.ops, lambda rest: msgspec.structs.replace(search.case, ops=tuple(rest)), "less"
    )
    assert ops_of(search.case) == sorted(needed)


def test_a_candidate_is_tried_with_several_seeds_and_the_first_that_fails_is_kept():
    search, trials = search_of(with_ops("ab"), lambda case: case.seed == 2)
    smaller = msgspec.structs.replace(search.case, ops=())
    assert search.try_one(smaller, "less")
    assert [case.seed for case in trials.cases] == [1, 2]
    assert search.case.seed == 2
    assert search.case.ops == ()


def test_a_steady_failure_is_shrunk_with_few_trials():
    made = []
    for lucky in ({0, 1}, {1}):
        search, trials = search_of(
            with_ops("abcdefghijklmnop"),
            lambda case, lucky=lucky: case.seed % 2 in lucky and {"c", "n"} <= set(ops_of(case)),
        )
        search.drop(
            search.case.ops,
            lambda rest, search=search: msgspec.structs.replace(search.case, ops=tuple(rest)),
            "less",
        )
        made.append((ops_of(search.case), len({case.encode() for case in trials.cases})))
    (steady, few), (unsteady, many) = made
    assert steady == unsteady == ["c", "n"]
    assert few < many


def test_all_candidates_are_tried_with_one_seed_before_any_is_tried_with_another():
    search, trials = search_of(with_ops("ab"), lambda case: (case.seed, len(case.ops)) == (2, 1))
    smaller = [msgspec.structs.replace(search.case, ops=search.case.ops[:n]) for n in (0, 1)]
    assert search.first_quickly(iter(smaller), "less") == 1
    assert [(case.seed, len(case.ops)) for case in trials.cases] == [
        *[(1, 0), (1, 1)],
        *[(1, 0), (2, 0), (1, 1), (2, 1)],
    ]


@pytest.mark.parametrize(("fails", "kept"), [({0, 1}, 1), ({0}, 0)])
def test_a_much_longer_run_counts_only_if_no_other_fails(fails, kept):
    search, _ = search_of(
        with_ops("abc"),
        lambda case: len(case.ops) in fails,
        lasts=lambda case: 0.0 if case.ops else 100.0,
    )
    smaller = [msgspec.structs.replace(search.case, ops=search.case.ops[:n]) for n in (0, 1)]
    assert search.first(smaller, "less") == kept


def test_a_candidate_with_another_kind_of_failure_is_refused():
    search, _ = search_of(with_ops("ab"), lambda _: True)
    search.kind = Kind("judge", "other rule")
    assert not search.try_one(msgspec.structs.replace(search.case, ops=()), "less")
    assert ops_of(search.case) == ["a", "b"]


def test_candidates_that_cannot_be_planned_are_skipped():
    search, trials = search_of(with_ops("ab"), lambda _: True)
    impossible = msgspec.structs.replace(search.case, workload="no-such")
    assert search.first([impossible, msgspec.structs.replace(search.case, ops=())], "less") == 1
    assert all(case.workload == "ddl" for case in trials.cases)


def test_the_limit_of_cpu_time_ends_the_search_with_the_best_case_so_far():
    search, trials = search_of(with_ops("abcdefgh"), lambda case: "a" in ops_of(case), limit=3)
    search.drop(
        search.case.ops, lambda rest: msgspec.structs.replace(search.case, ops=tuple(rest)), "less"
    )
    assert search.exhausted
    assert trials.runs == 3
    assert "a" in ops_of(search.case)


def test_packed_faults_begin_soon_and_keep_their_distances():
    case = Case(seed=1, faults=(fault(20, for_s=14), fault(24, number=2)), time_limit_s=60)
    made = packed(case, case.faults)
    assert [each.at_ns / NS_PER_S for each in made.faults] == [1, 5]
    assert made.time_limit_s == 17
    assert made.nemeses == ("kill leader",)


def test_packed_cases_have_no_fault_then_each_fault_then_neighbours():
    faults = tuple(fault(10 * n, number=n) for n in (1, 2, 3))
    made = list(packed_cases(Case(seed=1, faults=faults), (0, 1, 2, 3)))
    ids = [[each.id for each in case.faults] for case in made]
    assert ids == [[], ["f1"], ["f2"], ["f3"], ["f1", "f2"], ["f2", "f3"], ["f1", "f2", "f3"]]
    assert made[0].nemeses == ("none",)


def test_many_faults_are_not_packed_one_by_one():
    faults = tuple(fault(10 * n, number=n) for n in range(1, PACKED_MAX + 2))
    assert [case.faults for case in packed_cases(Case(seed=1, faults=faults), (0, 1, 2))] == [()]


def test_beginnings_of_a_run_lack_later_faults():
    case = Case(seed=1, faults=(fault(3), fault(12, number=2)), time_limit_s=60)
    made = list(beginnings(case))
    assert [each.time_limit_s for each in made] == [3.75, 7.5, 15]
    assert [len(each.faults) for each in made] == [1, 1, 2]
    assert list(beginnings(msgspec.structs.replace(case, time_limit_s=6.0))) == []
    assert list(beginnings(msgspec.structs.replace(case, ops=()))) == []


def test_faults_that_differ_in_a_node_become_one():
    links = [
        fault(n, number=n, nemesis=f"shape members to node:m{n} delay=9ms", for_s=5 - n)
        for n in (1, 2, 3)
    ]
    search, _ = search_of(
        Case(seed=1, faults=(*links, fault(4, number=4)), ops=()),
        lambda case: (
            sum("delay" in each.nemesis for each in case.faults) == 3
            or any("to members" in each.nemesis for each in case.faults)
        ),
    )
    shrink_faults(search)
    (one,) = search.case.faults
    assert one.nemesis == "shape members to members delay=9ms"
    assert one.at_ns == NS_PER_S


def log(*lines):
    return [f"{at} {kind} {json.dumps(data)}" for at, kind, data in lines]


def test_points_before_the_ends_of_killed_nodes_come_from_their_logs_the_closest_first():
    killed = ("node-exited", {"expected": True})
    m1 = log(
        ("0.5", "appended", {"group": "master", "index": 3}),
        ("0.5021", *killed),
        ("0.6", "node-started", {"boot": 1}),
        ("0.61", *killed),
        ("1.0", "voted", {"group": "master", "term": 2}),
        ("1.2", *killed),  # too long after the last point
    )
    t1 = [
        "... 7 earlier lines were dropped",
        *log(
            ("2.0", "appended", {"group": "c0ffee0123", "index": 1}),
            ("2.0002", *killed),
            ("3.0", "leader", {"group": "c0ffee0123"}),
            ("3.001", "node-exited", {"expected": False}),
        ),
    ]
    expected = ["appended after=1ms", "appended group=master after=2ms"]
    assert points_before_ends([m1, t1]) == expected


def test_cases_at_points_have_one_early_fault_at_a_point_where_a_node_was_killed():
    kills = tuple(fault(2.0 * n, number=n, for_s=0.5) for n in (1, 2, 3))
    pause = fault(3, number=4, nemesis="pause leader")
    search, _ = search_of(Case(seed=1, time_limit_s=8.0, faults=(*kills, pause)), lambda _: True)
    made = list(cases_at_points(search, in_plain_words(search.case)))
    assert 0 < len(made) <= POINTS_MAX
    for case in made:
        (only,) = case.faults
        assert only.nemesis.startswith("kill it when event ")
        assert (only.at_ns, only.duration_ns) == (NS_PER_S, NS_PER_S // 2)
        assert case.time_limit_s == 3.5


def test_only_kills_at_planned_times_become_faults_at_points():
    at_event = "kill it when event leader"
    faults = (fault(1, nemesis="pause leader"), fault(2, number=2, nemesis=at_event))
    search, trials = search_of(Case(seed=1, time_limit_s=1.0, faults=faults), lambda _: True)
    assert list(cases_at_points(search, search.case)) == []
    assert trials.runs == 0


def test_a_fault_waits_for_the_earliest_event_that_still_fails():
    text = "kill it when event leader nth={}"
    case = Case(seed=1, faults=(fault(1, nemesis=text.format(12)),), ops=())
    search, _ = search_of(case, lambda case: case.faults[0].nemesis not in map(text.format, (1, 2)))
    wait_less(search)
    assert [each.nemesis for each in search.case.faults] == [text.format(3)]


def test_the_rate_falls_as_far_as_the_failure_allows():
    search, _ = search_of(Case(seed=1, rate=40.0, faults=()), lambda case: case.rate >= 10)
    shrink_rate(search)
    assert search.case.rate == 10


def test_operations_that_share_no_name_with_the_blamed_ones_are_dropped(monkeypatch):
    case = with_ops("abcabc")
    ops = [msgspec.structs.replace(op, value={**op.value, "database": "d"}) for op in case.ops]
    search, _ = search_of(msgspec.structs.replace(case, ops=tuple(ops)), lambda _: True)
    blamed = [(op, op.value["name"] == "b") for op in search.case.ops]
    monkeypatch.setattr(Search, "witness", lambda _: None)
    monkeypatch.setattr(operations, "recorded", lambda _: blamed)
    drop_unrelated(search)
    assert ops_of(search.case) == ["b", "b"]


def tables_of(case):
    return [op.value["name"] for op in case.ops]


def test_names_are_merged_within_their_field_and_columns_are_left_alone():
    def ops(names):
        for old, new, database in names:
            value = {"name": old, "new_name": new, "database": database, "columns": ["b", "c"]}
            yield ScheduledOp(NS_PER_S, 0, "rename", value)

    search, _ = search_of(with_ops("a"), lambda _: True)
    case = msgspec.structs.replace(search.case, ops=tuple(ops(["abx", "bax", "bcy", "bdy"])))
    search.best = Trial(case, search.best.result)
    merge_names(search)
    assert search.case.ops == tuple(ops(["bbx", "bbx", "bcx", "bdx"]))


@pytest.mark.parametrize(("needed", "left"), [(set("a"), "aaaaaa"), (set("ab"), "aabbaa")])
def test_names_are_merged_together_or_one_by_one(needed, left):
    search, _ = search_of(with_ops("aabbcc"), lambda case: needed <= set(tables_of(case)))
    merge_names(search)
    assert "".join(tables_of(search.case)) == left


def test_faults_of_a_nemesis_become_sentences_without_times():
    case = plan_case(Case(seed=1, nemeses=("partition-leader",)), SIM).case
    plain = in_plain_words(case)
    assert set(plain.nemeses) == {"cut leader from members", "cut leader from others"}
    assert [each.at_ns for each in plain.faults] == [each.at_ns for each in case.faults]
    assert plan_case(plain, SIM).case.faults == plain.faults
    timed = Case(seed=1, nemeses=("kill it when event leader nth=3 at 2s for 1s",))
    assert in_plain_words(plan_case(timed, SIM).case).nemeses == (
        "kill it when event leader nth=3",
    )


def test_even_pauses_keep_the_order_of_operations_and_faults():
    ops = tuple(ScheduledOp(int(at * NS_PER_S), 0, "list", {}) for at in (3, 9))
    made = even(Case(seed=1, ops=ops, faults=(fault(4, for_s=4),)), NS_PER_S)
    assert [op.at_ns / NS_PER_S for op in made.ops] == [1, 4]
    assert [(each.at_ns / NS_PER_S, each.duration_ns / NS_PER_S) for each in made.faults] == [
        (2, 1)
    ]


def test_a_run_without_results_has_no_kind(tmp_path):
    assert kinds_in(tmp_path / "results.json") == ()
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(UsageError):
        kinds_in(tmp_path / "results.json")


@pytest.mark.slow
def test_recorded_operations_are_those_of_clients_before_the_heal():
    search, _ = search_of(Case(seed=1, time_limit_s=1.0, rate=20.0, faults=()), lambda _: True)
    listed = [op for op, _ in recorded(search.witness())]
    assert 20 < len(listed) <= 70
    assert all(0 <= op.at_ns <= 3 * NS_PER_S and 0 <= op.process < 10 for op in listed)
    assert listed == sorted(listed, key=lambda op: op.at_ns)


@pytest.mark.slow
def test_operations_near_a_fault_were_invoked_around_its_begin():
    late = Case(seed=1, time_limit_s=4.0, rate=20.0, faults=(fault(2.5, for_s=0.5),))
    search, _ = search_of(late, lambda _: True)
    near = near_faults(search.witness())
    begin_ns = int((2.5 + WARM_UP_S) * NS_PER_S)
    assert {op.at_ns > begin_ns for op in near} == {False, True}
    assert all(-BEFORE_NS <= op.at_ns - begin_ns <= AFTER_NS + NS_PER_S // 2 for op in near)


def stale_read():
    """Return a case whose deposed leader answers a read; four of its operations are not needed."""
    create = {"columns": ["v0"], "name": "t1", "nonce": "n1", "partitions": 1, "replicas": 3}
    alter = {"name": "t1", "nonce": "n2", "steps": [["add", "cn2"]]}
    rows = [
        (0.0, 0, "get", {"name": "t3"}),
        (0.5, 1, "list", {}),
        (0.8, 2, "get", {"name": "t2"}),
        (1.0, 4, "create", create),
        (1.5, 3, "list", {}),
        (2.0, 2, "list", {}),
        (3.0, 6, "alter", alter),
        (3.8, 0, "get", {"name": "t1"}),
    ]
    ops = tuple(ScheduledOp(int(at * NS_PER_S), n, f, value) for at, n, f, value in rows)
    return Case(
        seed=1,
        bugs=("NO-LEASE",),
        nemeses=("cut leader from members",),
        faults=(fault(2, nemesis="cut leader from members", for_s=2.4),),
        ops=ops,
        time_limit_s=4.0,
    )


@pytest.mark.slow
def test_a_real_failure_shrinks_alike_with_any_number_of_workers():
    found = []
    for jobs in (1, 3):
        with Trials(jobs=jobs, cpu_s_max=1e6) as trials:
            kind = Kind("linearizable-catalog", "")
            found.append(shrink(trials, stale_read(), kind, seeds=1, start_seeds=6))
    one, three = found
    assert one.case == three.case
    assert one.kind == Kind("linearizable-catalog", "stale-read")
    assert (one.faults, one.exhausted) == (1, False)
    assert 2 <= one.operations <= 5


@pytest.mark.slow
def test_a_case_that_does_not_fail_is_refused():
    with (
        Trials(jobs=1, cpu_s_max=60.0) as trials,
        pytest.raises(UsageError, match="harness soak"),
    ):
        shrink(trials, Case(seed=1, time_limit_s=1.0, nemeses=("none",)), start_seeds=2)
