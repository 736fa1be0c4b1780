"""The DDL workload for metastores generates operations on few names, by its options."""

import functools
import itertools

import msgspec

from harness.vocabularies.hms import BY_NAME, READS, call_of
from tests.support.cases import case_of
from tests.support.drafts import take
from workloads.hms_ddl import HmsDdlWorkload

case = functools.partial(case_of, HmsDdlWorkload())


def drafts(count=2000, **options):
    return take(HmsDdlWorkload().generator(case(**options)), count)


def test_requests_are_in_the_vocabulary():
    for draft in drafts(readers=0):
        assert call_of(draft.f, draft.value).asked() == draft.value


def test_names_are_few_and_lie_in_two_databases():
    drafted = drafts(names=3, readers=0)
    names = {(d.value["database"], d.value["name"]) for d in drafted if "name" in d.value}
    assert names == {("db1", "t0"), ("db2", "t1"), ("db1", "t2")}
    renames = [draft.value for draft in drafted if draft.f == "rename"]
    assert any(one["database"] != one["new_database"] for one in renames)
    assert any(one["database"] == one["new_database"] for one in renames)


def test_readers_only_read():
    # `take` uses the first free thread, which is a reader if there is one
    assert {draft.f for draft in drafts(readers=10)} == READS
    assert {draft.f for draft in drafts(readers=0)} == {*BY_NAME}
    # in a mix without reads, readers do the same as the others
    assert {draft.f for draft in drafts(200, readers=100, mix="create=1")} == {"create"}


def test_bursts_meet_on_one_name():
    def runs(**options):
        drafted = drafts(readers=0, mix="drop=1", names=50, **options)
        names = [draft.value["name"] for draft in drafted]
        return sum(one == other for one, other in itertools.pairwise(names))

    assert runs(burst=6) > 5 * runs(burst=1)


def test_the_final_reads_are_of_every_name():
    final = HmsDdlWorkload().final(case(names=5))
    assert [request.f for request in final] == ["list", *["get"] * 5]
    assert msgspec.json.encode(final)
