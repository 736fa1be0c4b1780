"""Clients' maps of key ranges to tablets, compared with the catalog's rows."""

import copy
import random

import pytest

from checkers.catalog.invariants.maps import check_maps, check_named_tablets
from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.snapshot import read_snapshot
from harness.ops import OpType, Verdict
from tests.checkers.catalog.test_invariants import Json, judge, sound_history, sound_snapshot
from tests.support.histories import Writer
from tests.support.repeated import for_each

LOGGED, UNLOGGED = "a" * 32, "b" * 32


def snapshot_with_maps() -> Json:
    snapshot = sound_snapshot()
    for dump in snapshot["masters"].values():
        dump["unlike_rows"] = {"view": []} | ({"leader": []} if dump["ready"] else {})
    return snapshot


def findings_of(snapshot: Json, h: Writer | None = None) -> CatalogFindings:
    history = (h or Writer()).history
    findings = CatalogFindings("catalog-invariants", history)
    read = read_snapshot(snapshot, findings, {})
    assert read is not None
    check_maps(read, findings)
    check_named_tablets(history, read, findings)
    return findings


def broken(snapshot: Json, h: Writer | None = None) -> list[str]:
    return [violation.rule for violation in findings_of(snapshot, h).violations]


def test_maps_that_equal_a_scan_are_sound():
    result = judge(sound_history(), snapshot_with_maps())
    assert result.verdict is Verdict.VALID, result.reason
    assert result.details["looked"]["maps-equal-rows"] == 7, "4 maps, and 3 maps of names"


def test_dumps_without_maps_say_nothing():
    findings = findings_of(sound_snapshot())
    assert (findings.violations, findings.looked) == ([], {})


@pytest.mark.parametrize(("master", "which"), [("m1", "view"), ("m2", "leader"), ("m2", "view")])
def test_a_map_that_is_not_the_rows_is_named(master, which):
    snapshot = snapshot_with_maps()
    snapshot["masters"][master]["unlike_rows"][which] = ["lacks table A"]
    (violation,) = findings_of(snapshot).violations
    assert violation.rule == "maps-equal-rows"
    for part in (master, which, "lacks table A"):
        assert part in violation.sentence
    assert judge(sound_history(), snapshot).verdict is Verdict.INVALID


@for_each("seed", range(20))
def test_any_change_of_a_map_of_names_is_found(seed):
    rng = random.Random(seed)
    snapshot = snapshot_with_maps()
    names = snapshot["masters"][rng.choice(["m1", "m2", "m3"])]["name_map"]
    before = copy.deepcopy(names)
    name = rng.choice([*names, "new"])
    if rng.random() < 0.5:
        names.pop(name, None)
    else:
        names[name] = rng.choice(["A", "B", "C"])
    assert bool(broken(snapshot)) is (names != before)


def refused(error: str) -> Writer:
    h = Writer()
    h.call(1, "locate", {"name": "a"})
    h.add(1, OpType.FAIL, "locate", None, "m1", error=error)
    return h


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (f"TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE: the tablet {LOGGED} is not running", []),
        (
            f"TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE: the tablet {UNLOGGED} is not running",
            ["named-tablets"],
        ),
        ("TABLET_NOT_RUNNING/SERVICE_UNAVAILABLE: a tablet is not running", []),
        (f"TABLE_NOT_FOUND/NOT_FOUND: the table does not exist: id '{UNLOGGED}'", []),
    ],
)
def test_no_answer_names_a_tablet_that_was_never_logged(error, found):
    snapshot = snapshot_with_maps()
    for dump in snapshot["masters"].values():
        dump["tablets"][3]["id"] = LOGGED
    assert broken(snapshot, refused(error)) == found
    snapshot["masters"]["m2"]["truncated"] = {"tablets": 5}
    assert broken(snapshot, refused(error)) == [], (
        "the dump is truncated, so it may have left out the row"
    )
