"""The history models total-queue and at-least-once-queue, where everything enqueued must come out.

This follows `total-queue` in `jepsen/checker.clj`. `enqueue` has an element. The answer of
`dequeue` is an element, or nil if the queue was empty. The answer of `drain` lists all elements
that it took until the queue was empty. The order of elements is not judged.

* lost: no answer contains an element, although its enqueue was acknowledged before a drain began,
  or before a dequeue began that found the queue empty.
* duplicated: an element came out more often than it went in. This is allowed in
  at-least-once-queue.
* unexpected: an element came out, but it was never enqueued, or all its enqueues failed, or its
  first enqueue began only later.

**Lost answers.** A dequeue of unknown outcome may have taken any single element, and a drain of
unknown outcome any number of elements. Missing elements that these can explain do not count as
lost.

Differences from Jepsen: duplicates are violations in total-queue, elements of failed enqueues must
not come out, and a history without a drain is `unknown`. Jepsen refuses drains of unknown outcome.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from checkers.jepsen.model import StepsModel, nothing_seen
from checkers.jepsen.steps import Step
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.exact import exact
from harness.ops import OpType
from harness.vocabularies import queues
from harness.vocabularies.edn import members

NAMED_MAX: Final = 20


class TotalQueue(StepsModel, version="1", milder="at-least-once-queue"):
    """The history model of a queue that delivers each element exactly once."""

    name = "total-queue"
    doc = "a queue with enqueue, dequeue and drain: each element comes out exactly once"
    vocabulary = queues.CALLS
    functions: ClassVar[Mapping[str, str]] = {
        "enqueue": "with an element",
        "dequeue": "",
        "drain": "",
    }
    answered = frozenset({"dequeue", "drain"})
    duplicates = False

    def for_run(self, options: Mapping[str, Any]) -> Self:
        """Return the model. With the option `duplicates`, an element may come out several times."""
        if not options.get("duplicates"):
            return self
        model = type(self)()
        model.duplicates = True
        return model

    def parse(self, step: Step) -> Step:
        if step.f == "enqueue":
            if step.asked is None:
                raise ValueError("enqueue with an element, dequeue and drain")
            return step._replace(asked=exact(step.asked))
        if step.f == "dequeue":
            none = not step.did or step.answer is None
            return step._replace(answer=None if none else exact(step.answer))
        items = members(step.answer)
        if items is None:
            if step.did:
                raise ValueError("drains that are answered with a collection of elements")
            items = []
        return step._replace(answer=tuple(map(exact, items)))

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        enqueues = [step for step in steps if step.f == "enqueue"]
        taken = Counter(element for step in steps for element in _came_out(step))
        details["duplicated"] = self._judge_deliveries(enqueues, steps, findings)
        lost = _judge_losses(enqueues, taken, steps, findings)
        done = Counter(step.asked for step in enqueues if step.did)
        details |= {
            "enqueued": done.total(),
            "came_out": taken.total(),
            "recovered": (taken - done).total(),
            "lost": lost,
        }
        return f"{counted(taken.total(), 'element')} came out of {done.total()} acknowledged"

    def _judge_deliveries(
        self, enqueues: Sequence[Step], steps: Sequence[Step], findings: Findings
    ) -> int:
        """Judge each element that came out, in the order of answers; return how many came out
        twice.
        """
        possible: dict[Hashable, deque[Step]] = {}
        asked: dict[Hashable, Step] = {}
        for step in enqueues:
            asked.setdefault(step.asked, step)
            if step.may_have:
                possible.setdefault(step.asked, deque()).append(step)
        before: dict[Hashable, Step] = {}
        repeated = 0
        for delivery, element in _deliveries(steps):
            findings.look("delivery")
            left = possible.get(element)
            if left and left[0].begin < delivery.end:
                left.popleft()
                before[element] = delivery
            elif element in before:
                repeated += 1
                if not self.duplicates:
                    first = before[element]
                    text = (
                        f"{element!r} came out more often than it went in: by {_brief(first)}, and "
                        f"again by {_brief(delivery)}"
                    )
                    findings.violate("duplicated", text, first.begin, delivery.begin)
            else:
                _unexpected(delivery, element, asked.get(element), findings)
        return repeated


class AtLeastOnceQueue(TotalQueue, version="1", milder=None):
    """The history model of a queue that may deliver an element several times."""

    name = "at-least-once-queue"
    doc = "a queue with enqueue, dequeue and drain: each element comes out, perhaps repeatedly"
    duplicates = True


def _came_out(step: Step) -> tuple[Hashable, ...]:
    """Return the elements that left the queue according to the answer of this step."""
    if step.f == "dequeue" and step.answer is not None:
        return (step.answer,)
    return step.answer if step.f == "drain" else ()


def _deliveries(steps: Sequence[Step]) -> Iterator[tuple[Step, Hashable]]:
    for step in sorted((s for s in steps if s.f != "enqueue" and s.did), key=lambda s: s.end):
        for element in _came_out(step):
            yield step, element


def _unexpected(delivery: Step, element: Hashable, asked: Step | None, findings: Findings) -> None:
    text = f"{_brief(delivery)} got {element!r}"
    if asked is None:
        findings.violate("unexpected", f"{text}, which was never enqueued", delivery.begin)
        return
    why = "began only later" if asked.begin > delivery.end else "failed"
    findings.violate("unexpected", f"{text}, but {asked} {why}", delivery.begin, asked.begin)


def _judge_losses(
    enqueues: Sequence[Step], taken: Counter[Hashable], steps: Sequence[Step], findings: Findings
) -> int:
    emptied = [s for s in steps if s.did and s.f != "enqueue" and _is_empty_after(s)]
    emptied.sort(key=lambda step: step.begin)
    if not emptied:
        nothing_seen(
            findings,
            "the queue was never drained: no drain was answered, and no dequeue found it empty",
        )
        return 0
    lost_drains = [s for s in steps if s.f == "drain" and s.type is OpType.INFO]
    lost_dequeues = [s for s in steps if s.f == "dequeue" and s.type is OpType.INFO]
    done = deque(sorted((s for s in enqueues if s.did), key=lambda s: s.end))
    left = Counter(taken)
    lost: list[Step] = []
    excused = judged = 0
    for drain in emptied:
        while done and done[0].end < drain.begin:
            step = done.popleft()
            judged += 1
            if left[step.asked]:
                left[step.asked] -= 1
            else:
                lost.append(step)
        excuses = sum(step.begin < drain.end for step in lost_dequeues)
        if any(step.begin < drain.end for step in lost_drains):
            excuses = len(lost)
        excused = min(len(lost), excuses)
        if len(lost) > excuses:
            _violate(drain, lost, excuses, findings)
            break
    if not judged and not findings.looked["delivery"]:
        nothing_seen(findings, "no enqueue was acknowledged before the queue was emptied")
    findings.look("lost", judged - excused)
    findings.exempt("lost", excused + len(done))
    return len(lost)


def _is_empty_after(step: Step) -> bool:
    return step.f == "drain" or step.answer is None


def _violate(drain: Step, lost: Sequence[Step], excuses: int, findings: Findings) -> None:
    for step in lost[:NAMED_MAX] if excuses else lost:
        text = f"{step} was acknowledged, but {step.asked!r} is in no answer"
        if excuses:
            text += (
                f"; {counted(len(lost), 'element')} are missing, and only "
                f"{counted(excuses, 'dequeue')} of unknown outcome may have taken one each"
            )
        text += f". {_brief(drain)} began later and emptied the queue"
        findings.violate("lost", text, step.begin, drain.begin)


def _brief(step: Step) -> str:
    if step.f == "drain":
        got = counted(len(step.answer), "element")
        return f"the drain of {got} {step.by}"
    return f"the dequeue {step.by}"
