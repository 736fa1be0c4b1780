"""The list-append workload, whose answers Elle can check."""

import functools
from typing import Any

import msgspec
import pytest

from checkers.foreign.transactions import ElleListAppend
from harness.ops import OpType, Verdict
from harness.vocabularies.transactions import play
from tests.support.cases import case_of
from tests.support.drafts import Driver
from tests.support.histories import Writer
from workloads.list_append import FINAL_KEYS_MAX, ListAppendWorkload

case = functools.partial(case_of, ListAppendWorkload())


def drafts(count: int, **options: Any) -> list[Any]:
    # with a reader, the driver's only process would be that reader
    asked = case(**{"readers": 0, **options})
    return Driver(ListAppendWorkload().generator(asked)).take(count)


def test_elements_are_unique_and_lists_stay_short():
    mops = [mop for draft in drafts(400, length=5, keys=3) for mop in draft.value]
    appends = [(key, element) for f, key, element in mops if f == "append"]
    elements = [element for _, element in appends]
    assert elements == sorted(set(elements))
    by_key = [key for key, _ in appends]
    assert {by_key.count(key) for key in by_key} <= set(range(1, 6))
    assert max(by_key.count(key) for key in by_key) == 5
    assert len(set(by_key)) > 50  # new keys replace full lists
    assert {f for f, _, _ in mops} == {"append", "r"}
    assert all(value is None for f, _, value in mops if f == "r")


def test_transactions_are_as_wide_as_asked():
    widths = {len(draft.value) for draft in drafts(200, width=3)}
    assert widths == {1, 2, 3}


def test_some_clients_and_some_transactions_only_read():
    for options in ({"reads": 100}, {"readers": 100, "reads": 0}):
        assert all(f == "r" for draft in drafts(50, **options) for f, _, _ in draft.value)
    kinds = {f for draft in drafts(50, reads=0) for f, _, _ in draft.value}
    assert kinds == {"append", "r"}


def test_the_end_reads_every_list_that_there_can_be():
    workload = ListAppendWorkload()
    asked = msgspec.structs.replace(case(), time_limit_s=10.0)
    final = [key for request in workload.final(asked) for _, key, _ in request.value]
    busy = drafts(int(asked.rate * asked.time_limit_s))
    assert {key for draft in busy for _, key, _ in draft.value} <= set(final)
    assert len(final) == len(set(final))
    long = workload.final(msgspec.structs.replace(case(), time_limit_s=1e6))
    assert sum(len(request.value) for request in long) == FINAL_KEYS_MAX


def test_probes_never_meet_the_workload_or_each_other():
    workload = ListAppendWorkload()
    probes = [workload.probe(case(), attempt, retry) for attempt in (0, 1) for retry in (0, 1)]
    elements = [append.value[0][2] for append, _ in probes]
    assert len(set(elements)) == 4
    assert max(elements) < 0
    assert [append.value[0][1] for append, _ in probes] == ["probe-0"] * 2 + ["probe-1"] * 2
    assert probes[0][1].value == [["r", "probe-0", None]]


def test_play_reads_own_appends():
    mops = [["r", "a", None], ["append", "a", 2], ["append", "a", 3], ["r", "a", None]]
    lists = {"a": [1], "b": []}
    answer, changed = play([*mops, ["r", "b", None]], lists)
    assert answer == [["r", "a", [1]], *mops[1:3], ["r", "a", [1, 2, 3]], ["r", "b", []]]
    assert changed == {"a": [1, 2, 3]}
    assert lists == {"a": [1], "b": []}
    assert play([["r", "b", None]], lists) == ([["r", "b", []]], {})


@pytest.mark.parametrize("stale", [False, True])
def test_elle_judges_what_an_honest_and_a_stale_target_answer(stale):
    lists: dict[str, list[Any]] = {}
    old: dict[str, list[Any]] = {}
    writer = Writer()
    for number, draft in enumerate(drafts(200, keys=2)):
        empty: dict[str, list[Any]] = {key: [] for _, key, _ in draft.value}
        only_reads = all(f == "r" for f, _, _ in draft.value)
        seen = old if stale and only_reads else lists
        answer, changed = play(draft.value, empty | seen)
        lists |= changed
        old = dict(lists) if number % 10 == 0 else old
        writer.call(number % 5, "txn", draft.value)
        writer.ret(number % 5, OpType.OK, answer)

    result = ElleListAppend().check(writer.history, case(), time_limit_s=30)
    assert result.verdict is (Verdict.INVALID if stale else Verdict.VALID)
