"""Collects the findings of a checker, and makes its result from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from checkers.verdict.invariants import KEY, Invariant, counted_by_name, invariant_of
from checkers.verdict.permitted import permit_of_rule, permit_rules, permitted_result
from harness.errors import counted
from harness.ops import CheckResult, Verdict
from harness.permits import PERMITTED, Permit

NAMED_MAX: Final = 4
"""For each rule, the maximum number of violations whose operations the result names."""
GAPS_MAX: Final = 10
OPERATIONS_MAX: Final = 100
INCOMPLETE: Final = "incomplete"


class Violation(NamedTuple):
    """A violation of a rule: a sentence about it, and the operations that prove it."""

    rule: str
    sentence: str
    operations: tuple[int, ...] = ()


@dataclass(slots=True)
class Findings:
    """The findings of one checker about one history.

    `looked` counts judgements by rule. `exempted` counts, by rule, cases that were not judged
    because they cannot be held against the target. `gaps` are reasons why the history could not be
    judged completely, and `incomplete` is the rule of the first gap. `permitted` maps each permit
    that was needed to the operations that needed it.
    """

    checker: str
    permits: Mapping[str, Permit] = field(default_factory=dict)
    invariants: Sequence[Invariant] = ()
    violations: list[Violation] = field(default_factory=list)
    looked: Counter[str] = field(default_factory=Counter)
    exempted: Counter[str] = field(default_factory=Counter)
    gaps: list[str] = field(default_factory=list)
    permitted: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    incomplete: str = INCOMPLETE

    def look(self, rule: str, count: int = 1) -> None:
        self.looked[rule] += count

    def hold(self, rule: str, holds: bool, sentence: str, operations: Iterable[int] = ()) -> None:
        """Count one judgement of `rule`. If the rule does not hold, add a violation with
        `sentence`.
        """
        self.look(rule)
        if not holds:
            self.violate(rule, sentence, *operations)

    def exempt(self, rule: str, count: int = 1) -> None:
        """Count cases of `rule` that were not judged, for example because of unknown outcomes."""
        if count:
            self.exempted[rule] += count

    def gap(self, reason: str, *, rule: str = INCOMPLETE) -> None:
        """Record why the history could not be judged completely.

        If the result is `unknown`, its rule is the `rule` of the first gap.
        """
        if not self.gaps:
            self.incomplete = rule
        self.gaps.append(reason)

    def permit(self, permit: str, *operations: int, about: int | None = None) -> None:
        """Count a use of `permit` for `operations`.

        Several uses about the same operation `about` count once.
        """
        noted = self.permitted.setdefault(permit, {})
        noted[-1 - len(noted) if about is None else about] = operations

    def violate(
        self, rule: str, sentence: str, *operations: int, permit: str | None = None
    ) -> None:
        """Add a violation of `rule`. With a `permit`, count a use of the permit instead.

        This use concerns the last of `operations`.
        """
        if permit is not None:
            about = operations[-1] if operations else None
            self.permit(permit, *operations[-1:], about=about)
            return
        is_word = sentence.startswith(("table ", "tablet "))
        text = sentence[:1].upper() + sentence[1:] if is_word else sentence
        self.violations.append(Violation(rule, text, operations))

    def give_up(self, rules: Iterable[str], permit: str | None) -> None:
        """Turn all violations of `rules` into uses of `permit`, unless `permit` is `None`."""
        if permit is None:
            return
        lost = {*rules}
        for violation in self.violations:
            if violation.rule in lost:
                self.violate(*violation[:2], *violation.operations, permit=permit)
        self.violations = [each for each in self.violations if each.rule not in lost]

    @property
    def vacuous(self) -> list[str]:
        """The rules that were never judged, because all their cases were exempt."""
        return sorted(name for name in self.exempted if not self.looked[name])

    def result(self, valid: str, details: Mapping[str, Any] | None = None) -> CheckResult:
        """Return the checker's result; `valid` is the reason if the verdict is `valid`.

        The verdict is the first that applies: `invalid` if there are violations, `unknown` if there
        are gaps, `permitted` if a permit was used, and otherwise `valid`.
        """
        self._excuse()
        permitted = {permit: len(noted) for permit, noted in self.permitted.items()}
        every: dict[str, Any] = {
            "looked": dict(sorted(self.looked.items())),
            "exempt": dict(sorted(self.exempted.items())),
            "gaps": self.gaps[:GAPS_MAX],
            "violations": len(self.violations),
            "by_invariant": dict(sorted(Counter(each.rule for each in self.violations).items())),
            **(details or {}),
        }
        if self.invariants:
            every[KEY] = counted_by_name(self.looked, self.invariants)
        if permitted:
            every[PERMITTED] = permitted
        if self.violations:
            return permit_rules(self._invalid(every), self.permits)
        if self.gaps:
            more = counted(len(self.gaps) - 1, "more gap")
            reason = self.gaps[0] + (f" (and {more})" if len(self.gaps) > 1 else "")
            every["rule"] = self.incomplete
            return CheckResult(self.checker, Verdict.UNKNOWN, reason, details=every)
        if permitted:
            broken = CheckResult(self.checker, Verdict.INVALID, "", details=every)
            noted = {each: None for by_op in self.permitted.values() for each in by_op.values()}
            operations = dict.fromkeys(index for each in noted for index in each)
            indices = [*operations][:OPERATIONS_MAX]
            return permitted_result(broken, self.permits, permitted, indices, every)
        return CheckResult(self.checker, Verdict.VALID, valid, details=every)

    def _excuse(self) -> None:
        """Turn violations of permitted rules into uses of permits, if others are not permitted.

        The verdict then names a rule that makes the history invalid, and not one that does not.
        """
        permits = {
            each.rule: permit_of_rule(self.checker, each.rule, self.permits)
            for each in self.violations
        }
        if None not in permits.values():
            return
        for rule, permit in permits.items():
            self.give_up([rule], permit)

    def _invalid(self, details: dict[str, Any]) -> CheckResult:
        by_rule: dict[str, list[Violation]] = {}
        for violation in self.violations:
            by_rule.setdefault(violation.rule, []).append(violation)
        text = [f"[{self._label(rule)} {each[0].sentence}" for rule, each in by_rule.items()]
        named = [each for each in self.violations if each in by_rule[each.rule][:NAMED_MAX]]
        operations = dict.fromkeys(index for each in named for index in each.operations)
        total = counted(len(self.violations), "violation")
        if len(self.violations) > len(by_rule):
            counts = ", ".join(f"{rule} {len(each)}" for rule, each in by_rule.items())
            rules = counted(len(by_rule), "rule")
            text.insert(0, f"{total} of {rules}, with one example each: {counts}.")
        first = ", first" if len(self.violations) > 1 else ""
        return CheckResult(
            self.checker,
            Verdict.INVALID,
            f"{total}{first}: {self.violations[0].sentence}",
            tuple(text),
            (*operations,)[:OPERATIONS_MAX],
            {**details, "rule": self.violations[0].rule},
        )

    def _label(self, rule: str) -> str:
        return f"{invariant_of(rule).name}] {rule}:" if self.invariants else f"{rule}]"
