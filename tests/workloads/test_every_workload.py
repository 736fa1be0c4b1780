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


@pytest.mark.parametrize("kinds", [ddl.KINDS, hms_ddl.KINDS])
@pytest.mark.parametrize("mix", ["", "get", "get=x", "fly=1", "get=-1", "get=0"])
def test_a_bad_mix_is_refused(mix, kinds):
    with pytest.raises(UsageError):
        parse_mix(mix, kinds)
