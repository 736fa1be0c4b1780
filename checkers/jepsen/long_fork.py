"""The history model long-fork: two reads never see two writes in opposite orders.

This follows `jepsen/tests/long_fork.clj`. In a long fork, one read sees the write of x but not that
of y, and another read sees the write of y but not that of x. Parallel snapshot isolation allows a
long fork; snapshot isolation does not.

The operations are transactions (`txn`, `write` or `read`) with either one write `[[w k v]]` or
several reads `[[r k nil] ...]`. Each key is nil at first and is written by at most one transaction.

* fork: two acknowledged reads saw two writes in opposite orders.
* unexpected: a read shows a value that was never written, whose write failed, or whose write began
  only after the read.

A key that several transactions write is not judged, and a result without violations is then
`unknown`. A history is also `unknown` if no read saw one write and missed another.

Unlike in Jepsen, reads may have any keys, and two reads are compared by their common keys. The rule
`unexpected` is an addition. As in Jepsen, only pairs of reads are compared. For reads of the same
keys, every longer cycle contains a fork.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from checkers.jepsen.model import StepsModel, nothing_seen, written_often
from checkers.jepsen.steps import Step
from checkers.verdict.findings import Findings
from harness.errors import CheckerLimitError, counted
from harness.exact import exact, is_scalar
from harness.ops import OpType
from harness.vocabularies import Vocabulary
from harness.vocabularies.transactions import Txn

PAIRS_MAX: Final = 20_000_000
"""The maximum number of (seen key, missed key) pairs in all reads."""
_VALUES: Final = "transactions of one write [[w k v]], or of reads [[r k v] ...] only"
_READS: Final = frozenset({"r", ":r", "read"})
_WRITES: Final = frozenset({"w", ":w", "write"})


class _Write(NamedTuple):
    key: Hashable
    value: Hashable


class LongFork(StepsModel, version="1"):
    """The history model of single writes and of reads of several keys."""

    name = "long-fork"
    doc = "single writes and reads of several keys: no two reads see two writes in opposite orders"
    vocabulary = Vocabulary[Txn]("rw-register", (Txn,))
    functions: ClassVar[Mapping[str, str]] = {
        "txn": "with [[w k v]] or [[r k nil] ...]",
        "write": "with [[w k v]]",
        "read": "with [[r k nil] ...]",
    }
    answered = frozenset()
    keyed = False

    def parse(self, step: Step) -> Step:
        """Return the step. Its `asked` is a `_Write`, or maps keys to the values that were read."""
        mops = step.asked
        if not isinstance(mops, (list, tuple)) or not mops:
            raise ValueError(_VALUES)
        if not all(_is_mop(mop) for mop in mops):
            raise ValueError(_VALUES)
        kinds = {mop[0] in _READS for mop in mops}
        if kinds == {True}:
            seen = {exact(key): exact(value) for _, key, value in mops}
            if len(seen) < len(mops):
                raise ValueError(f"{_VALUES}, with each key once")
            return step._replace(asked=seen)
        if kinds != {False} or len(mops) > 1:
            raise ValueError(_VALUES)
        return step._replace(asked=_Write(exact(mops[0][1]), exact(mops[0][2])))

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        writes = [step for step in steps if isinstance(step.asked, _Write)]
        reads = [step for step in steps if isinstance(step.asked, dict) and step.did]
        keys = (step.asked.key for step in writes if step.may_have)
        repeated = written_often(keys, "key", findings)
        _judge_values(writes, reads, repeated, findings)
        telling = _judge_forks(reads, repeated, findings)
        early = sum(not any(v is not None for v in read.asked.values()) for read in reads)
        late = sum(None not in read.asked.values() for read in reads)
        details |= {"reads": len(reads), "early_reads": early, "late_reads": late}
        if not telling:
            nothing_seen(findings, "no read saw one write and missed another")
        return f"{counted(telling, 'read')} saw some writes and missed others, all in one order"


def _is_mop(mop: object) -> bool:
    return (
        isinstance(mop, (list, tuple))
        and len(mop) == 3
        and isinstance(mop[0], str)
        and is_scalar(mop[1])
        and (mop[0] in _READS or (mop[0] in _WRITES and mop[2] is not None))
    )


def _judge_values(
    writes: Sequence[Step], reads: Sequence[Step], repeated: set[Hashable], findings: Findings
) -> None:
    by_write: dict[_Write, Step] = {}
    for step in writes:
        before = by_write.get(step.asked)
        if before is None or (not before.may_have and step.may_have):
            by_write[step.asked] = step
    for read in reads:
        for key, value in read.asked.items():
            if value is None or key in repeated:
                continue
            findings.look("unexpected")
            write = by_write.get(_Write(key, value))
            text = f"{_brief(read)} shows {key!r} = {value!r}"
            if write is None:
                findings.violate("unexpected", f"{text}, which was never written", read.begin)
            elif write.type is OpType.FAIL or write.begin > read.end:
                why = "failed" if write.type is OpType.FAIL else "began only after the read ended"
                text += f", but {_brief(write)} {why}"
                findings.violate("unexpected", text, read.begin, write.begin)


def _judge_forks(reads: Sequence[Step], repeated: set[Hashable], findings: Findings) -> int:
    """Judge the order in which reads saw writes; return how many reads saw only some of them."""
    ordered: dict[tuple[Hashable, Hashable], Step] = {}
    reported: set[frozenset[Hashable]] = set()
    telling = pairs = 0
    for read in reads:
        seen = [k for k, v in read.asked.items() if v is not None and k not in repeated]
        missed = [k for k, v in read.asked.items() if v is None and k not in repeated]
        pairs += len(seen) * len(missed)
        if pairs > PAIRS_MAX:
            raise CheckerLimitError(
                f"more than {PAIRS_MAX} pairs of a seen and a missed key in {len(reads)} reads"
            )
        if not seen or not missed:
            continue
        telling += 1
        findings.look("fork")
        for x in seen:
            for y in missed:
                other = ordered.get((y, x))
                ordered.setdefault((x, y), read)
                if other is not None and frozenset((x, y)) not in reported:
                    reported.add(frozenset((x, y)))
                    text = (
                        f"{_brief(other)} saw the write of {y!r} but not of {x!r}, and "
                        f"{_brief(read)} saw the write of {x!r} but not of {y!r}"
                    )
                    findings.violate("fork", text, other.begin, read.begin)
    return telling


def _brief(step: Step) -> str:
    if isinstance(step.asked, _Write):
        what = f"the write of {step.asked.key!r} = {step.asked.value!r}"
    else:
        what = f"the read of {counted(len(step.asked), 'key')}"
    return f"{what} {step.by}"
