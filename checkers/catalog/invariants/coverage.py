"""Tablets of a table cover each of its partitions exactly once (I6).

Keys are hex, and the empty one is both ends of the key space.
"""

from __future__ import annotations

from checkers.catalog.invariants.snapshot import Snapshot
from checkers.catalog.sentences import table_words
from checkers.verdict.findings import Findings


def check_coverage(snapshot: Snapshot, findings: Findings) -> None:
    """Every live table, by the rows of the leading master."""
    for table in snapshot.live_tables:
        findings.look("coverage")
        words = table_words(table["id"], table["name"])
        position = ""
        ended = False
        for tablet in snapshot.live_tablets(table["id"]):
            start, end = tablet["start"], tablet["end"]
            if ended or start < position:
                findings.violate(
                    "coverage",
                    f"{words} is covered twice from key {start or 'the start'}: tablet "
                    f"{tablet['id']} overlaps the one before it.",
                )
            elif start > position:
                findings.violate(
                    "coverage",
                    f"{words} has no tablet for keys from {position or 'the start'} to {start}.",
                )
            ended = ended or end == ""
            position = max(position, end)
        if not ended:
            findings.violate(
                "coverage", f"{words} has no tablet for keys from {position or 'the start'} on."
            )
