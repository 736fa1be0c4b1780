"""The append workload, and Elle's verdicts on simulated runs of it."""

import functools
from typing import Any

import pytest

from checkers.foreign.transactions import ElleListAppend
from harness.case import Case
from harness.errors import HistoryError
from harness.ops import History, OpType, Verdict
from harness.verdict.judge import Judgement
from targets.kudu.client import append as _append
from targets.kudu.messages import GetTableSchemaResponse
from tests.support.cases import case_of, judged
from tests.support.drafts import Driver
from tests.support.histories import Writer
from workloads.append import FINAL_MAX, AppendWorkload

case = functools.partial(case_of, AppendWorkload(), target={"tservers": 3})


def test_tables_are_created_before_anything_else():
    driver = Driver(AppendWorkload().generator(case(tables=2)))
    first, second = driver.draft(), driver.draft()
    assert [draft.value["name"] for draft in (first, second)] == ["a0", "a1"]
    assert first.value["columns"] == []
    driver.event(first, 0, OpType.INVOKE, first.value)
    driver.event(second, 1, OpType.INVOKE, second.value)
    assert driver.next() is None
    driver.event(first, 0, OpType.OK)
    assert driver.next() is None
    driver.event(second, 1, OpType.OK)
    third = driver.draft()
    assert third.f == "txn"


@pytest.mark.parametrize(
    ("kind", "value", "again"),
    [
        (OpType.FAIL, None, True),
        (OpType.INFO, None, True),
        (OpType.FAIL, {"result": "not-found"}, True),
        # the create failed, but an earlier one without an answer may have succeeded
        (OpType.FAIL, {"result": "exists"}, False),
    ],
)
def test_a_create_is_repeated_until_the_table_is_there(kind, value, again):
    driver = Driver(AppendWorkload().generator(case(tables=1)))
    first = driver.draft()
    driver.complete(first, kind, value)
    following = driver.draft()
    assert (following.f == "create") is again
    if again:
        assert following.value["name"] == "a0"
        assert following.value["nonce"] != first.value["nonce"]


def test_columns_are_unique_and_full_tables_are_replaced():
    driver = Driver(AppendWorkload().generator(case(tables=2, columns=10, appends=3, readers=0)))
    drafts = driver.take(600)
    appended: dict[str, list[str]] = {}
    created = []
    for draft in drafts:
        if draft.f == "create":
            created.append(draft.value["name"])
            continue
        tables = {mop[1] for mop in draft.value}
        assert len(tables) == 1
        for f, table, column in draft.value:
            assert table in created
            if f == "append":
                appended.setdefault(table, []).append(column)
    columns = [column for found in appended.values() for column in found]
    assert len(columns) == len(set(columns)) > 300
    assert max(map(len, appended.values())) <= 10
    assert created == [f"a{number}" for number in range(len(created))]
    assert len(created) > 20
    widths = {len(d.value) for d in drafts if d.f == "txn" and d.value[0][0] == "append"}
    assert widths == {1, 2, 3}


def test_the_share_of_reads_and_the_clients_that_only_read():
    drafts = Driver(AppendWorkload().generator(case(reads=0, readers=0)), threads=4).take(100)
    assert all(d.f == "create" or d.value[0][0] == "append" for d in drafts)
    # five of ten clients are readers, which is more than the four threads here
    chosen = case(reads=0, readers=50)
    drafts = Driver(AppendWorkload().generator(chosen), threads=4).take(100)
    assert all(d.f == "create" or d.value[0][0] == "r" for d in drafts)


def test_the_probe_makes_appends_and_reads_a_table_of_its_own():
    first, second = (AppendWorkload().probe(case(), attempt, 0) for attempt in (0, 1))
    assert [request.f for request in first] == ["create", "txn", "txn"]
    assert first[0].value["name"] == first[1].value[0][1] == first[2].value[0][1] == "probe-0"
    assert second[0].value["name"] == "probe-1"
    again = AppendWorkload().probe(case(), 0, 1)
    assert again[1].value[0][2] != first[1].value[0][2]


def test_final_reads_every_table_there_can_be_up_to_a_bound():
    final = AppendWorkload().final(case())
    names = [request.value[0][1] for request in final]
    assert names == [f"a{number}" for number in range(len(names))]
    assert len(AppendWorkload().final(case(columns=3, appends=3))) == FINAL_MAX


# --- judged by Elle ----------------------------------------------------------------------------


def check(history: History) -> tuple[Verdict, str]:
    result = ElleListAppend().check(history, None, time_limit_s=300)
    return result.verdict, result.reason


def written() -> Writer:
    h = Writer()
    h.ok(0, "create", {"name": "a0"})
    for element in ("c1", "c2"):
        h.call(0, "txn", [["append", "a0", element]])
        h.ret(0, OpType.OK, [["append", "a0", element]])
    return h


def read(h: Writer, found: list[str]) -> History:
    h.call(1, "txn", [["r", "a0", None]])
    h.ret(1, OpType.OK, [["r", "a0", found]])
    return History(h.lines)


def test_creates_are_no_transactions_and_a_lost_table_is_a_stale_read():
    assert check(read(written(), ["c1", "c2"]))[0] is Verdict.VALID
    verdict, reason = check(read(written(), []))
    assert verdict is Verdict.INVALID
    assert "realtime" in reason


def test_other_invalid_transactions_are_refused():
    h = written()
    h.ok(0, "delete", {"name": "a0"})
    with pytest.raises(HistoryError, match="op 6 has the value"):
        check(History(h.lines))


def simulated(nemesis: str, *bugs: str, **fields: float) -> Judgement:
    options: dict[str, Any] = {"time_limit_s": 10.0, **fields}
    return judged(Case(seed=1, workload="append", nemeses=(nemesis,), bugs=bugs, **options))


@pytest.mark.slow
@pytest.mark.parametrize("nemesis", ["none", "partition-leader", "kill-leader", "pause-leader"])
def test_a_correct_target_is_not_blamed(nemesis):
    judgement = simulated(nemesis, interval_s=2.0, duration_s=1.5, time_limit_s=5.0)
    assert judgement.verdict is Verdict.VALID, [result.reason for result in judgement.results]
    stats = next(result for result in judgement.results if result.checker == "stats")
    assert {"create", "txn", "txn r"} == set(stats.details["by_f"])


@pytest.mark.slow
def test_stale_reads_are_found_by_elle():
    judgement = simulated("partition-leader", "NO-LEASE")
    found = next(result for result in judgement.results if result.checker == "elle-list-append")
    assert found.verdict is Verdict.INVALID
    assert "G-single-item-realtime" in found.details["anomalies"]


@pytest.mark.slow
def test_a_target_that_appends_but_cannot_be_read_is_not_live(monkeypatch):
    """Appends and reads are both transactions, but success of one kind proves nothing about the
    other.
    """

    def unsettled(call: object, response: object) -> str | None:
        del call
        return "ALTERING: forever" if isinstance(response, GetTableSchemaResponse) else None

    monkeypatch.setattr(_append._Transaction, "unsettled", unsettled)
    judgement = simulated("none", time_limit_s=2.0)
    liveness = next(result for result in judgement.results if result.checker == "liveness")
    assert liveness.verdict is Verdict.INVALID
    assert any("txn" in sentence for sentence in liveness.explanation)
