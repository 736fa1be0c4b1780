"""Known differences between a target and the system that it re-creates, for `harness twin`."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Literal

TwinSide = Literal["original", "re-creation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """A difference between a target and its original that is intended or accepted, with the reason.

    `rows` are shell patterns of the names of rows on the page of `harness twin`, such as
    `message/create/*`. `original` is the other target of the comparisons that have these rows. If
    `more` is given, only rows of which that side has the larger share are covered. `cases` are
    patterns of the names of the cases that are covered.
    """

    name: str
    original: str
    rows: tuple[str, ...]
    why: str  # one sentence
    more: TwinSide | None = None
    cases: tuple[str, ...] = ("*",)

    def covers(self, row: str, *, case: str = "", more: TwinSide | None = None) -> bool:
        """Whether this difference explains the row `row`, of which the side `more` has more."""
        return (
            self.more in {None, more}
            and any(fnmatch.fnmatchcase(row, pattern) for pattern in self.rows)
            and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)
        )
