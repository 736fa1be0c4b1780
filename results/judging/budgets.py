"""Limits of a report's checks, in levels. Level 2 retries the checks that level 1 left unknown."""

from __future__ import annotations

from typing import ClassVar

from harness.verdict.limits import Limits


class Budget(Limits, frozen=True, kw_only=True):
    """The limits for one check: of a whole history, or of the operations on one key."""

    alarm: ClassVar[bool] = True
    steps: int = 20_000_000
    configurations: int = 2_000_000
    memory_mib: int = 4096
    level: int = 1

    def larger(self) -> Budget:
        """Return the budget of the next level."""
        return Budget(
            cpu_s=self.cpu_s * 5,
            steps=self.steps * 5,
            configurations=self.configurations * 3,
            memory_mib=self.memory_mib * 2,
            level=self.level + 1,
        )
