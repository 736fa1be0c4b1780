"""The recorded and generated histories with known verdicts, as operations (see their README).

Reading them is what `harness check` does, so the readers are its own.
"""

import csv
import os
from pathlib import Path
from typing import Any, NamedTuple

from checkers.foreign.model import LinearizabilityCheck
from checkers.linearizability import Operation
from harness.formats import open_history
from harness.ops import ModelSettings
from harness.registry import load_plugin

CONFORMANCE = Path(
    os.environ.get("HARNESS_CONFORMANCE")
    or Path(__file__).resolve().parents[4] / "shared" / "conformance"
)
READERS = frozenset(
    {"etcd-cas-register", "kv-string", "cas-register", "multi-register", "register", "catalog"}
)


class Row(NamedTuple):
    file: str
    model: str
    expected: str


def rows() -> list[Row]:
    """The rows of expected.csv; none where the data set is not there."""
    table = CONFORMANCE / "expected.csv"
    if not table.is_file():
        return []
    with table.open(newline="") as lines:
        return [Row(r["file"], r["model"], r["expected"]) for r in csv.DictReader(lines)]


def by_folder(chosen: list[Row]) -> dict[str, list[Row]]:
    """Rows by the folder of their file: for most, a test of its own would cost more than itself."""
    folders: dict[str, list[Row]] = {}
    for row in chosen:
        folders.setdefault(row.file.rpartition("/")[0], []).append(row)
    return folders


def load(row: Row) -> tuple[Any, list[Operation[Any, Any]]]:
    """The model and the operations of one history."""
    source = open_history(CONFORMANCE / row.file)
    check = load_plugin("checkers", row.model).prepare(source, ModelSettings())
    check = getattr(check, "first", check)  # where several initial values are tried
    assert isinstance(check, LinearizabilityCheck)
    return check.model, list(check.parsed)
