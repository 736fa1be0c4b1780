"""The history model g2: if two inserts exclude each other, at most one of them succeeds.

This follows `g2-checker` in `jepsen/tests/adya.clj`. Each insert is a transaction that first reads
two tables by a predicate, and inserts a row only if it finds no row with its key. If two inserts of
the same key are acknowledged, neither saw the other. This is Adya's anomaly G2, an anti-dependency
cycle.

The operation is `insert` with `[key [a b]]`, where a and b are ids, one of which is nil. An insert
of unknown outcome does not count. Unlike in Jepsen, a history is `unknown` unless some key has an
acknowledged insert and another insert of known outcome.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

from checkers.jepsen.model import StepsModel, nothing_seen
from checkers.jepsen.steps import Step
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.exact import exact, is_scalar
from harness.ops import OpType
from harness.vocabularies import inserts

_VALUES: Final = "insert with [key [a-id nil]] or [key [nil b-id]]"


class G2(StepsModel, judges_prefixes=True, version="1"):
    """The history model of inserts that exclude each other."""

    name = "g2"
    doc = "inserts that exclude each other by a predicate: at most one for each key succeeds"
    vocabulary = inserts.CALLS
    functions: ClassVar[Mapping[str, str]] = {"insert": "with [key [a b]]"}
    answered = frozenset()
    keyed = False

    def parse(self, step: Step) -> Step:
        """Return the step; its `asked` is the key."""
        asked = step.asked
        if isinstance(asked, Mapping) and "key" in asked:
            return step._replace(asked=exact(asked["key"]))
        if not isinstance(asked, (list, tuple)) or len(asked) != 2 or not is_scalar(asked[0]):
            raise ValueError(_VALUES)
        ids = asked[1]
        if not isinstance(ids, (list, tuple)) or len(ids) != 2 or ids.count(None) != 1:
            raise ValueError(_VALUES)
        return step._replace(asked=exact(asked[0]))

    def judge(self, steps: Sequence[Step], findings: Findings, details: dict[str, Any]) -> str:
        by_key: dict[Hashable, list[Step]] = {}
        for step in steps:
            by_key.setdefault(step.asked, []).append(step)
        judged = 0
        for key, attempts in by_key.items():
            done = [step for step in attempts if step.did]
            decided = [step for step in attempts if step.type is not OpType.INFO]
            if not done or len(decided) < 2:
                continue
            judged += 1
            findings.look("g2")
            if len(done) > 1:
                text = (
                    f"two inserts of the key {key!r} were acknowledged, so neither saw the other: "
                    f"{done[0].by} and {done[1].by}"
                )
                findings.violate("g2", text, done[0].begin, done[1].begin)
        details |= {"keys": len(by_key), "judged_keys": judged}
        if not judged:
            nothing_seen(findings, "no key has an acknowledged insert and another known outcome")
        return f"{counted(judged, 'key')} with two decided inserts, at most one acknowledged each"
