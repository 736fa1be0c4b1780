"""In every workload, operations depend only on the seed, and mixes are validated."""

from collections import Counter

import pytest

from harness.errors import UsageError
from harness.registry import load_plugin
from tests.support.cases import case_of
from tests.support.drafts import Driver, take
from workloads import ddl, hms_ddl
from workloads.contention import parse_mix

TARGET = {"masters": 3, "spare_masters": 2, "tservers": 4}
COUNT = 200


def first(name, *, seed):
    workload = load_plugin("workloads", name)
    driver = Driver(workload.generator(case_of(workload, target=TARGET)), seed=seed)
    drafts = []
    while len(drafts) < COUNT and (draft := driver.next()) is not None:
        driver.complete(draft, value={"token": f"t{len(drafts)}"})
        drafts.append(draft)
    return drafts


@pytest.mark.parametrize(
    "name",
    [
        *("append", "ddl", "hms-ddl", "hms-tokens", "list-append", "mixed", "register", "rows"),
        *("bank", "counter", "long-fork", "queue", "ranges", "registers", "rw-register", "set"),
    ],
)
def test_same_seed_same_operations(name):
    drafts = first(name, seed=1)
    assert drafts
    assert drafts == first(name, seed=1)
    if len(drafts) == COUNT:
        assert drafts != first(name, seed=2)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("append", {"tables": 0}, "--tables is 0"),
        ("append", {"columns": 251}, "--columns is 251"),
        ("append", {"appends": 17}, "--appends is 17"),
        ("append", {"columns": 2, "appends": 3}, "raise --columns, or lower --appends"),
        ("append", {"reads": 101}, "--reads is 101"),
        ("append", {"readers": -1}, "--readers is -1"),
        ("append", {"replicas": 5}, "only 4 tablet servers"),
        ("ddl", {"names": 0}, "names"),
        ("ddl", {"names": 10**6}, "names"),
        ("ddl", {"partitions": 0}, "partitions"),
        ("ddl", {"moves": -1}, "--moves"),
        ("ddl", {"moves": 101}, "--moves"),
        ("ddl", {"burst": 0}, "--burst"),
        ("ddl", {"burst": 1001}, "--burst"),
        # otherwise no create would succeed, and the target would be blamed
        ("ddl", {"replicas": 2}, "a majority"),
        ("ddl", {"replicas": 0}, "a majority"),
        ("ddl", {"replicas": 5}, "--tservers 5"),
        ("rows", {"tables": 0}, "--tables is 0"),
        ("rows", {"reads": 51}, "--reads is 51"),
        ("rows", {"scans": 0}, "--scans is 0"),
        ("rows", {"replicas": 5}, "only 4 tablet servers"),
    ],
)
def test_impossible_options_are_refused(name, options, words):
    workload = load_plugin("workloads", name)
    with pytest.raises(UsageError, match=words):
        workload.generator(case_of(workload, target=TARGET, **options))


def nonces(requests):
    return [request.value["nonce"] for request in requests if "nonce" in request.value]


def names(requests):
    return [request.value["name"] for request in requests if "name" in request.value]


CATALOGS = [ddl.DdlWorkload(), hms_ddl.HmsDdlWorkload()]
KINDS = {"ddl": ddl.KINDS, "hms-ddl": hms_ddl.KINDS}


@pytest.mark.parametrize("workload", CATALOGS)
def test_every_kind_appears_in_the_shares_of_the_mix_with_nonces_of_its_own(workload):
    drafts = take(workload.generator(case_of(workload, readers=0)), 2000)
    assert {draft.f for draft in drafts} == set(KINDS[workload.name])
    assert len(nonces(drafts)) == len(set(nonces(drafts)))
    drafts = take(workload.generator(case_of(workload, mix="get=3,list=1")), 4000)
    counts = Counter(draft.f for draft in drafts)
    assert set(counts) == {"get", "list"}
    assert 2800 < counts["get"] < 3200


@pytest.mark.parametrize("workload", CATALOGS)
def test_a_probe_has_every_kind_and_names_that_it_keeps_and_never_a_nonce_again(workload):
    case = case_of(workload)
    first, again, another = (workload.probe(case, *which) for which in ((1, 0), (1, 1), (2, 0)))
    assert {request.f for request in first} == set(KINDS[workload.name])
    assert names(first) == names(again)
    assert all(name.startswith("probe-1") for name in names(first))
    assert not set(names(first)) & set(names(another))
    used = nonces([*first, *again, *another])
    assert len(used) == len(set(used))


@pytest.mark.parametrize("kinds", [ddl.KINDS, hms_ddl.KINDS])
@pytest.mark.parametrize("mix", ["", "get", "get=x", "fly=1", "get=-1", "get=0"])
def test_a_bad_mix_is_refused(mix, kinds):
    with pytest.raises(UsageError):
        parse_mix(mix, kinds)


def test_the_probe_of_one_register_reads_before_it_writes():
    """A run may lose its last write; only a read before the probe's write can reveal this."""
    workload = load_plugin("workloads", "register")
    first, *rest = workload.probe(None, 0, 0)
    assert first.f == "read"
    assert [request.f for request in rest] == ["write", "read"]
