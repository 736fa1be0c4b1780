"""The promises of every workload: operations follow from the seed, mixes are checked."""

import pytest

from harness.errors import UsageError
from harness.registry import load_plugin
from tests.support.cases import case_of
from tests.support.drafts import Driver
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
    "name", ["append", "ddl", "hms-ddl", "hms-tokens", "list-append", "mixed", "register", "rows"]
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
        ("append", {"columns": 2, "appends": 3}, "raise it, or lower --appends"),
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
        # Else the target would be blamed for creating nothing.
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


@pytest.mark.parametrize("kinds", [ddl.KINDS, hms_ddl.KINDS])
@pytest.mark.parametrize("mix", ["", "get", "get=x", "fly=1", "get=-1", "get=0"])
def test_a_bad_mix_is_refused(mix, kinds):
    with pytest.raises(UsageError):
        parse_mix(mix, kinds)
