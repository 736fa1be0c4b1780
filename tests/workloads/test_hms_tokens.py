"""The workload of tokens uses issued tokens and some forged ones."""

import functools
import itertools

from harness.case import stream
from harness.generator import Emit, new_context
from harness.ops import Op, OpType
from harness.vocabularies.hms_tokens import BY_NAME, call_of
from tests.support.cases import case_of
from workloads.hms_tokens import OWNERS, RENEWER, STRANGER, HmsTokensWorkload

case = functools.partial(case_of, HmsTokensWorkload())


def drafts(count=3000, *, answers=True, **options):
    """Return the first drafts, each completed at once; the tokens are t0, t1, ..."""
    generator = HmsTokensWorkload().generator(case(**options))
    ctx = new_context(4, stream(1, "test"))
    found, tokens = [], itertools.count()
    for _ in range(count):
        step = generator.op(ctx)
        assert isinstance(step, Emit)
        found.append(step.draft)
        generator = step.next
        if step.draft.f == "issue" and answers:
            value = {"result": "ok", "token": f"t{next(tokens)}"}
            generator = generator.update(ctx, Op(0, 0, 0, OpType.OK, "issue", value))
            lost = Op(0, 0, 0, OpType.INFO, "issue", None)
            assert generator.update(ctx, lost) == generator
    return found


def test_every_kind_appears_in_the_vocabulary():
    drafted = drafts()
    assert {draft.f for draft in drafted} == {*BY_NAME}
    for draft in drafted:
        assert call_of(draft.f, draft.value).asked() == draft.value
    assert {d.value["owner"] for d in drafted if d.f == "issue"} == {*OWNERS}


def test_nothing_is_used_before_it_is_known():
    assert {draft.f for draft in drafts(100, answers=False)} == {"issue"}


def test_the_newest_tokens_are_used():
    known, forged = [], 0
    for draft in drafts(tokens=3, burst=1):
        if draft.f == "issue":
            known.append(f"t{len(known)}")
        elif draft.value["token"] not in known[-3:]:
            assert draft.f == "verify"
            forged += 1
    assert forged > 20


def test_some_are_forged_and_some_ask_who_may_not():
    users = [draft.value["user"] for draft in drafts() if draft.f == "renew"]
    assert {*users} == {RENEWER, STRANGER}
    assert users.count(RENEWER) > 5 * users.count(STRANGER)
    true = drafts(false_percent=0)
    assert {draft.value["user"] for draft in true if draft.f == "renew"} == {RENEWER}
    assert all(draft.value.get("token", "t")[0] == "t" for draft in true)


def test_uses_go_to_all_metastores():
    numbers = [draft.value["metastore"] for draft in drafts() if draft.f == "verify"]
    for count in range(1, 9):
        assert {number % count for number in numbers} == {*range(count)}


def test_bursts_meet_on_one_token():
    def runs(**options):
        found = [d.value.get("token") for d in drafts(mix="issue=1,renew=20", **options)]
        return sum(one == other for one, other in itertools.pairwise(found))

    assert runs(burst=6) > 2 * runs(burst=1)


def test_the_probe_and_the_end_use_what_nobody_was_given():
    workload = HmsTokensWorkload()
    probe = workload.probe(case(), 1, 0)
    assert [request.f for request in probe] == ["issue", "verify"]
    (final,) = workload.final(case())
    assert final.value["token"] == probe[1].value["token"]
