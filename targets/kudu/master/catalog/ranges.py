"""The steps of an alter that add and drop ranges of a table.

The rules follow Kudu's `CatalogManager::ApplyAlterPartitioningSteps`. A new range may have its own
number of hash buckets (KUDU-2671). The stored partition schema lists only the ranges whose hash
schema differs from the table's.

With the defect KUDU-3723, a range is also listed if a client spelled out the table's own hash
schema for it. Dropping such a range does not remove its entry: Kudu looks up the hash schema, finds
the table's own, and does nothing. Adding the range again makes a second entry. From then on, the
partition schema is invalid because its ranges overlap: clients cannot open the table, and masters
refuse to alter it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from targets.kudu.master.catalog.records import TableRecord, TabletRecord, TabletState
from targets.kudu.master.errors import RefusedError, invalid_argument, invalid_schema
from targets.kudu.messages import (
    AlterStep,
    AppStatus,
    Partition,
    PartitionSchema,
    RangeHash,
    StepType,
)
from targets.kudu.partitions import range_of, range_partitions

KINDS: Final = (StepType.ADD_RANGE_PARTITION, StepType.DROP_RANGE_PARTITION)


@dataclass(frozen=True, slots=True)
class RangeChange:
    """The partition schema after all steps, and the tablets that the steps add and drop."""

    partition_schema: PartitionSchema
    added: tuple[TabletRecord, ...] = ()
    dropped: tuple[TabletRecord, ...] = ()


def change_ranges(
    table: TableRecord,
    tablets: Sequence[TabletRecord],
    steps: Iterable[AlterStep],
    *,
    new_id: Callable[[], str],
    stores_own: bool,
) -> RangeChange:
    """Apply the steps that add and drop ranges to a table with these live `tablets`.

    `stores_own` is the defect KUDU-3723. Raises `RefusedError`.
    """
    check_ranges(table.partition_schema)
    schema, now = table.partition_schema, list(tablets)
    for step in steps:
        if not schema.is_bounded:
            raise invalid_schema(f"the table {table.name!r} has no bounded ranges")
        bounds = step.start, step.end
        if not b"" < step.start < step.end:
            raise invalid_schema(
                f"the range {_words(*bounds)} is bad: its start must be nonempty and below its end"
            )
        if step.type is StepType.ADD_RANGE_PARTITION:
            schema, partitions = _add(schema, now, step, stores_own=stores_own)
            now += [TabletRecord(new_id(), table.id, p, TabletState.PREPARING) for p in partitions]
        else:
            kept = [each for each in now if range_of(schema, each.partition) != bounds]
            if len(kept) == len(now):
                raise invalid_schema(f"no range is {_words(*bounds)}", AppStatus.NOT_FOUND)
            schema, now = _without(schema, *bounds), kept
    before, after = {each.id for each in tablets}, {each.id for each in now}
    return RangeChange(
        schema,
        added=tuple(each for each in now if each.id not in before),
        dropped=tuple(each for each in tablets if each.id not in after),
    )


def check_ranges(schema: PartitionSchema) -> None:
    """Refuse a stored partition schema that lists a range twice (see KUDU-3723 above)."""
    overlapped = _overlapped(schema.custom_ranges)
    if overlapped is not None:
        words = _words(overlapped.start, overlapped.end)
        raise invalid_argument(f"overlapping range partitions: {words}")


def bad_ranges(schema: PartitionSchema, ranges: Sequence[RangeHash]) -> str | None:
    """Return the reason why a new table cannot have these ranges; `None` if it can."""
    if not ranges:
        return "a table with bounded ranges needs a first range" if schema.is_bounded else None
    if not schema.is_bounded or not schema.range_columns or schema.range_splits:
        return "only a table with range columns, bounded ranges and no splits has a list of ranges"
    if not all(b"" < each.start < each.end for each in ranges) or _overlapped(ranges) is not None:
        return "the ranges are bad: each needs a nonempty start below its end, and none may overlap"
    ordered = sorted(ranges, key=_start)
    return next(filter(None, (_bad_hash(schema, r.num_hash_buckets) for r in ordered)), None)


def _overlapped(ranges: Iterable[RangeHash]) -> RangeHash | None:
    pairs = itertools.pairwise(sorted(ranges, key=_start))
    return next((lower for lower, upper in pairs if upper.start < lower.end), None)


def _start(each: RangeHash) -> bytes:
    return each.start


def _add(
    schema: PartitionSchema, tablets: Sequence[TabletRecord], step: AlterStep, *, stores_own: bool
) -> tuple[PartitionSchema, tuple[Partition, ...]]:
    for tablet in tablets:
        start, end = range_of(schema, tablet.partition)
        if (start, end) == (step.start, step.end):
            raise _taken("exists already", start, end)
        if start < step.end and step.start < end:
            raise _taken("conflicts with another one", start, end)
    buckets = step.num_hash_buckets or schema.num_hash_buckets
    problem = _bad_hash(schema, buckets)
    if problem is not None:
        raise invalid_schema(problem)
    if buckets != schema.num_hash_buckets or (step.num_hash_buckets is not None and stores_own):
        custom = (*schema.custom_ranges, RangeHash(step.start, step.end, buckets))
        schema = msgspec.structs.replace(schema, custom_ranges=custom)
    return schema, range_partitions(schema, step.start, step.end, buckets)


def _taken(why: str, start: bytes, end: bytes) -> RefusedError:
    return invalid_schema(f"the range {_words(start, end)} {why}", AppStatus.ALREADY_PRESENT)


def _without(schema: PartitionSchema, start: bytes, end: bytes) -> PartitionSchema:
    """Remove a range's entry from the partition schema, if the range has its own hash schema.

    As in Kudu, an entry with the table's own hash schema remains (KUDU-3723).
    """
    kept = tuple(
        each
        for each in schema.custom_ranges
        if (each.start, each.end) != (start, end)
        or each.num_hash_buckets == schema.num_hash_buckets
    )
    return msgspec.structs.replace(schema, custom_ranges=kept)


def _bad_hash(schema: PartitionSchema, buckets: int) -> str | None:
    if buckets == schema.num_hash_buckets:
        return None
    if schema.num_hash_buckets == 1:
        return "a range of a table without hash buckets cannot have any (number of dimensions)"
    return None if buckets > 1 else f"a range has {buckets} hash buckets; it needs 2 at least"


def _words(start: bytes, end: bytes) -> str:
    return f"[{start.hex()}, {end.hex()})"
