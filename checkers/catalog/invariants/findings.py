"""What the parts of the invariants checker hand back, and the words they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.catalog.sentences import where
from harness.errors import counted
from harness.ops import Op, OpType, Pair

__all__ = ["Findings", "Violation", "counted", "fields_of", "is_ok", "table_words", "tried"]

ID_SHOWN_MAX: Final = 8
"""Longer ids are cut in sentences: the name is what people know."""


def table_words(ident: object, name: str | None) -> str:
    """A table by the name that people know: `table 't3' (id 0e7fb6…)`."""
    text = str(ident)
    short = text if len(text) <= ID_SHOWN_MAX else f"{text[: ID_SHOWN_MAX - 2]}…"
    return f"table {name!r} (id {short})" if name else f"table {short}"


def fields_of(op: Op | None) -> Mapping[str, Any]:
    """What an op says; histories of others may hold anything in its place."""
    return op.value if op is not None and isinstance(op.value, Mapping) else {}


def is_ok(pair: Pair) -> bool:
    """Whether the operation succeeded: some targets answer that a table is not there."""
    return pair.type is OpType.OK and fields_of(pair.completion).get("result", "ok") == "ok"


def tried(pair: Pair) -> str:
    """What an operation that did nothing wanted, without a full stop."""
    call = pair.invoke
    name = fields_of(call).get("name")
    what = f"table {name!r}" if name else "the tables"
    return f"Process {call.process} tried to {call.f} {what} {where(pair)}"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its name, a sentence, and the ops that prove it."""

    invariant: str
    sentence: str
    operations: tuple[int, ...] = ()


@dataclass(slots=True)
class Findings:
    """Violations, what could not be checked and why, and how often each invariant was looked at.

    `exempt` counts what an invariant is about but could not be held against: something of unknown
    outcome may explain it. `permitted` counts what the profile permits.
    """

    violations: list[Violation] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    looked: dict[str, int] = field(default_factory=dict)
    exempt: dict[str, int] = field(default_factory=dict)
    permitted: dict[str, dict[int, None]] = field(default_factory=dict)  # permit -> ops

    def look(self, invariant: str, count: int = 1) -> None:
        """Note that an invariant was evaluated on something."""
        self.looked[invariant] = self.looked.get(invariant, 0) + count

    def excuse(self, invariant: str, count: int = 1) -> None:
        """Note that an invariant could not be evaluated on something."""
        self.exempt[invariant] = self.exempt.get(invariant, 0) + count

    def permit(self, permit: str, operation: int) -> None:
        """Note that something happened to an operation which the profile permits: once each."""
        self.permitted.setdefault(permit, {})[operation] = None

    def violate(
        self, invariant: str, sentence: str, *operations: int, permit: str | None = None
    ) -> None:
        """Add a violation, unless there is a `permit` for it.

        A sentence may begin with `table_words`, but names of nodes stay. Where there is a permit,
        the last of the operations is the one that it is about.
        """
        if permit is not None:
            self.permit(
                permit, operations[-1] if operations else -1 - len(self.permitted.get(permit, ()))
            )
            return
        is_word = sentence.startswith(("table ", "tablet "))
        text = sentence[:1].upper() + sentence[1:] if is_word else sentence
        self.violations.append(Violation(invariant, text, operations))

    def give_up(self, invariants: Iterable[str], permit: str | None) -> None:
        """What was found broken of these is permitted, where there is a permit."""
        if permit is None:
            return
        given = set(invariants)
        for violation in self.violations:
            if violation.invariant in given:
                number = -1 - len(self.permitted.get(permit, ()))
                self.permit(permit, violation.operations[-1] if violation.operations else number)
        self.violations = [one for one in self.violations if one.invariant not in given]

    @property
    def vacuous(self) -> list[str]:
        """Invariants of which everything was exempt."""
        return sorted(name for name in self.exempt if not self.looked.get(name))
