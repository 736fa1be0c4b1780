"""Short notations for histories of transactions."""

from typing import Any

from checkers.elle import Transaction
from checkers.elle.infer.columns import NEVER, Columns
from harness.ops import OpType

NAMES = {"a": "append", "w": "w", "r": "r"}


def mops(text: str) -> list[tuple[str, str, Any]]:
    """Parse a string like "a x 1, r y [1 2], r z nil" into append and read operations."""
    found: list[tuple[str, str, Any]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        f, key, value = part.split(None, 2)
        if value.startswith("["):
            found.append((NAMES[f], key, [int(item) for item in value[1:-1].split()]))
        else:
            found.append((NAMES[f], key, None if value == "nil" else int(value)))
    return found


def concurrent(*texts: str) -> list[Transaction]:
    """Build transactions that all overlap; "fail:" and "info:" mark those that are not ok."""
    made = []
    for number, text in enumerate(texts):
        kind, _, rest = text.rpartition(":")
        end = 100 + number
        made.append(
            Transaction(mops(rest), call=number, end=end, type=OpType(kind or "ok"), process=number)
        )
    return made


def sequence(*texts: str, processes: str = "") -> list[Transaction]:
    """Build consecutive transactions; `processes` has one digit per transaction."""
    made = []
    for number, text in enumerate(texts):
        kind, _, rest = text.rpartition(":")
        process = int(processes[number]) if processes else number
        made.append(
            Transaction(
                mops(rest),
                call=2 * number,
                end=2 * number + 1,
                type=OpType(kind or "ok"),
                process=process,
            )
        )
    return made


def placed(*txns: tuple[str, int, int]) -> list[Transaction]:
    """Build transactions from (text, call, end), each in a process of its own."""
    return [
        Transaction(mops(text), call=call, end=end, process=number)
        for number, (text, call, end) in enumerate(txns)
    ]


def precedence(columns: Columns) -> set[tuple[int, int]]:
    """Return the pairs of transactions that real time orders."""
    count = len(columns)
    return {
        (a, b)
        for a in range(count)
        for b in range(count)
        if columns.end[a] != NEVER and columns.end[a] < columns.start[b]
    }
