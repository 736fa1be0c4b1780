"""The passes: near-linear searches for two to four operations that contradict each other.

Time is that of calls and returns: "before" means that one operation had returned before the other
was called. The passes, and the view (see `views`) that confirms what each one finds:

1. lifetimes and versions (`IdView`): an operation that shows a higher version, or the deletion,
   came before one that shows a lower version; two operations made the same version; or a version is
   higher than the deleted one;
2. lists (`IdView`): a list leaves out a table that answers showed before it and after it;
3. tenancy (`Tenancy`): a name belonged to one table from some answer until a later call (an alter
   in between does not end this, a rename does), and in that time the name was free or belonged to
   another table. These intervals are the zones of Gibbons and Korach (1997): no zone may lie within
   another, and no two may overlap;
4. shape (`Shape`): one version has two names or two lists of columns, or columns that the steps of
   an alter do not produce.

Every pass is sound for "invalid", but no pass is complete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from checkers.catalog.models.types import Answer, Columns, ListTables, apply_steps, is_plain_list
from checkers.catalog.models.views import IdView, Tenancy, TenancyInput, saying
from checkers.catalog.passes.views import (
    CatalogOperation,
    Pairing,
    Shape,
    Tenant,
    answer_of,
    shape_of,
    shown_by,
    tenancies,
    tenancy_of,
    versions_of,
)
from checkers.linearizability import Model, Operation, Projection, Result, check_operations

# the maximum number of torn lists to examine: each takes a scan of all related operations
LISTS_MAX = 3


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Operations that cannot all have answered as they did; the first is the one to blame.

    `part` is the view in which the operations contradict each other, and contains only these.
    `rule` says in one sentence which rule they break.
    """

    core: tuple[int, ...]
    rule: str
    part: Projection[Any, Any, Any]


class _Sight(NamedTuple):
    """An operation that shows a table, and the rank in its life: 2v, or 2v - 1 if it made v."""

    rank: int
    operation: CatalogOperation


class _Span(NamedTuple):
    """The span in which a table surely exists, and the operations that show it."""

    begin: float
    end: float
    table: str
    first: CatalogOperation
    last: CatalogOperation


def refute(operations: Sequence[CatalogOperation]) -> Contradiction | None:
    """The contradiction that was complete first, minimized; `None` proves nothing."""
    earliest = min(
        contradictions(operations),
        key=lambda c: (max(map(_end, c.part.operations)), len(c.core)),
        default=None,
    )
    return None if earliest is None else _minimal(earliest)


def contradictions(operations: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    """The contradictions of each pass, at most a few for each table and name."""
    answered = [operation for operation in operations if answer_of(operation) is not None]
    tables = _by_table(answered)
    for table in sorted(tables):
        yield from _order(table, tables[table])
        yield from _shape(table, tables[table])
    yield from _lists(answered, tables)
    yield from _tenancy(answered)


def conflict(pairs: Sequence[tuple[int, tuple[str, str]]], rule: str) -> Contradiction:
    """Operations (by id) whose (table id, nonce) pairs contradict a one-to-one mapping."""
    about = tuple(Operation(0, (pair,), 0, True, 0, number) for number, pair in pairs)
    return Contradiction(
        tuple(number for number, _ in pairs), rule, Projection("ids and nonces", Pairing(), about)
    )


# --- building ---------------------------------------------------------------------------------


def _contradiction(
    view: str, model: Model[Any, Any, Any], about: Sequence[tuple[CatalogOperation, Any]], rule: str
) -> Contradiction:
    """A contradiction that blames the first operation; the others are sorted by their returns."""
    first, *others = about
    others.sort(key=lambda pair: (_end(pair[0]), pair[0].id))
    part = tuple(
        saying(o, input_) for o, input_ in {pair[0].id: pair for pair in (first, *others)}.values()
    )
    return Contradiction(tuple(o.id for o in part), rule, Projection(view, model, part))


def _about(table: str, operations: Iterable[CatalogOperation], rule: str) -> Contradiction:
    return _contradiction(
        f"versions of table {table}",
        IdView(first=0),
        [(operation, versions_of(table, operation)) for operation in operations],
        rule,
    )


def _minimal(contradiction: Contradiction) -> Contradiction:
    """Remove operations that the contradiction does not need: large parts, then single ones."""
    kept = list(contradiction.part.operations)
    size = max(1, len(kept) // 2)
    while True:
        ids = [operation.id for operation in kept]
        for chunk in [set(ids[start : start + size]) for start in range(0, len(ids), size)]:
            rest = [operation for operation in kept if operation.id not in chunk]
            if rest:
                outcome = check_operations(contradiction.part.model, rest, explained=False)
                kept = rest if outcome.result is Result.ILLEGAL else kept
        if size == 1:
            break
        size = max(1, min(size, len(kept)) // 2)
    part = replace(contradiction.part, operations=tuple(kept))
    return replace(contradiction, core=tuple(operation.id for operation in kept), part=part)


def _end(operation: Operation[Any, Any]) -> float:
    assert operation.return_time is not None, "unknown operations say nothing here"
    return operation.return_time


def _listings(known: Iterable[CatalogOperation]) -> list[tuple[CatalogOperation, Answer]]:
    """The lists that name every table by an id, sorted by their calls."""
    looks = []
    for operation in known:
        answer = answer_of(operation)
        if isinstance(operation.input, ListTables) and answer and is_plain_list(answer):
            looks.append((operation, answer))
    return sorted(looks, key=lambda pair: (pair[0].call, pair[0].id))


def _by_table(known: Iterable[CatalogOperation]) -> dict[str, list[CatalogOperation]]:
    """Table id -> the operations that show it."""
    tables: dict[str, list[CatalogOperation]] = {}
    for operation in known:
        for table in shown_by(operation):
            tables.setdefault(table, []).append(operation)
    return tables


# --- 1. lifetimes and versions ----------------------------------------------------------------


def _order(table: str, shown: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    sights: list[_Sight] = []
    deletes: list[CatalogOperation] = []
    for operation in shown:
        about = versions_of(table, operation)
        assert about is not None
        if about.f == "die":
            deletes.append(operation)
        elif about.version is not None:
            sights.append(_Sight(2 * about.version - (about.f == "make"), operation))
    sights.sort(key=lambda sight: (-sight.rank, sight.operation.id))
    yield from _deletions(table, sights, deletes)
    # the first to return of the answers that show a higher rank
    earliest: CatalogOperation | None = None
    for rank, group in groupby(sights, key=lambda sight: sight.rank):
        level = [sight.operation for sight in group]
        if rank % 2 and len(level) > 1:
            made = "created twice" if rank < 0 else f"given version {rank // 2 + 1} twice"
            level.sort(key=lambda o: (-_end(o), o.id))
            yield _about(table, level[-2:], f"table {table} cannot have been {made}")
        late = _soonest(level, after=earliest)
        if earliest is not None and late is not None:
            version = _sight_of(sights, earliest)
            if rank % 2:  # the change came late, so blame the operation that saw its effect
                what = "it was created" if rank < 0 else f"the change to version {rank // 2 + 1}"
                rule = f"table {table} was at version {version} before {what}"
                yield _about(table, (earliest, late), rule)
            else:
                rule = f"table {table} cannot go back from version {version} to version {rank // 2}"
                yield _about(table, (late, earliest), rule)
        earliest = min([*level, *([earliest] if earliest else [])], key=lambda o: (_end(o), o.id))


def _sight_of(sights: Iterable[_Sight], operation: CatalogOperation) -> int:
    """The version at which `operation` shows the table."""
    return next((sight.rank + 1) // 2 for sight in sights if sight.operation is operation)


def _deletions(
    table: str, sights: Sequence[_Sight], deletes: Sequence[CatalogOperation]
) -> Iterator[Contradiction]:
    if len(deletes) > 1:
        yield _about(table, deletes[1::-1], f"table {table} cannot have been deleted twice")
    if not deletes or not sights:
        return
    last = deletes[0]
    about = versions_of(table, last)
    assert about is not None
    if about.version is not None and sights[0].rank > 2 * about.version:
        rule = f"table {table} was deleted at version {about.version} and never had a higher one"
        yield _about(table, (sights[0].operation, last), rule)
    after = _soonest([sight.operation for sight in sights], after=last)
    if after is not None:
        yield _about(table, (after, last), f"table {table} was deleted and cannot come back")


def _soonest(
    operations: Iterable[CatalogOperation], *, after: CatalogOperation | None
) -> CatalogOperation | None:
    """The first to return of the operations that were called after `after` had returned."""
    if after is None:
        return None
    late = [operation for operation in operations if operation.call > _end(after)]
    return min(late, key=lambda o: (_end(o), o.id), default=None)


# --- 2. lists ---------------------------------------------------------------------------------


def _lists(
    known: Sequence[CatalogOperation], tables: dict[str, list[CatalogOperation]]
) -> Iterator[Contradiction]:
    """Sweep over time with the tables that surely exist; each list must show all of them."""
    spans: list[_Span] = []
    for table, listed in tables.items():
        first = min(listed, key=lambda o: (_end(o), o.id))
        last = max(listed, key=lambda o: (o.call, -o.id))
        if _end(first) < last.call:
            spans.append(_Span(_end(first), last.call, table, first, last))
    spans.sort(key=lambda span: span[:3])
    alive: dict[str, _Span] = {}
    following = count = 0
    for listing, answer in _listings(known):
        while following < len(spans) and spans[following].begin < listing.call:
            alive[spans[following].table] = spans[following]
            following += 1
        for table in [t for t, span in alive.items() if span.end <= listing.call]:
            del alive[table]
        seen = {ident for _, ident, _ in answer.listing}
        for table, span in alive.items():
            if table not in seen and _end(listing) < span.end:
                rule = f"table {table} was there before and after, and the list leaves it out"
                proof = _soonest(tables[table], after=listing) or span.last
                yield _about(table, (listing, span.first, proof), rule)
                count += 1
                break
        if count == LISTS_MAX:
            return


# --- 3. tenancy -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Zone:
    """A tenant of a name, from the answers that show it there; alters carry the tenant along."""

    first: CatalogOperation
    last: CatalogOperation
    table: str
    from_version: int
    to_version: int

    @property
    def begin(self) -> float:
        """The moment from which the tenant surely had the name."""
        return _end(self.first)

    @property
    def end(self) -> float:
        """The moment until which the tenant surely had the name."""
        return self.last.call


Saying = tuple[CatalogOperation, TenancyInput]


def _tenancy(known: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    sayings: dict[str, list[Saying]] = {}
    for operation in known:
        for name, about in tenancies(operation):
            sayings.setdefault(name, []).append((operation, about))
    lists = [
        (listing, frozenset(entry[0] for entry in answer.listing))
        for listing, answer in _listings(known)
    ]
    for name in sorted(sayings):
        alters = {
            about.following: operation
            for operation, about in sayings[name]
            if about.f == "alter" and about.following is not None
        }
        roots = _roots(alters)
        zones = _zones(sayings[name], roots)
        yield from _overlaps(name, zones, alters)
        absent = TenancyInput("absent")
        others = [*sayings[name], *((o, absent) for o, named in lists if name not in named)]
        yield from _intruders(name, zones, alters, roots, others)


def _roots(alters: dict[Tenant, CatalogOperation]) -> dict[Tenant, Tenant]:
    """Tenant -> first of the sequence of versions that known alters under this name connect."""
    roots: dict[Tenant, Tenant] = {}
    for table, version in sorted(alters):
        before = (table, version - 1)
        roots[table, version] = roots.get(before, before)
    return roots


def _tenants(about: TenancyInput) -> Iterator[Tenant]:
    if about.tenant is not None:
        yield about.tenant
    if about.following is not None:
        yield about.following


def _zones(sayings: Iterable[Saying], roots: dict[Tenant, Tenant]) -> list[_Zone]:
    """The forward zones, sorted by their start."""
    zones: dict[Tenant, _Zone] = {}
    for operation, about in sayings:
        for tenant in _tenants(about):
            root = roots.get(tenant, tenant)
            zone = zones.get(root)
            if zone is None:
                zones[root] = _Zone(operation, operation, tenant[0], tenant[1], tenant[1])
                continue
            if _end(operation) < zone.begin:
                zone.first, zone.from_version = operation, tenant[1]
            if operation.call > zone.end:
                zone.last, zone.to_version = operation, tenant[1]
    # A tenant that goes back to an earlier version is no zone; the first pass already reports it.
    forward = [
        zone
        for zone in zones.values()
        if zone.begin < zone.end and zone.from_version <= zone.to_version
    ]
    return sorted(forward, key=lambda zone: (zone.begin, zone.end))


def _clash(
    name: str,
    zones: Iterable[_Zone],
    alters: dict[Tenant, CatalogOperation],
    others: Iterable[CatalogOperation],
    rule: str,
) -> Contradiction:
    """The operations that show the zones, the alters within the zones, and `others`."""
    chosen = list(others)
    for zone in zones:
        chosen += [zone.first, zone.last]
        for version in range(zone.from_version + 1, zone.to_version + 1):
            alter = alters.get((zone.table, version))
            if alter is not None:
                chosen.append(alter)
    about = [(operation, tenancy_of(name, operation)) for operation in chosen]
    return _contradiction(f"tenants of name {name!r}", Tenancy(), about, rule)


def _overlaps(
    name: str, zones: Sequence[_Zone], alters: dict[Tenant, CatalogOperation]
) -> Iterator[Contradiction]:
    furthest: _Zone | None = None
    for zone in zones:
        if furthest is not None and zone.begin < furthest.end:
            rule = f"{name!r} cannot be two tables at one time"
            yield _clash(name, (furthest, zone), alters, (), rule)
            return
        if furthest is None or zone.end > furthest.end:
            furthest = zone


def _intruders(
    name: str,
    zones: Sequence[_Zone],
    alters: dict[Tenant, CatalogOperation],
    roots: dict[Tenant, Tenant],
    others: Iterable[Saying],
) -> Iterator[Contradiction]:
    """Operations wholly inside a zone that show another tenant, or no tenant."""
    if any(a.end > b.begin for a, b in pairwise(zones)):
        return  # zones overlap, which is already a contradiction
    begins = [zone.begin for zone in zones]
    for operation, about in others:
        at = bisect_left(begins, operation.call) - 1
        if at < 0 or _end(operation) >= zones[at].end:
            continue
        zone = zones[at]
        home = roots.get((zone.table, zone.from_version), (zone.table, zone.from_version))
        if any(roots.get(tenant, tenant) == home for tenant in _tenants(about)):
            continue
        rule = f"{name!r} was table {zone.table} before and after without a break"
        yield _clash(name, (zone,), alters, (operation,), rule)
        return


# --- 4. shape ---------------------------------------------------------------------------------


def _shape(table: str, shown: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    names: dict[int, tuple[str, CatalogOperation]] = {}
    columns: dict[int, tuple[Columns, tuple[CatalogOperation, ...]]] = {}
    steps: dict[int, tuple[Any, CatalogOperation]] = {}

    def clash(operations: Iterable[CatalogOperation], rule: str) -> Contradiction:
        about = [(operation, shape_of(table, operation)) for operation in operations]
        return _contradiction(f"shape of table {table}", Shape(), about, rule)

    for operation in shown:
        for kind, version, value in shape_of(table, operation):
            if kind == "never":
                yield clash([operation], f"version {version} of table {table} was not made yet")
            elif kind == "name":
                name, first = names.setdefault(version, (value, operation))
                if name != value:
                    rule = f"version {version} of table {table} has one name"
                    yield clash([operation, first], rule)
                    return
            elif kind == "columns":
                list_, by = columns.setdefault(version, (value, (operation,)))
                if list_ != value:
                    rule = f"version {version} of table {table} has one list of columns"
                    yield clash([operation, *by], rule)
                    return
            else:
                steps.setdefault(version, (value, operation))
    for version in sorted(steps):
        before = columns.get(version - 1)
        if before is None:
            continue
        value, change = steps[version]
        after = apply_steps(before[0], value)
        because = (*before[1], change)
        shown_after = columns.get(version)
        if after is None:
            yield clash(
                because[::-1], f"version {version} of table {table} cannot follow the one before"
            )
            return
        if shown_after is None:
            columns[version] = (after, because)
        elif shown_after[0] != after:
            rule = f"the columns of version {version} of table {table} follow from those before"
            yield clash([*shown_after[1], *because], rule)
            return
