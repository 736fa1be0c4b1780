"""The supplied histories, and what the real Elle says of them under every request.

`verdict`, `not` and `also-not` are equal in every row. So are the types of anomalies, with the
liberty the data set's README takes for cycles; and but for `DIFFERENT`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from checkers.elle import ElleResult, check_list_append, check_rw_register
from checkers.elle.models import CYCLE_TYPES, EXISTENCE_MODELS, existence_type, impossible_models
from harness.ops import History
from harness.store.edn import load_edn

CONFORMANCE = Path(
    os.environ.get("HARNESS_CONFORMANCE")
    or Path(__file__).resolve().parents[3] / "shared" / "conformance"
)
FOLDER = CONFORMANCE / "elle"

# In a component with several cycles upstream takes the first of a kind that it comes upon, names it
# by its data, and looks no further if that makes it another kind. Ours looks for one that is of the
# kind whatever its steps are named by; in these files it finds one where upstream did not.
DIFFERENT = {"list-append/000926.edn", "list-append/002600.edn", "list-append/007106.edn"}

Row = dict[str, str]


def rows() -> dict[str, list[Row]]:
    """The requests by history."""
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
    """A history of the data set."""
    return load_edn(FOLDER / file)


def check(row: Row) -> ElleResult:
    """The request of a row."""
    if row["checker"] == "list-append":
        return check_list_append(history(row["file"]), consistency_models=(row["model"],))
    options = {name.replace("-", "_"): True for name in row["options"].split()}
    return check_rw_register(history(row["file"]), consistency_models=(row["model"],), **options)


def bare(types: Iterable[str]) -> set[str]:
    """Cycle types without suffix."""
    return {name.removesuffix("-process").removesuffix("-realtime") for name in types}


@pytest.mark.parametrize("file", ROWS)
def test_verdicts_and_boundaries_are_those_of_elle(file: str) -> None:
    for row in ROWS[file]:
        result = check(row)
        expected = (row["verdict"], set(row["not"].split()), set(row["also_not"].split()))
        assert expected == (result.verdict.value, set(result.not_), set(result.also_not)), row


@pytest.mark.parametrize("file", sorted(set(ROWS) - DIFFERENT))
def test_anomalies_are_those_of_elle(file: str) -> None:
    for row in ROWS[file]:
        wanted, found = set(row["anomalies"].split()), set(check(row).anomalies)
        exist = {existence_type(model) for model in EXISTENCE_MODELS}
        assert wanted - CYCLE_TYPES - exist == found - CYCLE_TYPES - exist, row
        assert found & exist <= wanted & exist, row
        replaced = {
            model for model in EXISTENCE_MODELS if existence_type(model) in (wanted - found)
        }
        assert replaced <= impossible_models(found & CYCLE_TYPES), row
        assert bare(wanted & CYCLE_TYPES) <= bare(found & CYCLE_TYPES), row
        for extra in found & CYCLE_TYPES:
            if not {extra} & wanted and bare([extra]) - bare(wanted & CYCLE_TYPES):
                assert impossible_models([extra]) & replaced, (row, extra)


def test_the_data_set_is_whole() -> None:
    assert (len(ROWS), sum(len(requests) for requests in ROWS.values())) == (240, 1850)
