"""The history model kafka, and its check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checkers.foreign.model import LABEL_CHARS_MAX, refuse_initial, refuse_settings
from checkers.jepsen.kafka import rules
from checkers.jepsen.kafka.cycles import judge_cycles
from checkers.jepsen.kafka.logs import Logs
from checkers.jepsen.kafka.reading import NAME, LogOp, read
from checkers.jepsen.model import nothing_seen, written_often
from checkers.verdict.findings import Findings
from harness.errors import UsageError, clipped, counted
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Op, Verdict
from harness.plugins import HistoryModel, PreparedCheck


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The check of the operations on all logs."""

    ops: Sequence[LogOp]

    @property
    def operations(self) -> int:
        return len(self.ops)

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge the operations. The time limit has no meaning, since there is no search."""
        del time_limit_s
        findings = Findings(NAME)
        logs = Logs(self.ops)
        every = [
            (key, message)
            for op in self.ops
            for key, places in op.sends.items()
            for _, message in places
        ]
        written_often(every, "message", findings)
        shared = rules.subscribed(self.ops)
        rules.judge_offsets(logs, findings)
        rules.judge_polled(logs, findings)
        judge_cycles(logs, findings)
        below = rules.judge_losses(logs, findings, shared)
        rules.judge_within(logs, findings, shared)
        rules.judge_processes(logs, findings, shared)
        rules.judge_unseen(logs, findings, shared, below)
        polled = len(logs.readers)
        if not polled:
            nothing_seen(findings, "no message was polled: no answered poll has one")
        sent = sum(op.did and bool(op.sends) for op in self.ops)
        details = {"logs": len(logs.by_key), "sends": sent, "polled": polled}
        valid = f"{counted(polled, 'message')} of {counted(len(logs.by_key), 'log')} were polled"
        result = findings.result(valid, details)
        if not draw or result.verdict is not Verdict.INVALID:
            return result, None
        labels = {op.begin: clipped(_label(op), LABEL_CHARS_MAX) for op in self.ops}
        return result, Counterexample(None, result.operations, (), labels)


class Kafka(HistoryModel, version="1"):
    """The history model of append-only logs with offsets."""

    api_version = 1
    name = NAME
    doc = "logs with send, poll and transactions: no message is lost, doubled or out of order"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_settings(self.name, settings)
        refuse_initial(self.name, settings, "empty")
        if settings.independent:
            raise UsageError(f"--independent means nothing to the model {self.name}: it has keys")
        return LogCheck(read(ops if isinstance(ops, History) else History(ops)))


def _label(op: LogOp) -> str:
    parts = [
        *(f"{key}<-{[m for _, m in places]}" for key, places in op.sends.items()),
        *(f"{key}->{[m for _, m in places]}" for key, places in op.polls.items()),
    ]
    return f"{op} {' '.join(parts) or sorted(op.keys)}"
