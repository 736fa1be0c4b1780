"""What the parts of the invariants checker hand back, and the words they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from checkers._sentences import where
from harness.errors import counted
from harness.ops import Pair

__all__ = ["Findings", "Violation", "counted", "table_words", "tried"]

ID_SHOWN_MAX: Final = 8
"""Longer ids are cut in sentences: the name is what people know."""


def table_words(ident: object, name: str | None) -> str:
    """A table by the name that people know: `table 't3' (id 0e7fb6…)`."""
    text = str(ident)
    short = text if len(text) <= ID_SHOWN_MAX else f"{text[: ID_SHOWN_MAX - 2]}…"
    return f"table {name!r} (id {short})" if name else f"table {short}"


def tried(pair: Pair) -> str:
    """What an operation that did nothing wanted, without a full stop."""
    call = pair.invoke
    name = call.value.get("name") if isinstance(call.value, dict) else None
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
    outcome may explain it.
    """

    violations: list[Violation] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    looked: dict[str, int] = field(default_factory=dict)
    exempt: dict[str, int] = field(default_factory=dict)

    def look(self, invariant: str, count: int = 1) -> None:
        """Note that an invariant was evaluated on something."""
        self.looked[invariant] = self.looked.get(invariant, 0) + count

    def excuse(self, invariant: str, count: int = 1) -> None:
        """Note that an invariant could not be evaluated on something."""
        self.exempt[invariant] = self.exempt.get(invariant, 0) + count

    def violate(self, invariant: str, sentence: str, *operations: int) -> None:
        """Add a violation. A sentence may begin with `table_words`, but names of nodes stay."""
        is_word = sentence.startswith(("table ", "tablet "))
        text = sentence[:1].upper() + sentence[1:] if is_word else sentence
        self.violations.append(Violation(invariant, text, operations))

    @property
    def vacuous(self) -> list[str]:
        """Invariants of which everything was exempt."""
        return sorted(name for name in self.exempt if not self.looked.get(name))
