"""The history models of sets that only grow: set-full, set-full-linearizable and set-final.

This follows `set` and `set-full` in `jepsen/checker.clj`. The operations are `add` with an element,
and `read`, whose answer lists all elements. In Maelstrom, an add may be called `broadcast`.

**set-full** judges each element by all reads. An element is *known* once its add was acknowledged
or a read showed it.

* lost: the element is known, but the last read that could have shown it does not.
* stale: a read that began when the element was already known does not show it, but a later read
  does. In set-full this is only counted. In set-full-linearizable it is a violation.
* never read: no read began after the element was known, and none showed it. Such an element is not
  judged. If most acknowledged elements are never read, the verdict is `unknown`.
* duplicated: one read shows the element twice.
* unexpected: a read shows an element that was never added, whose add failed, or whose add began
  only after the read.

**set-final** judges only the last answered read: it must contain each element whose add was
acknowledged before this read began, and no unexpected element.

Jepsen's checkers accept elements of failed adds. `set-full` does not look for unexpected elements,
and ignores staleness below a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self

from checkers.jepsen.model import StepsModel, nothing_seen
from checkers.jepsen.steps import NEVER, Step
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.exact import exact
from harness.ops import OpType
from harness.vocabularies import sets
from harness.vocabularies.edn import members

LISTED_MAX: Final = 20
NEVER_READ: Final = "the set was never read: no read was answered"


class _Element(NamedTuple):
    """The adds of one element.

    `begin` is the earliest invocation of an add that may have taken effect, or infinite if all adds
    failed. `acknowledged` is the add that was acknowledged first.
    """

    begin: float
    first: Step
    acknowledged: Step | None


def elements_of(steps: Sequence[Step]) -> dict[Hashable, _Element]:
    """Return a summary of the adds of each element that a client tried to add."""
    elements: dict[Hashable, _Element] = {}
    for step in steps:
        if step.f != "add":
            continue
        before = elements.get(step.asked)
        begin = step.begin if step.may_have else NEVER
        done = step if step.did else None
        if before is not None:
            begin = min(begin, before.begin)
            if done is None or (before.acknowledged and before.acknowledged.end <= done.end):
                done = before.acknowledged
        elements[step.asked] = _Element(begin, before.first if before else step, done)
    return elements


def first_shown(reads: Iterable[Step]) -> dict[Hashable, Step]:
    """Map each element to the read that showed it and ended first."""
    showing: dict[Hashable, Step] = {}
    for read in sorted(reads, key=lambda read: read.end):
        showing |= dict.fromkeys(read.answer.keys() - showing.keys(), read)
    return showing


def judge_shown(
    showing: Mapping[Hashable, Step], elements: Mapping[Hashable, _Element], findings: Findings
) -> None:
    """Judge that each shown element was added earlier, by an add that did not fail."""
    for element, read in showing.items():
        findings.look("unexpected")
        added = elements.get(element)
        if added is None:
            text = f"{brief(read)} shows {element!r}, which was never added"
            findings.violate("unexpected", text, read.begin)
        elif added.begin > read.end:
            why = "failed" if added.begin == NEVER else "began only after the read ended"
            text = f"{brief(read)} shows {element!r}, but {added.first} {why}"
            findings.violate("unexpected", text, read.begin, added.first.begin)


def judge_repeats(reads: Iterable[Step], findings: Findings) -> None:
    """Judge that no read shows an element twice."""
    for read in reads:
        if read.answer.total() > len(read.answer):
            element, count = read.answer.most_common(1)[0]
            text = f"{brief(read)} shows {element!r} {count} times"
            findings.violate("duplicated", text, read.begin)


class SetModel(StepsModel):
    """The base class of models of values that are added one by one and read all together.

    `requests` and `answers` describe what the model accepts.
    """

    vocabulary = sets.CALLS
    functions: ClassVar[Mapping[str, str]] = {
        "add": "with an element",
        "broadcast": "with a message",
        "read": "",
    }
    requests: ClassVar[str] = "add with an element, and read"
    answers: ClassVar[str] = "reads that are answered with a collection of elements"

    def parse(self, step: Step) -> Step:
        """Return the step. Every operation other than a read is called `add`."""
        if step.f != "read":
            if step.asked is None:
                raise ValueError(self.requests)
            return step._replace(f="add", asked=exact(step.asked))
        if not step.did:
            return step._replace(answer=None)
        items = members(step.answer)
        if items is None:
            raise ValueError(self.answers)
        return step._replace(answer=Counter(map(exact, items)))


class SetFull(SetModel, version="1"):
    """The history model that follows each element through all reads. Stale reads are counted."""

    name = "set-full"
    doc = "a set that only grows: no element is lost; stale reads are counted, not judged"
    linearizable = False

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        reads = sorted((s for s in steps if s.f == "read" and s.did), key=lambda s: s.begin)
        elements = elements_of(steps)
        showing = first_shown(reads)
        judge_shown(showing, elements, findings)
        judge_repeats(reads, findings)
        outcomes: dict[str, list[Hashable]] = {"stable": [], "lost": [], "never-read": []}
        stale: list[Hashable] = []
        for element, seen in _sightings(elements, reads, showing).items():
            outcome = seen.outcome
            outcomes[outcome].append(element)
            if outcome == "never-read":
                findings.exempt("element", 1 if elements[element].acknowledged else 0)
                continue
            findings.look("element")
            if outcome == "lost":
                findings.violate("lost", *seen.missed(element, "no later read shows it"))
            elif seen.is_stale:
                stale.append(element)
                if self.linearizable:
                    findings.violate("stale", *seen.missed(element, "a later read shows it"))
        if not reads:
            nothing_seen(findings, NEVER_READ)
        elif not outcomes["stable"] and not outcomes["lost"]:
            nothing_seen(findings, "no read began after an element was known to be in the set")
        details |= {name.replace("-", "_"): len(kept) for name, kept in outcomes.items()}
        details |= {"stale": len(stale), "stale_elements": _listed(stale)}
        details |= {"reads": len(reads), "lost_elements": _listed(outcomes["lost"])}
        stable = counted(len(outcomes["stable"]), "element")
        text = f"{stable} stable in {counted(len(reads), 'read')}"
        return f"{text}, {len(stale)} of them after a stale read" if stale else text


class SetFullLinearizable(SetFull, version="1"):
    """The history model `set-full` with the additional rule that reads must be current."""

    name = "set-full-linearizable"
    doc = "a set that only grows: no element is lost, and no read is stale"
    linearizable = True

    def for_run(self, options: Mapping[str, Any]) -> Self:
        """Return the model. With the option `stale-reads`, stale reads are only counted."""
        if not options.get("stale_reads"):
            return self
        model = type(self)()
        model.linearizable = False
        return model


class SetFinal(SetModel, version="1"):
    """The history model that judges only the last answered read."""

    name = "set-final"
    doc = "a set that only grows: the last read has all acknowledged elements, and no other"

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        last = max((s for s in steps if s.f == "read" and s.did), key=lambda s: s.end, default=None)
        if last is None:
            nothing_seen(findings, NEVER_READ)
            return ""
        elements = elements_of(steps)
        judge_shown(first_shown([last]), elements, findings)
        judge_repeats([last], findings)
        recovered = 0
        for element, added in elements.items():
            done = added.acknowledged
            recovered += done is None and element in last.answer
            if done is None:
                continue
            if done.end > last.begin:
                findings.exempt("lost")
                continue
            findings.hold(
                "lost",
                element in last.answer,
                f"{done} was acknowledged before the last read, {brief(last)}, which does not "
                "show it",
                (done.begin, last.begin),
            )
        if not findings.looked["lost"]:
            nothing_seen(findings, "no add was acknowledged before the last read began")
        details |= {"recovered": recovered, "elements": len(last.answer)}
        return f"the last read has all {counted(findings.looked['lost'], 'acknowledged element')}"


class _Sighting(NamedTuple):
    """The reads of one element, by their invocations.

    `proof` is the step that first showed that the element is in the set. `present` and `absent` are
    the last reads with and without the element.
    """

    proof: Step | None
    present: Step | None
    absent: Step | None

    @property
    def outcome(self) -> str:
        present = -1 if self.present is None else self.present.begin
        absent = -1 if self.absent is None else self.absent.begin
        if present > absent:
            return "stable"
        if self.is_stale:
            return "lost"
        return "never-read"

    @property
    def is_stale(self) -> bool:
        """Whether a read missed the element, although the element was known when the read began."""
        return (
            self.proof is not None
            and self.absent is not None
            and self.proof.end < self.absent.begin
        )

    def missed(self, element: Hashable, then: str) -> tuple[str, int, int]:
        """Return the sentence and the operations that prove that a read missed the element."""
        assert self.proof is not None, "only a known element can be missed"
        assert self.absent is not None, "a read missed it"
        how = "acknowledged" if self.proof.f == "add" else "shown"
        text = (
            f"{element!r} was in the set, {how} by {brief(self.proof)}, but {brief(self.absent)}, "
            f"which began later, does not show it; {then}"
        )
        return text, self.proof.begin, self.absent.begin


def _sightings(
    elements: Mapping[Hashable, _Element],
    reads: Sequence[Step],
    showing: Mapping[Hashable, Step],
) -> dict[Hashable, _Sighting]:
    proofs: dict[Hashable, Step | None] = {
        element: added.acknowledged for element, added in elements.items() if added.begin != NEVER
    }
    for element in proofs.keys() & showing.keys():
        first = proofs[element]
        if first is None or showing[element].end < first.end:
            proofs[element] = showing[element]
    present: dict[Hashable, Step] = {}
    absent: dict[Hashable, Step] = {}
    unseen, unmissed = set(proofs), set(proofs)
    for read in reversed(reads):
        present |= dict.fromkeys(unseen & read.answer.keys(), read)
        unseen -= read.answer.keys()
        absent |= dict.fromkeys(unmissed - read.answer.keys(), read)
        unmissed &= read.answer.keys()
        if not unseen and not unmissed:
            break
    return {
        element: _Sighting(first, present.get(element), absent.get(element))
        for element, first in proofs.items()
    }


def brief(step: Step) -> str:
    """Describe a step briefly. A read is described by its number of elements."""
    if step.type is OpType.OK and step.f == "read":
        size = counted(len(step.answer), "element")
        return f"the read of {size} {step.by}"
    return str(step)


def _listed(elements: Iterable[Hashable]) -> list[str]:
    return sorted(map(repr, elements))[:LISTED_MAX]
