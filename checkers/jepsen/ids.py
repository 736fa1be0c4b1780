"""The history model unique-ids: no id is generated twice.

This follows `unique-ids` in `jepsen/checker.clj`. The operation is `generate`, whose answer is an
id. Ids are compared by value and type: 1, 1.0 and "1" are different ids. Unlike in Jepsen, fewer
than two acknowledged ids make the verdict `unknown`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from checkers.jepsen.model import StepsModel, nothing_seen
from checkers.jepsen.steps import Step
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.exact import exact
from harness.vocabularies import ids


class UniqueIds(StepsModel, judges_prefixes=True, version="1"):
    """The history model of an id generator."""

    name = "unique-ids"
    doc = "a generator of ids: no two answers have the same id"
    vocabulary = ids.CALLS
    functions: ClassVar[Mapping[str, str]] = {"generate": ""}
    answered = frozenset({"generate"})

    def parse(self, step: Step) -> Step:
        if not step.did:
            return step._replace(answer=None)
        if step.answer is None:
            raise ValueError("answers of generate that are an id")
        return step._replace(answer=exact(step.answer))

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        first: dict[Hashable, Step] = {}
        for step in steps:
            if step.did:
                findings.look("id")
                other = first.setdefault(step.answer, step)
                if other is not step:
                    text = f"{other} and {step} got the same id"
                    findings.violate("duplicate-id", text, other.begin, step.begin)
        count = findings.looked["id"]
        details |= {"ids": count, "distinct": len(first)}
        if count < 2:
            nothing_seen(findings, f"{counted(count, 'id')} acknowledged: nothing to compare")
        return f"{counted(count, 'id')}, all different"
