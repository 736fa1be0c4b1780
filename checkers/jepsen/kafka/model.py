"""The history model kafka, which applies the rules to the logs of a history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from checkers.foreign.model import refuse_initial, refuse_settings
from checkers.jepsen.kafka import rules
from checkers.jepsen.kafka.cycles import judge_cycles
from checkers.jepsen.kafka.logs import Logs
from checkers.jepsen.kafka.reading import NAME, LogOp, read
from checkers.jepsen.model import DirectCheck, nothing_seen, written_often
from checkers.verdict.findings import Findings
from harness.errors import UsageError, counted
from harness.ops import History, ModelSettings, Op
from harness.plugins import HistoryModel, PreparedCheck


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
        parsed = read(ops if isinstance(ops, History) else History(ops))
        return DirectCheck(
            self.name,
            len(parsed),
            partial(_judge, parsed),
            lambda: {op.begin: _label(op) for op in parsed},
        )


def _judge(ops: Sequence[LogOp], findings: Findings, details: dict[str, Any]) -> str:
    logs = Logs(ops)
    every = (name for name, senders in logs.senders.items() for _ in senders)
    written_often(every, "message", findings)
    shared = rules.subscribed(ops)
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
    sent = sum(op.did and bool(op.sends) for op in ops)
    details |= {"logs": len(logs.by_key), "sends": sent, "polled": polled}
    return f"{counted(polled, 'message')} of {counted(len(logs.by_key), 'log')} were polled"


def _label(op: LogOp) -> str:
    parts = [
        *(f"{key}<-{[m for _, m in places]}" for key, places in op.sends.items()),
        *(f"{key}->{[m for _, m in places]}" for key, places in op.polls.items()),
    ]
    return f"{op} {' '.join(parts) or sorted(op.keys)}"
