"""The history model causal-reverse: a write is visible only together with all earlier writes.

This follows `jepsen/tests/causal_reverse.clj`. Suppose that the write of x was acknowledged before
the write of y began. Then strict serializability forbids a read that shows y and not x.

The operations are `write` (or `add`, or `insert`) with a value, and `read`, whose answer lists all
values. Each value is written by at most one operation.

* missing: a read shows a value, but lacks another value whose write was acknowledged before the
  write of the first value began.
* unexpected: a read shows a value that was never written, whose write failed, or whose write began
  only after the read.

A write of unknown outcome need not be visible. A value that several operations write is not judged,
and a result without violations is then `unknown`. A history is also `unknown` if no read shows a
value that was written after the acknowledgement of another value.

The rule `unexpected` is an addition to Jepsen. As in Jepsen, a read that is merely stale is not a
violation.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from checkers.jepsen.model import nothing_seen, written_often
from checkers.jepsen.sets import SetModel, brief, elements_of, first_shown, judge_shown
from checkers.jepsen.steps import Step
from checkers.verdict.findings import Findings
from harness.errors import counted


class CausalReverse(SetModel, version="1"):
    """The history model of values that are written once, and of reads of all values."""

    name = "causal-reverse"
    doc = "values that are written once: no read shows a later one without all earlier ones"
    functions: ClassVar[Mapping[str, str]] = {
        "write": "with a value",
        "add": "",
        "insert": "",
        "read": "",
    }

    requests = "write with a value, and read"
    answers = "reads that are answered with a collection of values"

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        reads = [step for step in steps if step.f == "read" and step.did]
        writes = [step for step in steps if step.f == "add" and step.may_have]
        repeated = written_often((step.asked for step in writes), "value", findings)
        judge_shown(first_shown(reads), elements_of(steps), findings)
        by_value = {step.asked: step for step in writes if step.asked not in repeated}
        telling = _judge_orders(reads, by_value, findings)
        details |= {"reads": len(reads), "writes": len(writes), "reads_with_order": telling}
        if not reads:
            nothing_seen(findings, "the values were never read: no read was answered")
        elif not telling:
            nothing_seen(findings, "no read shows a value that followed an acknowledged one")
        return f"{counted(telling, 'read')} with values in an order, none without an earlier one"


def _judge_orders(
    reads: Sequence[Step], by_value: Mapping[Hashable, Step], findings: Findings
) -> int:
    done = sorted((step for step in by_value.values() if step.did), key=lambda step: step.end)
    ends = [step.end for step in done]
    telling = 0
    for read in reads:
        visible = [by_value[value] for value in read.answer if value in by_value]
        if not visible:
            continue
        # It is enough to judge the visible write that was invoked last, since the most other writes
        # precede it.
        last = max(visible, key=lambda step: step.begin)
        earlier = done[: bisect.bisect_left(ends, last.begin)]
        if not earlier:
            continue
        telling += 1
        findings.look("missing")
        for step in earlier:
            if step.asked not in read.answer:
                text = (
                    f"{brief(read)} shows {last.asked!r}, but not {step.asked!r}: {step} was "
                    f"acknowledged before {last} began"
                )
                findings.violate("missing", text, step.begin, last.begin, read.begin)
                break
    return telling
