"""Loads recorded and generated histories with known verdicts.

The readers of `harness check` parse the files. The README of the data describes them.
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
    table = CONFORMANCE / "expected.csv"
    if not table.is_file():
        return []
    with table.open(newline="") as lines:
        return [Row(r["file"], r["model"], r["expected"]) for r in csv.DictReader(lines)]


def by_folder(chosen: list[Row]) -> dict[str, list[Row]]:
    """Group rows by their file's folder: a test per row would cost more than its check."""
    folders: dict[str, list[Row]] = {}
    for row in chosen:
        folders.setdefault(row.file.rpartition("/")[0], []).append(row)
    return folders


def load(row: Row) -> tuple[Any, list[Operation[Any, Any]]]:
    source = open_history(CONFORMANCE / row.file)
    check = load_plugin("checkers", row.model).prepare(source, ModelSettings())
    # models that try several initial values make several checks, of which the first is used
    check = getattr(check, "first", check)
    assert isinstance(check, LinearizabilityCheck)
    return check.model, list(check.parsed)
