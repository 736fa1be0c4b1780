"""Writes the head of a run's page: the headline, the numbers of the run, and the next steps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.case import load_case, replay_command
from harness.errors import UsageError, clipped
from harness.ops import CheckResult, Op, Verdict
from harness.registry import load_plugin
from harness.store import SHRUNK_SUFFIX, StoredRun, shrunk_name
from harness.verdict.explain import Timeline
from harness.verdict.signature import rule_of
from results.run.page.logs import Log
from results.run.page.summary import Results, about

HEADLINE_CHARS_MAX: Final = 200
PAGE: Final = "report.html"
ISSUE_LINES_MAX: Final = 12
ISSUE_CASE_CHARS_MAX: Final = 6_000
RULES: Final = {
    "stale-read": ("Stale read", "an answer lacks a change that was acknowledged before"),
    "missing": (
        "Missing",
        "a read found nothing, although an acknowledged change had put something there",
    ),
    "wrong-ack": (
        "Wrong acknowledgement",
        "a change was acknowledged although it was impossible at that time",
    ),
    "wrong-exists": ("Wrong refusal", "a change was refused, although the name was free"),
    "wrong-not-found": ("Wrong refusal", "a change was refused, although its object existed"),
    "created-twice": ("Created twice", "a create took effect twice, or an id was used again"),
    "no-order": ("No possible order", "no order of the operations explains all answers"),
    "stale-row": ("Stale row", "a read of rows lacks a write that was acknowledged before"),
    "wrong-row-result": ("Wrong answer", "no order of the operations explains a write's answer"),
    "phantom": ("Phantom value", "a cell holds a value that was never written to it"),
    "answered-twice": ("Two answers", "copies of one request got different answers"),
    "took-twice": ("Written twice", "an overwritten value came back"),
    "unexpected-exit": ("Unexpected exit", "a process ended, although no fault ended it"),
    "live": ("No service", "a healed quorum serves each kind of operation within its bound"),
    "converged": ("Not settled", "with all faults healed, the target settles within its bound"),
}
"""Rules by name: the violation in words, and the meaning of the rule."""
DOCS: Final = {
    "catalog-invariants": "checkers.md#invariants-of-a-run",
    "members": "checkers.md#staleness-and-members",
    "staleness": "checkers.md#staleness-and-members",
    "bounds": "checkers.md#bounds",
    "linearizable-rows": "checkers.md#rows",
    "snapshot-scans": "checkers.md#rows",
    "bank-sums": "checkers.md#rows",
    "rows-exactly-once": "checkers.md#rows",
    "read-your-writes": "checkers.md#rows",
    "elle-rows": "checkers.md#rows",
    "linearizable-hms": "hive.md#what-is-checked",
    "kudu-hms": "hive.md#what-is-checked",
}
DOCS_BY_PREFIX: Final = (
    ("hms-", "hive.md#what-is-checked"),
    ("elle-", "elle.md#anomalies"),
    ("linearizable-", "checkers.md#reading-an-explanation"),
)
_OTHER_LED: Final = re.compile(
    r" answered op \d+ .*while \S+ (?:led|was the last seen to lead) in term"
)
_NO_ORDER: Final = re.compile(
    r", but no order of the operations(?: on this row)? that respects real time allows it([:.]?)"
)
_LABEL: Final = re.compile(r"\[[^\]]*\] (?:[a-z0-9-]+: )?")
_OP: Final = re.compile(r"\b[Oo]p (\d{1,9})\b")
_OP_DETAILS: Final = re.compile(r"\((op \d+), [^()]*\)")
_ID: Final = re.compile(r"\b([0-9a-f]{6})[0-9a-f]{26}\b")


class Head:
    """Makes the texts of a page's head. The page must escape them, since they quote the run."""

    def __init__(self, stored: StoredRun, results: Results, timeline: Timeline) -> None:
        self._stored = stored
        self._results = results
        self._timeline = timeline
        self._verdict = results.verdict if results.checkers else Verdict.UNKNOWN
        self._worst = next(
            (each for each in results.checkers if each.verdict is self._verdict), None
        )
        if self._verdict is Verdict.VALID:
            self._worst = None
        self._op = self._blamed()

    def data(self, replay: str, logs: Sequence[Log]) -> dict[str, Any]:
        """Return the head as plain data for the page."""
        return {
            "headline": self.headline(),
            "tab": self._tab(),
            "numbers": self.numbers(),
            "clean": self._clean(replay),
            "stop": self._stop(),
            "log": self._log(logs),
            "related": self._related(),
            "meanings": self._meanings(),
            "issue": self._issue(),
        }

    def headline(self) -> str:
        """Write the broken rule in words, and the first sentence of the worst finding."""
        worst = self._worst
        if worst is None:
            checked = self._verdict is Verdict.VALID
            return "Every promise checked was kept" if checked else "The run was not checked"
        if self._verdict is Verdict.UNKNOWN:
            text = f"Nothing was proven: {worst.reason}"
        elif self._verdict is Verdict.PERMITTED:
            uses = worst.reason.removeprefix("the profile permits this: ")
            text = f"Deviations that the profile {self._stored.case.profile} permits: {uses}"
        else:
            rule = rule_of(worst)
            words = RULES.get(rule, (rule,))[0]
            if rule not in RULES and "by_invariant" in worst.details:
                words = f"Rule {rule} broken"
            elif rule not in RULES and worst.checker.startswith("linearizable-"):
                words = "Wrong answer"
            text = f"{words}: {self._finding(worst)}"
        text = text.removesuffix(".")
        cut = text[:HEADLINE_CHARS_MAX].rsplit(" ", 1)[0].rstrip(",;:")
        return text if len(text) <= HEADLINE_CHARS_MAX else f"{cut} ..."

    def _finding(self, worst: CheckResult) -> str:
        """Return the first sentence of a finding that says more than the context, shortened."""
        lines = [*worst.explanation, worst.reason]
        first = lines[0]
        if not _OTHER_LED.search(first):
            if first == self._timeline.sentence(worst):
                lines = lines[1:]
            if "by_invariant" in worst.details:  # some lines only count violations: skip them
                lines = [line for line in lines if _LABEL.match(line)] or lines
        text = _LABEL.sub("", lines[0], count=1) if lines[0].startswith("[") else lines[0]
        text = _NO_ORDER.sub(
            lambda found: ":" if found[1] == ":" else ", and no order allows it", text
        )
        return _ID.sub(r"\1…", _OP_DETAILS.sub(r"(\1)", text))

    def _blamed(self) -> Op | None:
        worst = self._worst
        if worst is None or not worst.operations:
            return None
        named = [int(text) for line in worst.explanation[:1] for text in _OP.findall(line)]
        index = next((i for i in named if i in worst.operations), worst.operations[0])
        for pair in self._timeline.history.pairs:
            if index in {pair.invoke.index, pair.completion and pair.completion.index}:
                return pair.completion or pair.invoke
        return next((op for op in self._timeline.history if op.index == index), None)

    def _node(self) -> str | None:
        op = self._op
        if op is None:
            return None
        node = op.value.get("node") if not op.is_client and isinstance(op.value, dict) else op.node
        return node if isinstance(node, str) else None

    def _tab(self) -> str:
        rule = f" {rule_of(self._worst)}" if self._worst is not None else ""
        case = self._stored.case
        parts = [f"{self._verdict.value.upper()}{rule}", self._node(), f"seed {case.seed}"]
        return clipped(" · ".join(part for part in parts if part), HEADLINE_CHARS_MAX)

    def numbers(self) -> str:
        """Write one line: the numbers of operations, faults, failovers and checks; the outages."""
        timeline, faults = self._timeline, self._timeline.faults
        parts = [_many(len(timeline.history.pairs), "operation")]
        bit = sum(fault.bitten is True for fault in faults)
        unmeasured = sum(fault.bitten is None and bool(fault.targets) for fault in faults)
        effect = "all bit" if bit == len(faults) > 1 else f"{bit} bit"
        effect += f", {unmeasured} not measurable" if unmeasured else ""
        parts.append(f"{_many(len(faults), 'fault')}, {effect}" if faults else "no fault")
        reigns = [reign for reign in timeline.reigns if not reign.contested]
        if reigns:
            least = "at least " if reigns[0].asked else ""
            parts.append(f"{least}{_many(len(reigns) - 1, 'failover')}")
        details = [result.details for result in self._results.checkers]
        for each in details:
            certificate = each.get("certificate")
            outage = certificate.get("longest_outage") if isinstance(certificate, dict) else None
            if outage is not None:
                parts.append(f"longest outage {outage}")
        looked = [each["looked"] for each in details if isinstance(each.get("looked"), dict)]
        checks = sum(n for counts in looked for n in counts.values() if isinstance(n, int))
        return " · ".join([*parts, *([_many(checks, "check")] if checks else [])])

    # --- next ------------------------------------------------------------------------------------

    def _clean(self, replay: str) -> dict[str, str] | None:
        """Return a command that runs the case without its bugs; `None` if there is no command."""
        bugs = self._stored.case.bugs
        if not bugs or not replay.startswith("harness run "):
            return None
        command = shlex.join([*shlex.split(replay), "--bug", "none"])
        return {"words": f"Without {', '.join(bugs)}", "command": command}

    def _stop(self) -> dict[str, str] | None:
        """Return a command that replays the run up to the invocation of the blamed operation.

        Returns `None` if the run was not simulated, or if no operation is blamed.
        """
        op, record = self._op, self._stored.record
        if op is None or record is None or record.environment != "sim" or self._stored.foreign:
            return None
        pairs = self._timeline.history.pairs
        index = next((pair.invoke.index for pair in pairs if pair.completion is op), op.index)
        folder = str(self._stored.folder)
        command = shlex.join(["harness", "replay", folder, "--until", f"op={index}"])
        return {"words": "Stop there", "command": command}

    def _log(self, logs: Sequence[Log]) -> dict[str, str] | None:
        """Return a link to the log of the node that answered the blamed operation, if kept."""
        node = self._node()
        log = next((each for each in logs if each.node == node), None)
        if log is None or self._op is None:
            return None
        words = f"Log of {node} at {self._op.time / 1e9:.3f} s"
        return {"words": words, "node": log.node, "path": log.path}

    def _related(self) -> list[tuple[str, str]]:
        folder = self._stored.folder.resolve()
        rows = []
        shrunk = folder.with_name(shrunk_name(folder.name))
        if (shrunk / "case.json").is_file():
            rows.append((f"Shrunk: {_size(shrunk)}", f"../{shrunk.name}/{PAGE}"))
        first = folder.with_name(folder.name.removesuffix(SHRUNK_SUFFIX))
        if first != folder and (first / "case.json").is_file():
            rows.append(("The run that was shrunk to this one", f"../{first.name}/{PAGE}"))
        return rows

    def _meanings(self) -> list[tuple[str, str, str]]:
        """Explain the broken rule and the case's bugs: name, meaning, page of the documentation."""
        rows = []
        worst = self._worst
        if worst is not None:
            name, meaning = rule_of(worst), RULES.get(rule_of(worst), ("", ""))[1]
            if self._verdict is Verdict.PERMITTED:
                meaning = f"deviations that the profile {self._stored.case.profile} permits"
            elif not meaning:
                name = worst.checker
                meaning = getattr(_plugin("checkers", name), "doc", "a checker of this run")
            rows.append((name, meaning, self._place(worst.checker)))
        bugs = getattr(_plugin("targets", self._stored.case.target), "bugs", {})
        rows += [
            (bug, f"switched on in this run: {bugs[bug]}", f"docs/bugs.md#{bug.lower()}")
            for bug in self._stored.case.bugs
            if bug in bugs
        ]
        return rows

    def _place(self, checker: str) -> str:
        if self._verdict is Verdict.PERMITTED:
            return "docs/checkers.md#what-a-profile-permits"
        by_prefix = (page for prefix, page in DOCS_BY_PREFIX if checker.startswith(prefix))
        return f"docs/{DOCS.get(checker) or next(by_prefix, 'checkers.md')}"

    def _issue(self) -> str:
        """Write the finding as Markdown for an issue, with texts of the run in code blocks."""
        if self._worst is None:
            return ""
        folder, worst = self._stored.folder.resolve(), self._worst
        lines = [line.rstrip() for line in worst.explanation[:ISSUE_LINES_MAX]] or [worst.reason]
        more = len(worst.explanation) - len(lines)
        lines += [f"... and {more} more, in results.json"] if more > 0 else []
        record, case = self._stored.record, self._stored.case.encode().decode().rstrip()
        replay = replay_command("case.json", None if record is None else record.environment)
        facts = [
            f"* Case: {about(self._stored)}",
            f"* Run: `{folder.parent.name}/{folder.name}`",
            f"* Evidence: {self.numbers()}",
        ]
        parts = [
            f"**{self._verdict.value.upper()}** `{rule_of(worst)}` ({worst.checker})",
            _fenced([self.headline(), "", *lines]),
            "\n".join(facts),
            f"Replay, with the case below as `case.json`:\n\n{_fenced([replay], 'sh')}",
        ]
        if len(case) <= ISSUE_CASE_CHARS_MAX:
            summary = "<details><summary>case.json</summary>"
            parts.append(f"{summary}\n\n{_fenced([case], 'json')}\n\n</details>")
        return "\n\n".join(parts)


def _size(folder: Path) -> str:
    try:
        case = load_case(folder / "case.json")
    except UsageError:
        return "the smallest failing case found"
    faults = _many(len(case.faults or ()), "fault")
    return faults if case.ops is None else f"{faults}, {_many(len(case.ops), 'operation')}"


def _plugin(group: str, name: str) -> Any:
    try:
        return load_plugin(group, name)
    except UsageError:
        return None


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _fenced(lines: Sequence[str], kind: str = "text") -> str:
    text = "\n".join(lines).replace("```", "'''")
    return f"```{kind}\n{text}\n```"
