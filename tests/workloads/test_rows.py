"""The rows workload finds planted defects of tablet servers."""

import functools
from collections import Counter
from typing import Any

import pytest

from harness.case import Case
from harness.generator import Draft
from harness.ops import OpType, Verdict
from harness.verdict.judge import Judgement
from tests.support.cases import case_of, convicting, judged
from tests.support.drafts import Driver
from tests.workloads.row_defects import (
    DEFECTS,
    bounds_of_scans_are_ignored,
    followers_answer_latest,
    one_row_of_a_write_is_dropped,
    requests_are_not_remembered,
    row_errors_are_lost,
    safe_time_is_ignored,
    timestamps_of_clients_are_ignored,
    timestamps_of_snapshots_are_ignored,
)
from workloads.rows import BANK, SUM, RowsWorkload

case = functools.partial(case_of, RowsWorkload(), target={"tservers": 3})


def drafts(count: int = 600, **options: Any) -> list[Draft]:
    """Return the drafts of a run, without the creates."""
    driver = Driver(RowsWorkload().generator(case(**{"readers": 0, **options})))
    return [draft for draft in driver.take(count) if draft.f != "create"]


def test_tables_are_created_before_anything_else_and_again_until_they_are_there():
    driver = Driver(RowsWorkload().generator(case(tables=1)))
    first, second = driver.draft(), driver.draft()
    assert [draft.value["name"] for draft in (first, second)] == ["r0", BANK]
    assert second.value["partitions"] == 1
    driver.event(first, 0, OpType.INVOKE, first.value)
    driver.event(second, 1, OpType.INVOKE, second.value)
    assert driver.next() is None
    driver.event(first, 0, OpType.INFO)
    driver.event(second, 1, OpType.OK)
    again = driver.draft()
    assert again.value["name"] == "r0"
    assert again.value["nonce"] != first.value["nonce"]
    driver.complete(again, OpType.FAIL, {"result": "exists"})
    following = driver.draft()
    assert following.f != "create"


def test_every_value_is_written_to_a_cell_once():
    times: Counter[Any] = Counter()
    for draft in drafts():
        if draft.f == "write":
            for _, key, cells in draft.value["rows"]:
                for column, value in cells.items():
                    if column != "balance":
                        times[draft.value["table"], key, column, value] += 1
    assert len(times) > 300
    assert set(times.values()) == {1}


def test_kinds_of_writes_and_cells():
    rows = [
        row
        for d in drafts()
        if d.f == "write" and d.value["table"] != BANK
        for row in d.value["rows"]
    ]
    assert {kind for kind, _, _ in rows} == {"insert", "upsert", "update", "delete"}
    assert {len(cells) for kind, _, cells in rows if kind == "delete"} == {0}
    assert {len(cells) for kind, _, cells in rows if kind == "insert"} == {2}
    assert {len(cells) for kind, _, cells in rows if kind == "update"} == {1}
    assert {len(cells) for kind, _, cells in rows if kind == "upsert"} == {1, 2}


def test_a_group_is_written_whole_with_a_sum_that_stays():
    found = set()
    for draft in drafts(groups=3):
        if draft.f == "write" and draft.value["table"] == BANK:
            keys = [key for _, key, _ in draft.value["rows"]]
            group = keys[0].split(".")[0]
            assert keys == [f"{group}.{n}" for n in range(len(keys))]
            assert len(keys) == 2 + int(group[1:]) % 2
            assert {kind for kind, _, _ in draft.value["rows"]} == {"upsert"}
            assert sum(int(cells["balance"]) for _, _, cells in draft.value["rows"]) == SUM
            found.add(group)
    assert found == {"g0", "g1", "g2"}


def test_shares_of_reads_and_scans_and_clients_that_only_read():
    kinds = Counter(draft.f for draft in drafts(reads=40, scans=20, readers=0))
    assert 0.3 < kinds["read"] / kinds.total() < 0.5
    assert 0.1 < kinds["scan"] / kinds.total() < 0.3
    # five of ten clients are readers, which is more than the four threads here
    chosen = case(readers=50)
    only = Driver(RowsWorkload().generator(chosen), threads=4).take(100)
    assert {draft.f for draft in only} == {"create", "read", "scan"}
    assert not any(d.value["table"] == BANK for d in drafts(groups=0) if d.f != "read")


def test_scans_go_back_to_timestamps_that_were_answered():
    driver = Driver(RowsWorkload().generator(case(past=100)))
    answered, seen = [], set()
    for number in range(300):
        draft = driver.draft()
        at = draft.value.get("at")
        if at is not None:
            assert (draft.value["mode"], draft.value["replica"]) == ("snapshot", "any")
            assert at in answered
            seen.add(at)
        answered.append(number + 1)
        value = {"timestamp": number + 1} if draft.f == "scan" else None
        driver.complete(draft, value=draft.value if value is None else {**draft.value, **value})
    assert len(seen) > 5
    modes = {d.value["mode"] for d in drafts() if d.f == "scan"}
    assert modes == {"latest", "snapshot", "read-your-writes"}


def test_the_probe_has_a_table_of_its_own_and_final_scans_are_of_all():
    first, again = (RowsWorkload().probe(case(), 0, retry) for retry in (0, 1))
    assert [request.f for request in first] == ["create", "write", "read", "scan"]
    assert first[1].value["rows"][0][2] != again[1].value["rows"][0][2]
    final = RowsWorkload().final(case(tables=2))
    assert [request.value["table"] for request in final] == ["r0", "r1", BANK] * 2


# --- in simulation -------------------------------------------------------------------------------


def simulated(seed: int, *nemeses: str) -> Judgement:
    times = {"time_limit_s": 8.0, "interval_s": 2.5, "duration_s": 1.5}
    return judged(Case(seed=seed, workload="rows", nemeses=nemeses, **times))


@pytest.mark.slow
@pytest.mark.parametrize(
    "nemeses", [("none",), ("partition", "kill", "pause"), ("kill-tserver", "clock-jump")]
)
def test_a_correct_target_is_not_blamed(nemeses):
    judgement = simulated(2, *nemeses)
    assert judgement.verdict is Verdict.VALID, [result.reason for result in judgement.results]


FOUND = {
    followers_answer_latest: ("partition-random-node", 1, {"linearizable-rows"}),
    requests_are_not_remembered: (
        "none",
        1,
        {"linearizable-rows", "snapshot-scans", "elle-rows", "rows-exactly-once"},
    ),
    safe_time_is_ignored: ("none", 1, {"snapshot-scans", "elle-rows"}),
    row_errors_are_lost: ("none", 1, {"linearizable-rows", "snapshot-scans"}),
    timestamps_of_clients_are_ignored: ("clock-jump", 3, {"read-your-writes"}),
    one_row_of_a_write_is_dropped: ("none", 1, {"linearizable-rows", "bank-sums"}),
    bounds_of_scans_are_ignored: ("none", 1, {"rows-exactly-once"}),
    timestamps_of_snapshots_are_ignored: ("none", 1, {"read-your-writes"}),
}
TRIES = 4


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_is_found(defect, monkeypatch):
    nemesis, first, expected = FOUND[defect]
    defect(monkeypatch)
    # the first seed suffices, unless draws or schedules have changed
    for seed in range(first, first + TRIES):
        if expected <= convicting(simulated(seed, nemesis)):
            return
    pytest.fail(f"{expected} did not find it in seeds {first}..{first + TRIES - 1}")
