"""The supplied histories, compared with the results of the real Elle for every request.

`verdict`, `not` and `also-not` are equal in every row. So are the types of anomalies, apart from
the tolerance for cycles that the data set's README describes, and from `DIFFERENT`.
"""

import csv
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from checkers.elle import ElleResult, check_list_append, check_rw_register
from checkers.elle.models import (
    CYCLE_TYPES,
    EXISTENCE_MODELS,
    canonical,
    existence_type,
    impossible_models,
    with_implied,
)
from checkers.elle.verdict import certified
from harness.formats.edn.jepsen import load_edn
from harness.ops import History, Verdict

CONFORMANCE = Path(
    os.environ.get("HARNESS_CONFORMANCE")
    or Path(__file__).resolve().parents[3] / "shared" / "conformance"
)
FOLDER = CONFORMANCE / "elle"

# Upstream searches a component once for each kind of cycle, and explains the first candidate. If
# the explained cycle has another kind, upstream drops kinds with anti-dependencies, and reports G0
# or G1c under the other name (`cycle-in-scc-of-type` in `elle/txn.clj`). This implementation
# continues until it finds a cycle of the kind. In eight rows the types therefore differ by more
# than the data set's README allows. Values: (types only upstream, types only here).
DIFFERENT = {
    # Upstream explains a candidate for G0-process by its data, as G-nonadjacent-item-process.
    ("list-append/000926.edn", "strong-session-serializable"): (
        "G-nonadjacent-item-process strong-session-PL-1-cycle-exists",
        "G0-process",
    ),
    ("list-append/000926.edn", "strong-session-snapshot-isolation"): (
        "G-nonadjacent-item-process strong-session-PL-1-cycle-exists",
        "G0-process",
    ),
    # Ops 8, 10 and 6 form a G-single-item-realtime, but are not the first candidate.
    ("list-append/002600.edn", "strict-serializable"): (
        "G-nonadjacent-item-realtime",
        "G-single-item-realtime",
    ),
    ("list-append/002600.edn", "strong-snapshot-isolation"): (
        "G-nonadjacent-item-realtime",
        "G-single-item-realtime",
    ),
    # Ops 12 and 7 depend on each other by rw and ww, but also by ww in both directions. Upstream
    # explains the cycle as G0 and ends the search for G-single-item. Ops 3 and 12 only allow rw and
    # wr.
    ("list-append/007106.edn", "strict-serializable"): ("G2-item-realtime", "G-single-item"),
    ("list-append/007106.edn", "strong-session-serializable"): ("", "G-single-item"),
    ("list-append/007106.edn", "strong-session-snapshot-isolation"): ("", "G-single-item"),
    ("list-append/007106.edn", "strong-snapshot-isolation"): ("", "G-single-item"),
}

Row = dict[str, str]


def rows() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for table in ("list-append.csv", "rw-register.csv"):
        if (FOLDER / table).is_file():
            with (FOLDER / table).open(newline="") as lines:
                for row in csv.DictReader(lines):
                    found.setdefault(row["file"], []).append(row)
    return found


ROWS = rows()

pytestmark = pytest.mark.skipif(
    not ROWS, reason=f"no conformance data at {FOLDER}; set HARNESS_CONFORMANCE"
)


@cache
def history(file: str) -> History:
    return load_edn(FOLDER / file)


def check(row: Row) -> ElleResult:
    if row["checker"] == "list-append":
        return check_list_append(history(row["file"]), consistency_models=(row["model"],))
    options = {name.replace("-", "_"): True for name in row["options"].split()}
    return check_rw_register(history(row["file"]), consistency_models=(row["model"],), **options)


def bare(types: Iterable[str]) -> set[str]:
    """Remove the suffixes from cycle types."""
    return {name.removesuffix("-process").removesuffix("-realtime") for name in types}


# history -> the number of cases that the verifier cannot decide. In lists, the version order does
# not follow from single reads; in registers, upstream reports lost updates of a transaction's own
# writes.
BEYOND = {
    "list-append/000410.edn": 6,
    "list-append/003274.edn": 4,
    "list-append/003380.edn": 6,
    "list-append/005211.edn": 11,
    "list-append/006649.edn": 2,
    "rw-register/000002.edn": 9,
    "rw-register/002503.edn": 9,
    "rw-register/004496.edn": 9,
    "rw-register/006778.edn": 9,
}


PARTS = 20
"""The number of tests among which the hundreds of histories are divided."""


@pytest.mark.parametrize("part", range(PARTS))
def test_the_answers_are_those_of_elle_and_every_case_verifies(part):
    for file in list(ROWS)[part::PARTS]:
        answers_are_those_of_elle_and_every_case_verifies(file)


def answers_are_those_of_elle_and_every_case_verifies(file: str) -> None:
    beyond = 0
    verified: list[tuple[Any, int]] = []  # cases that occur for several models are verified once
    for row in ROWS[file]:
        result = check(row)
        expected = (row["verdict"], set(row["not"].split()), set(row["also_not"].split()))
        assert expected == (result.verdict.value, set(result.not_), set(result.also_not)), row
        anomalies_are_those_of(row, set(result.anomalies))
        asked = (row["options"], result.verdict, result.not_, result.anomalies)
        known = [open_ for other, open_ in verified if other == asked]
        if not known:
            known = [cases_verify(row, result)]
            verified.append((asked, known[0]))
        beyond += known[0]
    assert (file, BEYOND.get(file, 0)) == (file, beyond)


def anomalies_are_those_of(row: Row, found: set[str]) -> None:
    wanted = set(row["anomalies"].split())
    if (row["file"], row["model"]) in DIFFERENT:
        different = DIFFERENT[row["file"], row["model"]]
        only = tuple(set(names.split()) for names in different)
        assert only == (wanted - found, found - wanted), row
        # the report contains all of upstream's results, and more
        assert wanted & CYCLE_TYPES <= with_implied(found), row
        return
    exist = {existence_type(model) for model in EXISTENCE_MODELS}
    assert wanted - CYCLE_TYPES - exist == found - CYCLE_TYPES - exist, row
    assert found & exist <= wanted & exist, row
    replaced = {model for model in EXISTENCE_MODELS if existence_type(model) in (wanted - found)}
    assert replaced <= impossible_models(found & CYCLE_TYPES), row
    assert bare(wanted & CYCLE_TYPES) <= bare(found & CYCLE_TYPES), row
    for extra in found & CYCLE_TYPES:
        if not {extra} & wanted and bare([extra]) - bare(wanted & CYCLE_TYPES):
            assert impossible_models([extra]) & replaced, (row, extra)


def cases_verify(row: Row, result: ElleResult) -> int:
    """Check that verified cases prove the verdict; return the number of undecided cases."""
    kind, options = row["checker"], row["options"].split()
    after, proof = certified(result, history(row["file"]), kind, options)
    assert (after.verdict, after.not_) == (result.verdict, result.not_), (row, after.reason)
    assert (proof is not None) == (result.verdict is Verdict.INVALID), row
    if proof is None:
        return 0
    fallen = impossible_models(proof["verified"])
    # In some rows, upstream's lost update of an own write is the only case, and cannot be verified.
    own = "lost-update" in proof["not_verified"]
    assert own or any(canonical(model) in fallen for model in result.not_), row
    return len(proof["not_verified"])


def test_the_data_set_is_whole():
    assert (len(ROWS), sum(len(requests) for requests in ROWS.values())) == (240, 1850)
