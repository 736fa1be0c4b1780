"""Known differences between a target and the system that it re-creates, for `harness twin`."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """A difference between a target and its original that is intended or accepted, with the reason.

    `rows` are shell patterns of the names of rows on the page of `harness twin`, such as
    `message/create/*`. `original` is the other target of the comparisons that have these rows.
    """

    name: str
    original: str
    rows: tuple[str, ...]
    why: str  # one sentence

    def covers(self, row: str) -> bool:
        """Whether this difference explains the row with the name `row`."""
        return any(fnmatch.fnmatchcase(row, pattern) for pattern in self.rows)
