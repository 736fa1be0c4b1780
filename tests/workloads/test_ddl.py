"""The DDL workload generates operations by its options, with unique nonces."""

import collections
import functools

import pytest

from harness.case import stream
from harness.errors import UsageError
from harness.generator import new_context
from harness.vocabularies.ddl import READS
from tests.support.cases import case_of
from tests.support.drafts import take
from workloads.ddl import DONE_MAX, DdlWorkload

case = functools.partial(case_of, DdlWorkload())


def test_names_stay_within_the_option():
    drafts = take(DdlWorkload().generator(case(names=2)), 500)
    names = {draft.value["name"] for draft in drafts if "name" in draft.value}
    assert names == {"t0", "t1"}


def test_readers_may_be_all_clients():
    drafts = take(DdlWorkload().generator(case(readers=100)), 200)
    assert {draft.f for draft in drafts} == set(READS)


def test_final_reads_every_name():
    final = DdlWorkload().final(case(names=3))
    assert final[0].f == "list"
    kinds = ("get", "locate", "is-create-done", "is-alter-done")
    assert [(request.f, request.value["name"]) for request in final[1:]] == [
        (kind, name) for name in ("t0", "t1", "t2") for kind in kinds
    ]


def test_final_reads_of_many_names_are_bounded():
    final = DdlWorkload().final(case(names=1000))
    assert len(final) == 1 + 1000 + 3 * DONE_MAX
    assert len({request.value.get("name") for request in final}) == 1001


def test_bursts_meet_on_one_name_and_are_off_with_one():
    drafts = take(DdlWorkload().generator(case(readers=0, burst=5)), 2000)
    bursts, names = [], set()
    for draft in drafts:
        if not draft.together:
            bursts.append(0)
            names = set()
        bursts[-1] += 1
        if "new_name" not in draft.value:  # a rename has an old and a new name
            names |= {draft.value["name"]} if "name" in draft.value else set()
        assert len(names) <= 1
    assert max(bursts) == 5
    assert collections.Counter(bursts).keys() == {1, 2, 3, 4, 5}
    assert not any(draft.together for draft in take(DdlWorkload().generator(case(burst=1)), 500))


def test_moves_rename_between_two_names_while_others_list():
    drafts = take(DdlWorkload().generator(case(readers=0, burst=5, moves=100)), 2000)
    bursts = []
    for draft in drafts:
        if not draft.together:
            bursts.append([])
        bursts[-1].append(draft)
    moves = [burst for burst in bursts if len(burst) > 1][:-1]
    assert {len(burst) for burst in moves} == {4, 6, 8, 10}
    for burst in moves:
        renames = [draft.value for draft in burst if draft.f == "rename"]
        assert [draft.f for draft in burst].count("list") == len(burst) - len(renames)
        assert len({frozenset((one["name"], one["new_name"])) for one in renames}) <= 1
        assert all(one["name"] != one["new_name"] for one in renames)
    assert sum(draft.f == "rename" for burst in moves for draft in burst) > 200


def test_moves_begin_one_after_another_however_often_an_offer_is_dropped():
    generator = DdlWorkload().generator(case(readers=0, burst=5, moves=100))
    ctx = new_context(4, stream(1, "test"))
    gaps_ns, last_ns = [], 0
    for _ in range(500):
        offers = [generator.op(ctx) for _ in range(3)]
        if offers[0].draft.together:
            (time_ns,) = {offer.draft.time_ns for offer in offers}
            gaps_ns.append(time_ns - last_ns)
            ctx = ctx.at(time_ns)
        last_ns, generator = ctx.time_ns, offers[-1].next
    assert min(gaps_ns) >= 0
    assert max(gaps_ns) > 8_000_000
    assert sum(gap_ns < 1_000_000 for gap_ns in gaps_ns) > len(gaps_ns) / 3


@pytest.mark.parametrize("options", [{"names": 1}, {"mix": "create=1,list=1"}, {"burst": 1}])
def test_moves_need_two_names_and_a_mix_with_lists_and_renames_and_bursts(options):
    drafts = take(DdlWorkload().generator(case(moves=100, **options)), 500)
    assert all(draft.time_ns is None for draft in drafts)


def test_the_column_added_last_under_a_name_is_dropped_alone_or_before_another():
    drafts = take(DdlWorkload().generator(case(readers=0, mix="alter=1")), 2000)
    last, alone, beside = {}, 0, 0
    for draft in drafts:
        steps, name = draft.value["steps"], draft.value["name"]
        dropped = [step[1] for step in steps if step[0] == "drop" and step[1] != "v1"]
        assert dropped in ([], [last.get(name)])
        alone += bool(dropped) and len(steps) == 1
        beside += bool(dropped) and len(steps) == 2
        added = [step[1] for step in steps if step[0] == "add"]
        last[name] = added[0] if added else None
    assert 200 < alone < 600
    assert 150 < beside < 500


def test_drawn_options_differ_and_what_is_given_stays():
    workload = DdlWorkload()
    drawn = [workload.draw_options(stream(seed, "draw"), {}) for seed in range(40)]
    assert drawn == [workload.draw_options(stream(seed, "draw"), {}) for seed in range(40)]
    assert len({one["names"] for one in drawn}) == len({one["partitions"] for one in drawn}) == 2
    assert {one["moves"] for one in drawn} == {0, 50}
    for seed, one in enumerate(drawn):
        again = workload.draw_options(stream(seed, "draw"), {"names": 7, "burst": 1})
        assert again == {**one, "names": 7, "burst": 1}


@pytest.mark.parametrize(("tservers", "most"), [(3, 5), (4, 5), (6, 7)])
def test_some_creates_ask_for_more_replicas_than_there_are_servers(tservers, most):
    chosen = case(unplaceable=50, readers=0, target={"tservers": tservers})
    drafts = take(DdlWorkload().generator(chosen), 500)
    asked = collections.Counter(d.value["replicas"] for d in drafts if d.f == "create")
    assert asked.keys() == {3, most}
    assert min(asked.values()) > 20
    kinds = {request.f for request in DdlWorkload().final(chosen)}
    assert kinds == {"list", "get", "is-create-done", "is-alter-done"}


@pytest.mark.parametrize("options", [{}, {"tservers": 7}])
def test_a_table_cannot_ask_for_more_replicas_than_kudu_allows(options):
    chosen = case(unplaceable=1, target=options)
    with pytest.raises(UsageError):
        DdlWorkload().generator(chosen)
