"""The workload of metastore events, in which readers poll while other clients change tables."""

import pytest

from harness.case import Case
from harness.errors import UsageError
from harness.plugins.options import with_defaults
from tests.hive.runs import run
from tests.support.drafts import take
from workloads.hms_events import EAGER, LAZY, HmsEventsWorkload

WORDS = "--workload hms-events --nemesis none --time-limit 10"


def generator(concurrency=10, **options):
    workload = HmsEventsWorkload()
    given = with_defaults("workload", workload.name, workload.options, options)
    case = Case(seed=1, workload=workload.name, workload_options=given, concurrency=concurrency)
    return workload.generator(case)


def test_there_are_readers_and_a_writer():
    for concurrency, options in ((1, {}), (2, {"readers": 40}), (10, {"mix": "get=1,poll=1"})):
        with pytest.raises(UsageError):
            generator(concurrency, **options)
    found = generator()
    assert (found.readers, found.reads) == (4, (EAGER, LAZY))
    # `take` uses the first free thread, which is an eager reader
    assert {draft.f for draft in take(found, 100)} == {"poll"}


@pytest.mark.parametrize("ttl_ms", [400, 86_400_000])
def test_readers_see_all_whether_the_log_is_cleaned_or_not(ttl_ms):
    result = run(f"{WORDS} --event-ttl-ms {ttl_ms}", 1)
    assert result.verdict == "valid"
