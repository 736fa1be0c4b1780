"""Checks that the balances of a group of rows have the same sum at every moment.

A *group* consists of rows of one tablet that the history always writes together, with cells in the
column `balance` whose sum is the same each time. Such a write takes effect as a whole or not at
all. So a scan of the tablet at one instant shows all rows of the group or none, and their balances
have the sum of the group.

Rows that any operation wrote in another way are not a group. A read shows a single row and is not
judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkers.rows.permits import RowFindings
from checkers.rows.reading import Look, Part, RowsHistory, rows_history
from checkers.rows.words import looked
from harness.errors import listed
from harness.exact import whole_number
from harness.ops import CheckResult, History, Verdict
from harness.plugins import Checker

BALANCE: Final = "balance"
"""The name of the balance column. Its cells are whole numbers, possibly as text."""
_KEYS_MAX: Final = 8


def _amount(value: object) -> int | None:
    if type(value) is int:
        return value
    if not isinstance(value, str):
        return None
    amount = whole_number(value.removeprefix("-"))
    return -amount if amount is not None and value.startswith("-") else amount


def _total(part: Part) -> int | None:
    amounts = [
        _amount(dict(row.step.cells).get(BALANCE)) if row.step.kind == "upsert" else None
        for row in part.rows
    ]
    keys = {row.key for row in part.rows}
    if len(keys) != len(amounts) or len(amounts) < 2:
        return None
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def groups_of(read: RowsHistory) -> Mapping[tuple[str, frozenset[str]], int]:
    """Map each group of rows, given as (table, keys), to the sum of its balances."""
    of_row: dict[tuple[str, str], frozenset[str]] = {}
    totals: dict[tuple[str, frozenset[str]], int] = {}
    broken: set[tuple[str, frozenset[str]]] = set()
    for part in read.parts:
        keys = frozenset(row.key for row in part.rows)
        group, total = (part.table, keys), _total(part)
        sets = {of_row.setdefault((part.table, key), keys) for key in sorted(keys)}
        if sets != {keys} or total is None or totals.setdefault(group, total) != total:
            broken.update((part.table, other) for other in sets)
            broken.add(group)
    for table, keys in totals:
        tablets = {read.tablets.get((table, key)) for key in keys}
        if len(tablets) > 1 or None in tablets:
            broken.add((table, keys))
    return {group: total for group, total in totals.items() if group not in broken}


def _check(
    read: RowsHistory, look: Look, keys: frozenset[str], total: int, findings: RowFindings
) -> None:
    if not all(look.covers(key) for key in keys):
        return
    if look.tablet != read.tablets[look.table, min(keys)]:
        return
    findings.look("sum")
    seen = {key: look.rows[key] for key in sorted(keys) if key in look.rows}
    if not seen:
        return
    amounts = {key: _amount(dict(row or ()).get(BALANCE)) for key, row in seen.items()}
    sum_seen = sum(amount or 0 for amount in amounts.values())
    if len(seen) == len(keys) and sum_seen == total and None not in amounts.values():
        return
    words = listed([f"{key} = {amount}" for key, amount in amounts.items()], limit=_KEYS_MAX)
    missing = listed(sorted(keys - seen.keys()), limit=_KEYS_MAX) if len(seen) < len(keys) else ""
    findings.violate(
        "sum",
        f"{looked(read, look)} and found the balances {words}"
        f"{f', without {missing},' if missing else ''} which add up to {sum_seen}. All writes of "
        f"these rows wrote all {len(keys)} of them at once, with balances that add up to {total}.",
        look.pair.invoke.index,
    )


class BankSums(Checker):
    """Checks that scans show all rows of a group or none, with balances of the group's sum."""

    api_version = 1
    name = "bank-sums"
    doc = "every scan shows balances with the sum that every write keeps constant"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del time_limit_s
        options = getattr(case, "workload_options", None)
        if isinstance(options, Mapping) and options.get("groups") == 0:
            return CheckResult(
                self.name, Verdict.VALID, "the workload writes no groups of balances"
            )
        read = rows_history(history)
        groups = groups_of(read)
        findings = RowFindings(self.name, history)
        by_table: dict[str, list[tuple[frozenset[str], int]]] = {}
        for (table, keys), total in groups.items():
            by_table.setdefault(table, []).append((keys, total))
        for look in read.looks:
            if look.pair.invoke.f == "scan":
                for keys, total in by_table.get(look.table, ()):
                    _check(read, look, keys, total, findings)
        return findings.conclude()
