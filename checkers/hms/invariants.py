"""The checker of the metastores' state and answers, in any order of operations.

| rule        | promise                                                                        |
|-------------|--------------------------------------------------------------------------------|
| names       | at the end of the run no two tables have the same name                         |
| orphans     | at the end of the run no parameters exist without their table                  |
| directories | every existing table has its directory, in every snapshot                      |
| origins     | the final state of each table is the result of a change that was not refused   |
| instances   | at rest each metastore shows the tables that the database has (I11)            |
| wrong-error | a call refuses with an exception that it declares for this case                |
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from checkers.hms.reading import sentence
from checkers.verdict.findings import Findings
from harness.errors import counted
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
"""The exceptions with which each call may refuse."""


class InvariantsChecker(Checker):
    """The database rows, the metastores' views of them, and the exceptions in answers."""

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
                text = "" if there else f"{sentence(pair)}, whose directory is gone."
                findings.hold("directories", there, text, (pair.invoke.index,))
            if pair.type is OpType.FAIL and pair.invoke.f in ERRORS and isinstance(result, str):
                text = f"{sentence(pair)}: {pair.completion and pair.completion.error}."
                ok = result in ERRORS[pair.invoke.f]
                findings.hold("wrong-error", ok, text, (pair.invoke.index,))
        op = next(iter([*history.facts("snapshot")][::-1]), None)
        snapshot = fields_of(op)
        rows = snapshot.get("rows")
        if op is None or not isinstance(rows, dict):
            findings.gap("the database did not answer at last", rule="no-rows")
            return findings.result("")
        _check_rows(findings, history, rows, op.index)
        settled = next(iter([*history.facts("converged")][::-1]), None)
        is_at_rest = bool(fields_of(settled).get("ok"))
        names = sorted(name for name, *_ in rows["tables"])
        for node, tables in (snapshot.get("metastores") or {}).items() if is_at_rest else ():
            if tables is not None:
                text = f"At rest {node} shows {tables}, but the database has {names}."
                findings.hold("instances", sorted(tables) == names, text, (op.index,))
        return findings.result(f"{counted(findings.looked.total(), 'check')} hold")


def _check_rows(findings: Findings, history: History, rows: dict[str, Any], at: int) -> None:
    names = Counter(name for name, *_ in rows["tables"])
    twice = [name for name, count in names.items() if count > 1]
    findings.hold("names", not twice, f"In the end these names are taken twice: {twice}.", (at,))
    orphans = rows["orphans"]
    text = f"In the end there are parameters of tables {orphans}, which are not there."
    findings.hold("orphans", not orphans, text, (at,))
    directories = rows.get("directories")
    if directories is not None:
        lost = sorted({*names} - {*directories})
        text = f"In the end the directories of these tables are gone: {lost}."
        findings.hold("directories", not lost, text, (at,))
    refused = {
        str(fields_of(pair.invoke).get("nonce")): pair.type is OpType.FAIL
        for pair in history.pairs
        if pair.invoke.f in ERRORS
    }
    for name, _, nonce in rows["tables"]:
        text = f"In the end {name} is what {nonce} made it, which was refused or never asked for."
        findings.hold("origins", refused.get(str(nonce)) is False, text, (at,))
