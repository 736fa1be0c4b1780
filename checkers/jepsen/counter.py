"""The history models counter and counter-final: a number that is 0 at first, with `add` and `read`.

**counter** follows `counter` in `jepsen/checker.clj`. For a read, an add is *certain* if it was
acknowledged before the read began. It is *possible* if it was invoked before the read ended, did
not fail, and is not certain.

* below, above: the number that was read is below or above all sums of the certain adds and some of
  the possible adds.
* unreachable: the number is within these bounds, but no subset of the possible adds leads to it.

Differences from Jepsen: amounts may be negative, and the rule `unreachable` is an addition. This
rule is skipped for a read if it would take more than `CELLS_MAX` steps. As in Jepsen, each read is
judged separately, so contradictions between reads are not found.

**counter-final** follows the workloads pn-counter and g-counter of Maelstrom: a counter whose nodes
agree eventually. The same rules apply, but only to the final reads. Maelstrom marks them with
`:final? true`, which logs do not show. Without marks, the final reads are the last operations of
all processes, if each of these reads began after all acknowledged adds had ended. A process whose
last operation is of unknown outcome was replaced by another, so it needs no read.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from checkers.jepsen.model import DirectCheck, StepsModel, nothing_seen
from checkers.jepsen.steps import NEVER, Step
from checkers.verdict.findings import Findings
from harness.errors import HistoryError, counted
from harness.vocabularies import counter
from harness.vocabularies.counter import is_final

CELLS_MAX: Final = 20_000_000
"""The maximum of (possible adds) * (sum of their amounts) per read, in the rule `unreachable`."""
NAMED_MAX: Final = 20


class CounterModel(StepsModel, judges_prefixes=True, version="1", milder="counter-final"):
    """The history model of a counter."""

    name = "counter"
    doc = "a counter with add and read, 0 at first; fail: did not happen"
    vocabulary = counter.CALLS
    functions: ClassVar[Mapping[str, str]] = {"add": "with a whole number", "read": ""}
    begins = "0"

    def parse(self, step: Step) -> Step:
        if step.f == "add" and type(step.asked) is not int:
            raise ValueError("add with a whole number, and read")
        if is_final(step.answer):
            step = step._replace(answer=step.answer["value"])
        if step.f == "read" and step.did and type(step.answer) is not int:
            raise ValueError("reads that are answered with a whole number")
        return step

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        adds = [step for step in steps if step.f == "add" and step.may_have and step.asked]
        reads = [step for step in steps if step.f == "read" and step.did]
        ledger = _Ledger(adds)
        only_bounds = 0
        for read in sorted(reads, key=lambda read: read.begin):
            findings.look("read")
            only_bounds += not ledger.judge(read, findings)
        details |= {"reads": len(reads), "adds": len(adds), "only_bounds": only_bounds}
        if not reads:
            nothing_seen(findings, "the counter was never read: no read was answered")
        return f"{counted(len(reads), 'read')} between the sums of certain and possible adds"


class CounterFinalModel(CounterModel, judges_prefixes=False, version="1", milder=None):
    """The history model of a counter of which only the final reads are judged."""

    name = "counter-final"
    doc = "a counter whose final reads (:final?) show all adds; earlier reads may be stale"

    def parse(self, step: Step) -> Step:
        plain = super().parse(step)
        return plain._replace(answer=_Final(plain.answer)) if is_final(step.answer) else plain

    def check_of(self, steps: Sequence[Step]) -> DirectCheck:
        marked = [step for step in steps if isinstance(step.answer, _Final)]
        final = marked or _last_reads(steps)
        if not final and any(step.f == "read" and step.did for step in steps):
            raise HistoryError(
                f"the model {self.name} judges reads with :final? true; no read has it, and not "
                "every process ends with a read that began after all acknowledged adds"
            )
        chosen = {step.begin for step in final}
        judged = [step for step in steps if step.f == "add" or step.begin in chosen]
        return super().check_of(judged)

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        return f"{super().judge(steps, findings, details)}; earlier reads were not judged"


class _Final(int):
    """The answer of a final read."""


def _last_reads(steps: Sequence[Step]) -> list[Step]:
    """Return the last operations of all processes, or nothing if these are not the final reads."""
    acknowledged = max((step.end for step in steps if step.f == "add" and step.did), default=-1.0)
    last = {step.process: step for step in sorted(steps, key=lambda step: step.begin)}
    late = [s for s in last.values() if s.f == "read" and s.begin > acknowledged]
    others = [s for s in last.values() if s.end != NEVER and s not in late]
    return [] if others else late


class _Ledger:
    """All adds that may have taken effect, by acknowledgement and by invocation.

    Reads are judged in the order of their invocations, so that no read has to look at adds that
    ended long before. This avoids quadratic time.
    """

    def __init__(self, adds: Sequence[Step]) -> None:
        self._done = sorted((add for add in adds if add.did), key=lambda add: add.end)
        self._ends = [add.end for add in self._done]
        self._sums = [0, *itertools.accumulate(add.asked for add in self._done)]
        self._begun = [add.begin for add in adds]
        self._adds = adds
        self._next = 0
        self._open: list[tuple[float, int]] = []

    def _possible(self, read: Step) -> list[Step]:
        while self._next < len(self._adds) and self._begun[self._next] < read.begin:
            heapq.heappush(self._open, (self._adds[self._next].end, self._next))
            self._next += 1
        while self._open and self._open[0][0] < read.begin:
            heapq.heappop(self._open)
        later = bisect.bisect_left(self._begun, read.end)
        places = sorted(place for _, place in self._open)
        return [self._adds[place] for place in (*places, *range(self._next, later))]

    def judge(self, read: Step, findings: Findings) -> bool:
        count = bisect.bisect_left(self._ends, read.begin)
        base = self._sums[count]
        possible = self._possible(read)
        least = base + sum(add.asked for add in possible if add.asked < 0)
        most = base + sum(add.asked for add in possible if add.asked > 0)
        if read.answer < least:
            proof = _enough(self._done[:count], least - read.answer, sign=1)
            self._violate("below", read, f"at least {least}", proof, findings)
        elif read.answer > most:
            proof = _enough(self._done[:count], read.answer - most, sign=-1)
            self._violate("above", read, f"at most {most}", proof, findings)
        elif len(possible) * (most - least) > CELLS_MAX:
            return False
        elif not _reaches(read.answer - base, possible):
            text = f"{base} plus any of the adds that may have come before"
            self._violate("unreachable", read, text, possible, findings)
        return True

    def _violate(
        self, rule: str, read: Step, wanted: str, proof: Sequence[Step], findings: Findings
    ) -> None:
        more = f" and {len(proof) - NAMED_MAX} more" if len(proof) > NAMED_MAX else ""
        adds = f": {', '.join(map(str, proof[:NAMED_MAX]))}{more}" if proof else ""
        findings.violate(
            rule,
            f"{read} is wrong, since the counter was {wanted}{adds}",
            read.begin,
            *(add.begin for add in proof[:NAMED_MAX]),
        )


def _enough(certain: Sequence[Step], excess: int, *, sign: int) -> list[Step]:
    """Return certain adds whose loss would explain that the read is off by `excess`.

    `sign` is 1 for positive adds, and -1 for negative ones.
    """
    chosen: list[Step] = []
    for add in sorted(certain, key=lambda add: -sign * add.asked):
        if excess <= 0 or add.asked * sign <= 0:
            break
        chosen.append(add)
        excess -= add.asked * sign
    return chosen


def _reaches(target: int, possible: Sequence[Step]) -> bool:
    shift = -sum(add.asked for add in possible if add.asked < 0)
    sums = 1 << shift  # bit n is set if the sum n - shift can be reached
    for amount in _grouped(Counter(add.asked for add in possible)):
        sums |= sums << amount if amount > 0 else sums >> -amount
    return target + shift >= 0 and bool(sums >> (target + shift) & 1)


def _grouped(amounts: Counter[int]) -> Iterator[int]:
    """Yield fewer amounts with the same subset sums, for example 3, 6 and 12 for seven 3s."""
    for amount, count in amounts.items():
        left, size = count, 1
        while left > 0:
            size = min(size, left)
            yield amount * size
            left -= size
            size *= 2
