"""Mixed workloads have independent parts, and change one member at a time."""

import collections
import dataclasses

import msgspec
import pytest

from harness.case import Case, stream
from harness.errors import UsageError
from harness.generator import Emit, Pending, new_context
from harness.ops import Op, OpType
from harness.vocabularies import ddl, members, rows
from tests.support.cases import case_of, simulated
from workloads.members import MembersOps
from workloads.mixed import MembersWorkload, MixedWorkload, MoveWorkload


def case(workload=None, **options):
    target = {"masters": 3, "spare_masters": 2, "tservers": 4}
    return case_of(workload or MixedWorkload(), target=target, **options)


def take(generator, count):
    """Return the first `count` drafts, each answered at once."""
    ctx, drafts, index = new_context(8, stream(1, "test")), [], 0
    while len(drafts) < count:
        step = generator.op(ctx)
        assert isinstance(step, Emit)
        draft, generator = step.draft, step.next
        drafts.append(draft)
        value = {"masters": [["m1", "LEADER", "VOTER"], ["m2", "FOLLOWER", "VOTER"]]}
        for kind, said in ((OpType.INVOKE, draft.value), (OpType.OK, value)):
            op = Op(index, index, draft.process or 0, kind, draft.f, said)
            generator, index = generator.update(ctx, op), index + 1
    return drafts


def test_parts_have_their_shares_and_nonces_of_their_own():
    drafts = take(MixedWorkload().generator(case()), 2000)
    shares = collections.Counter(
        "members" if d.f in members.BY_NAME else "rows" if d.f in rows.BY_NAME else "ddl"
        for d in drafts
        if d.f not in {"create", "alter", "delete"}
    )
    assert set(shares) == {"members", "rows", "ddl"}
    assert shares["rows"] > shares["ddl"] > shares["members"]
    nonces = [d.value["nonce"] for d in drafts if isinstance(d.value, dict) and "nonce" in d.value]
    assert len(set(nonces)) == len(nonces)
    touched = {d.value["name"] for d in drafts if d.f in {"alter", "rename", "delete"}}
    assert not touched & {d.value["table"] for d in drafts if d.f == "write"}


@pytest.mark.parametrize("workload", [MixedWorkload(), MembersWorkload(), MoveWorkload()])
def test_probe_and_final_reads_are_in_the_vocabulary(workload):
    given = case(workload)
    known = {*ddl.BY_NAME, *rows.BY_NAME, *members.BY_NAME}
    probe, final = workload.probe(given, 0, 0), workload.final(given)
    assert {request.f for request in (*probe, *final)} <= known
    made = [request.value["name"] for request in probe if request.f == "create"]
    assert len(set(made)) == len(made)
    assert final[-1].f == "list-masters"
    has_rows = any(request.f == "scan" for request in final)
    assert has_rows == (workload.name != "members")


def step(ops, ctx):
    found = ops.op(ctx)
    return (None, found.next) if isinstance(found, Pending) else (found.draft, found.next)


def answer(ops, ctx, draft, kind, value=None):
    return ops.update(ctx, Op(9, 9, draft.process, kind, draft.f, value))


def test_members_change_one_after_the_other_and_never_the_leader():
    ctx = new_context(4, stream(3, "test"))
    ops = MembersOps(("m1", "m2", "m3", "m4"), ("m1", "m2", "m3"), least=3, tables=(), moves=0)
    draft, ops = step(ops, ctx)
    assert draft.f == "list-masters"
    nothing, ops = step(ops, ctx)
    assert nothing is None
    everybody = [["m4", "FOLLOWER", "VOTER"], ["m2", "LEADER", "VOTER"]]
    everybody += [["m1", "FOLLOWER", "VOTER"], ["m3", "FOLLOWER", "VOTER"]]
    ops = answer(ops, ctx, draft, OpType.OK, {"masters": everybody})
    asked = collections.Counter()
    for _ in range(60):
        draft, after = step(ops, ctx)
        asked[draft.f, draft.value.get("node")] += 1
        ops = answer(after, ctx, draft, OpType.FAIL)
        draft, after = step(ops, ctx)
        assert draft.f == "list-masters"
        ops = answer(after, ctx, draft, OpType.OK, {"masters": everybody})
    assert {f for f, _ in asked} == {"remove-master"}
    assert {node for _, node in asked} == {"m1", "m3", "m4"}


def test_no_member_is_removed_below_the_minimum():
    ctx = new_context(4, stream(3, "test"))
    ops = MembersOps(("m1", "m2", "m3"), ("m1", "m2", "m3"), 3, (), 0, unsure=False)
    assert step(ops, ctx)[0] is None
    ops = dataclasses.replace(ops, tables=("r0",))
    assert step(ops, ctx)[0].f == "move-replica"


@pytest.mark.parametrize(
    ("workload", "options", "target", "words"),
    [
        (MixedWorkload(), {}, {"tservers": 3}, "give --tservers 4, or --moved 0"),
        (MoveWorkload(), {"replicas": 5}, {"tservers": 5}, "--tservers is 5 and tables"),
        (MembersWorkload(), {}, {"masters": 3}, "give --spare-masters 1"),
        (MembersWorkload(), {}, {"masters": 3, "spare_masters": 1}, None),
        (MembersWorkload(), {"least_masters": 1}, {"masters": 3}, None),
        (MixedWorkload(), {"moved": 0}, {"masters": 5, "tservers": 3}, None),
        (MixedWorkload(), {"members": 0}, {"tservers": 3}, None),
    ],
)
def test_a_run_in_which_nothing_can_change_is_refused(workload, options, target, words):
    given = msgspec.structs.replace(case(workload, **options), target_options=target)
    if words is None:
        workload.generator(given)
        return
    with pytest.raises(UsageError, match=words):
        workload.generator(given)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["mixed", "members", "move"])
def test_a_run_in_simulation_is_valid(workload):
    given = Case(
        seed=4,
        workload=workload,
        nemeses=("kill-random",),
        target_options={"masters": 3, "spare_masters": 1, "tservers": 4},
        rate=60.0,
        time_limit_s=15.0,
        interval_s=6.0,
    )
    run = simulated(given)
    assert run.judgement().verdict == "valid"
    done = collections.Counter(
        pair.invoke.f for pair in run.history.pairs if pair.type is OpType.OK
    )
    assert done["list-masters"] > 1
    assert done["move-replica" if workload == "move" else "add-master"]
