"""What the parts of the invariants checker hand back."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Findings", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its name, a sentence, and the ops that prove it."""

    invariant: str
    sentence: str
    operations: tuple[int, ...] = ()


@dataclass(slots=True)
class Findings:
    """Violations, what could not be checked and why, and how often each invariant was looked at."""

    violations: list[Violation] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    looked: dict[str, int] = field(default_factory=dict)

    def look(self, invariant: str, count: int = 1) -> None:
        """Note that an invariant was evaluated on something."""
        self.looked[invariant] = self.looked.get(invariant, 0) + count

    def violate(self, invariant: str, sentence: str, *operations: int) -> None:
        """Add a violation."""
        self.violations.append(Violation(invariant, sentence, operations))
