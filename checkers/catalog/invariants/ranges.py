"""Judges tables whose ranges are added and dropped, by the invariants I6 and I3.

The ranges of such a table are the ranges of its live tablets. `custom_ranges` lists the ranges that
have a hash schema of their own. Keys are hexadecimal. If the table has hash buckets, the bucket
comes first in the key.

The last acknowledged alter that added or dropped a range decides whether the range exists at the
end. An alter of unknown outcome may have taken effect at any time, so the ranges that it names are
not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.snapshot import LIVE_TABLES, Snapshot
from checkers.catalog.sentences import sentence
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.ops import History, OpType, Pair
from harness.vocabularies import fields_of, is_ok
from harness.vocabularies.ddl import Alter

Json = Mapping[str, Any]
Range = tuple[str, str]
BUCKET_DIGITS: Final = 8
"""The number of hexadecimal digits at the start of a key that encode the hash bucket."""


def cover_ranges(table: Json, words: str, tablets: Sequence[Json], findings: Findings) -> None:
    """Check the tablets of a table with bounded ranges.

    No two tablets overlap, and each range has one tablet per hash bucket.
    """
    usual = table["num_hash_buckets"]
    held = _ranges(table, tablets)
    custom = {(each["start"], each["end"]): each for each in table["custom_ranges"]}
    position = ""
    for tablet in tablets:
        if tablet["start"] < position:
            findings.violate(
                "coverage", f"{words}: tablet {tablet['id']} overlaps the previous tablet."
            )
        position = max(position, tablet["end"])
    for (start, end), count in sorted(held.items()):
        wanted = custom[start, end]["num_hash_buckets"] if (start, end) in custom else usual
        if count != wanted:
            findings.violate(
                "coverage",
                f"{words} has {counted(count, 'tablet')} for the range from {start} to {end}, "
                f"which has {counted(wanted, 'hash bucket')}.",
            )
    listed = Counter((each["start"], each["end"]) for each in table["custom_ranges"])
    for (start, end), count in sorted(listed.items()):
        if (start, end) not in held:
            findings.violate(
                "coverage",
                f"{words} has a hash schema for the range from {start} to {end}, which does not "
                "exist.",
            )
        elif count > 1:
            findings.violate(
                "coverage",
                f"{words} has {count} hash schemas for the range from {start} to {end}.",
            )


def _ranges(table: Json, tablets: Sequence[Json]) -> Counter[Range]:
    skipped = BUCKET_DIGITS if table["num_hash_buckets"] > 1 else 0
    return Counter((tablet["start"][skipped:], tablet["end"][skipped:]) for tablet in tablets)


def check_ranges(history: History, snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Check that the final ranges follow from the last acknowledged alters."""
    last: dict[tuple[str, Range], tuple[int, str, Pair]] = {}
    unsure: set[Range] = set()
    for pair in history.pairs:
        if pair.invoke.f != Alter.f or pair.type is OpType.FAIL:
            continue
        answer = fields_of(pair.completion)
        ident, version = answer.get("table_id"), answer.get("schema_version")
        is_sure = is_ok(pair) and not findings.may.twice(pair)
        for step, bounds in _steps(pair):
            if is_sure and isinstance(ident, str) and isinstance(version, int):
                here = (version, step, pair)
                # if one alter has two steps for a range, the later step counts
                last[ident, bounds] = max(here, last.get((ident, bounds), here), key=_version)
            else:
                unsure.add(bounds)
    for (ident, bounds), (_, step, pair) in sorted(last.items(), key=lambda item: item[0]):
        table = snapshot.tables.get(ident)
        if table is None or not table.get("is_bounded") or bounds in unsure:
            continue
        if table["state"] not in LIVE_TABLES:
            continue
        findings.look("acknowledged")
        exists = bounds in _ranges(table, snapshot.live_tablets(ident))
        if exists is not (step == "add-range"):
            findings.violate(
                "acknowledged",
                f"{sentence(pair)}, but at the end the range "
                f"{'still exists' if exists else 'is missing'}.",
                pair.invoke.index,
                permit=findings.may.lost(pair),
            )


def _version(entry: tuple[int, str, Pair]) -> int:
    return entry[0]


def _steps(pair: Pair) -> Iterator[tuple[str, Range]]:
    for step in fields_of(pair.invoke).get("steps") or ():
        match step:
            case ("add-range" | "drop-range") as kind, str(start), str(end), *_:
                yield kind, (start.encode().hex(), end.encode().hex())
