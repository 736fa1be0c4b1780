"""The tablets of a table must cover its key space while ranges are added and dropped."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.catalog.invariants.dumps import check_coverage
from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.ranges import check_ranges
from checkers.catalog.invariants.snapshot import Snapshot
from checkers.verdict.findings import Findings
from harness.permits import LOST_AFTER_POWER_CUT, Permit, fact_of
from tests.support.histories import Writer

Json = dict[str, Any]
LETTERS = "abcdef"


def key(bucket: int, letter: str, own: int) -> str:
    return (f"{bucket:08x}" if own > 1 else "") + letter.encode().hex()


def state(own: int, ranges: dict[tuple[str, str], int]) -> tuple[list[Json], list[Json]]:
    tablets = [
        {"start": key(bucket, low, own), "end": key(bucket, high, own)}
        for (low, high), buckets in ranges.items()
        for bucket in range(buckets)
    ]
    custom = [hashed(low, high, n) for (low, high), n in ranges.items() if n != own]
    return tablets, custom


def hashed(low: str, high: str, buckets: int) -> Json:
    start, end = low.encode().hex(), high.encode().hex()
    return {"start": start, "end": end, "num_hash_buckets": buckets}


def snapshot(own: int, tablets: list[Json], custom: list[Json], **more: Any) -> Snapshot:
    table = {
        "id": "A", "name": "a", "state": "RUNNING", "is_bounded": True, "num_hash_buckets": own,
        "custom_ranges": custom, **more,
    }  # fmt: skip
    rows = [
        {"id": f"A{n}", "table_id": "A", "state": "RUNNING"} | tablet
        for n, tablet in enumerate(tablets)
    ]
    return Snapshot({"m1": {"tables": [table], "tablets": rows}}, {}, "m1")


def broken(own: int, tablets: list[Json], custom: list[Json]) -> list[str]:
    findings = Findings("catalog-invariants", {})
    check_coverage(snapshot(own, tablets, custom), findings)
    assert {violation.rule for violation in findings.violations} <= {"coverage"}
    assert findings.looked["coverage"] == 1
    return [violation.sentence for violation in findings.violations]


bounds = st.lists(st.sampled_from(LETTERS), min_size=2, max_size=6, unique=True).map(sorted)


@given(st.integers(1, 3), bounds, st.lists(st.integers(2, 4), min_size=5, max_size=5))
def test_disjoint_ranges_with_all_their_buckets_are_sound(own, letters, buckets):
    numbers = buckets if own > 1 else [1] * 5
    ranges = dict(zip(itertools.pairwise(letters), numbers, strict=False))
    tablets, custom = state(own, ranges)
    assert broken(own, tablets, custom) == []
    for left_out in range(len(tablets)):
        few = [*tablets[:left_out], *tablets[left_out + 1 :]]
        assert bool(broken(own, few, custom)) is (own > 1), (
            "the only tablet of a range may be missing"
        )
        assert broken(own, [*tablets, tablets[left_out]], custom)
    for left_out in range(len(custom)):
        assert broken(own, tablets, [*custom[:left_out], *custom[left_out + 1 :]])
        assert broken(own, tablets, [*custom, custom[left_out]])


def test_a_table_without_ranges_is_sound():
    assert broken(2, [], []) == []


@pytest.mark.parametrize("buckets", [2, 3])
def test_the_hash_schema_of_a_range_that_was_dropped_is_broken(buckets):
    tablets, custom = state(2, {("a", "b"): 2})
    (sentence,) = broken(2, tablets, [*custom, hashed("c", "d", buckets)])
    assert "does not exist" in sentence


def test_a_range_that_is_listed_with_the_tables_own_hash_schema_covers_its_keys():
    tablets, _ = state(2, {("a", "b"): 2, ("c", "d"): 2})
    assert broken(2, tablets, [hashed("c", "d", 2)]) == []


def test_ranges_that_overlap_are_broken():
    tablets, _ = state(2, {("a", "c"): 2, ("b", "d"): 2})
    assert any("overlaps" in sentence for sentence in broken(2, tablets, []))


# --- acknowledged alters ---------------------------------------------------------------------

ADD, DROP = ["add-range", "a", "b", ""], ["drop-range", "a", "b"]
# the version in the answer (`None` if the answer was lost), and the steps of the alter
Alter = tuple[int | None, list[str]]


def judged(alters: list[Alter], *, exists: bool, h: Writer | None = None, **more: Any) -> Any:
    h = h or Writer()
    for number, (version, *steps) in enumerate(alters):
        call = {"name": "a", "nonce": f"n{number}", "steps": steps}
        if version is None:
            h.lost(number, "alter", call)
        else:
            h.ok(number, "alter", call, {"table_id": "A", "schema_version": version})
    tablets, custom = state(2, {("a", "b"): 2} if exists else {})
    findings = CatalogFindings("catalog-invariants", h.history)
    check_ranges(h.history, snapshot(2, tablets, custom, **more), findings)
    return findings


@pytest.mark.parametrize(
    ("alters", "expected"),
    [
        ([(1, ADD)], True),
        ([(1, ADD), (2, DROP)], False),
        ([(2, DROP), (1, ADD)], False),  # the versions count, not the order of the answers
        ([(1, DROP, ADD)], True),
        ([(1, ADD, DROP)], False),
        ([(1, ADD), (None, DROP)], None),
        ([(None, DROP), (1, ADD)], None),
        ([(1, ADD), (None, ["drop-range", "b", "c"])], True),
        ([(1, ["add", "c"])], None),
    ],
)
def test_the_last_acknowledged_alter_decides(alters, expected):
    for exists in (False, True):
        findings = judged(alters, exists=exists)
        wrong = expected is not None and exists is not expected
        assert [violation.rule for violation in findings.violations] == ["acknowledged"] * wrong
        assert findings.looked["acknowledged"] == (expected is not None)


@pytest.mark.parametrize("more", [{"state": "REMOVED"}, {"is_bounded": False}])
def test_other_tables_are_not_judged(more):
    findings = judged([(1, ADD)], exists=False, **more)
    assert (findings.violations, findings.looked.total()) == ([], 0)


def test_a_power_cut_may_have_lost_an_alter():
    h = Writer()
    h.fact("permits", fact_of("modern", [Permit(name=LOST_AFTER_POWER_CUT, why="")]))
    call = {"name": "a", "nonce": "n", "steps": [ADD]}
    h.ok(1, "alter", call, {"table_id": "A", "schema_version": 1})
    h.nemesis("power", {"action": "inject", "fault": "f1", "targets": ["m1"], "kind": "power-cut"})
    findings = judged([], exists=False, h=h)
    assert findings.violations == []
    assert set(findings.permitted) == {LOST_AFTER_POWER_CUT}
