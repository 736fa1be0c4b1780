"""Checks rules about metastores that do not depend on the order of operations.

| rule        | promise                                                                        |
|-------------|--------------------------------------------------------------------------------|
| names       | at the end of the run no two tables have the same name                         |
| orphans     | at the end of the run no parameters exist without their table                  |
| directories | every existing table has its directory, in every snapshot                      |
| origins     | the final state of each table is the result of a change that was not refused   |
| instances   | at rest each metastore shows the tables that the database has (I11)            |
| wrong-error | a metastore refuses a call only with an exception that is right for this call  |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from checkers.hms.reading import sentence
from checkers.verdict.findings import Findings
from harness.errors import counted, listed
from harness.ops import CheckResult, History, OpType
from harness.permits import permits_of
from harness.plugins import Checker
from harness.vocabularies import fields_of

ERRORS: Final[dict[str, tuple[str, ...]]] = {
    "create": ("already-exists", "invalid-object"),
    "alter": ("invalid-operation", "no-such-object"),
    "rename": ("invalid-operation", "no-such-object"),
    "drop": ("no-such-object",),
}
"""For each call, the exceptions with which a metastore may refuse it."""
NAMES_MAX: Final = 10


class InvariantsChecker(Checker):
    """The checker of the database rows, of the tables that metastores show, and of exceptions."""

    api_version = 1
    name = "hms-invariants"
    doc = "rows of a metastore's database are whole, all metastores show them, errors are right"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        findings = Findings(self.name, permits_of(history))
        for pair in history.pairs:
            result = fields_of(pair.completion).get("result")
            if pair.type is OpType.OK and pair.invoke.f == "get":
                there = "directory" not in fields_of(pair.completion)
                text = "" if there else f"{sentence(pair)}, whose directory does not exist."
                findings.hold("directories", there, text, (pair.invoke.index,))
            if pair.type is OpType.FAIL and pair.invoke.f in ERRORS and isinstance(result, str):
                text = f"{sentence(pair)}: {pair.completion and pair.completion.error}."
                ok = result in ERRORS[pair.invoke.f]
                findings.hold("wrong-error", ok, text, (pair.invoke.index,))
        op = next(iter([*history.facts("snapshot")][::-1]), None)
        snapshot = fields_of(op)
        rows = snapshot.get("rows")
        if op is None or not isinstance(rows, dict):
            findings.gap("the database did not answer at the end of the run", rule="no-rows")
            return findings.result("")
        _check_rows(findings, history, rows, op.index)
        settled = next(iter([*history.facts("converged")][::-1]), None)
        is_at_rest = bool(fields_of(settled).get("ok"))
        names = sorted(name for name, *_ in rows["tables"])
        for node, tables in (snapshot.get("metastores") or {}).items() if is_at_rest else ():
            if tables is not None:
                text = _difference(node, tables, names)
                findings.hold("instances", sorted(tables) == names, text, (op.index,))
        return findings.result(f"{counted(findings.looked.total(), 'check')} hold")


def _names(names: Iterable[object]) -> str:
    return listed(sorted(map(str, names)), limit=NAMES_MAX)


def _difference(node: str, tables: Sequence[str], names: Sequence[str]) -> str:
    lacks, more = Counter(names) - Counter(tables), Counter(tables) - Counter(names)
    parts = [f"does not show {_names(lacks.elements())}"] if lacks else []
    parts += [f"shows also {_names(more.elements())}"] if more else []
    return f"At rest, compared with the database, {node} {' and '.join(parts)}."


def _check_rows(findings: Findings, history: History, rows: dict[str, Any], at: int) -> None:
    names = Counter(name for name, *_ in rows["tables"])
    twice = [name for name, count in names.items() if count > 1]
    text = f"At the end of the run, these names belong to two tables each: {_names(twice)}."
    findings.hold("names", not twice, text, (at,))
    orphans = rows["orphans"]
    text = (
        f"At the end of the run, parameters exist for tables that do not exist: {_names(orphans)}."
    )
    findings.hold("orphans", not orphans, text, (at,))
    directories = rows.get("directories")
    if directories is not None:
        lost = sorted({*names} - {*directories})
        text = f"At the end of the run, these tables have no directory: {_names(lost)}."
        findings.hold("directories", not lost, text, (at,))
    changes = {
        str(fields_of(pair.invoke).get("nonce")): pair
        for pair in history.pairs
        if pair.invoke.f in ERRORS
    }
    for name, _, nonce in rows["tables"]:
        change = changes.get(str(nonce))
        by = "no operation" if change is None else f"op {change.invoke.index}, which was refused,"
        text = f"In the end table {name} is as {by} left it."
        ok = change is not None and change.type is not OpType.FAIL
        findings.hold("origins", ok, text, (at,))
