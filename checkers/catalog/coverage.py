"""Tablets of a table cover each of its partitions exactly once (I6).

Keys are hex, and the empty one is both ends of the key space. What a table must cover is all of it,
or what its row says by `covers`, where its ranges leave gaps: a sorted list of [start, end].
"""

from __future__ import annotations

from typing import Any

from checkers.catalog.findings import Findings, table_words
from checkers.catalog.snapshot import Snapshot

__all__ = ["check_coverage", "not_covered"]


def check_coverage(snapshot: Snapshot, findings: Findings) -> None:
    """Every live table, by the rows of the leading master."""
    for table in snapshot.live_tables:
        findings.look("coverage")
        words = table_words(table["id"], table["name"])
        position = ""
        ended = False
        before = ""
        held = [(row["start"], row["end"], row["id"]) for row in snapshot.live_tablets(table["id"])]
        for start, end, ident in sorted([*held, *not_covered(table.get("covers"))]):
            if ended or start < position:
                where = start or "the start"
                findings.violate(
                    "coverage",
                    f"{words} is covered twice from key {where}: tablet {ident} overlaps the one "
                    "before it."
                    if ident and before
                    else f"{words} has tablet {ident or before} at keys from {where} on, which "
                    "are in none of its ranges.",
                )
            elif start > position:
                findings.violate(
                    "coverage",
                    f"{words} has no tablet for keys from {position or 'the start'} to {start}.",
                )
            before = ident
            ended = ended or end == ""
            position = max(position, end)
        if not ended:
            findings.violate(
                "coverage", f"{words} has no tablet for keys from {position or 'the start'} on."
            )


def not_covered(covers: Any) -> list[tuple[str, str, str]]:
    """What is left between the ranges of a table, sorted, like tablets without an id.

    `covers` is a sorted list of [start, end]; `None` stands for all keys.
    """
    if covers is None:
        return []
    gaps, position, ended = [], "", False
    for start, end in covers:
        if start > position:
            gaps.append((position, start, ""))
        position, ended = end, end == ""
    return gaps if ended else [*gaps, (position, "", "")]
