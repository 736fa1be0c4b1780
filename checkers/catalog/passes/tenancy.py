"""Finds contradictions about the tenants of names; the model `Tenancy` confirms them.

A tenant of a name is a (table, version). A name has one tenant at a time, and each tenant has the
name only once, without a break. So if two answers show the same tenant, the tenant has the name
from the first answer to the second. An answer in between that shows another tenant, or none, is a
contradiction. These intervals are the zones of Gibbons and Korach (1997): no zone may lie within
another zone or overlap with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from checkers.catalog.models.types import (
    Alter,
    CatalogOperation,
    Create,
    Delete,
    Get,
    ListTables,
    Look,
    Rename,
    answer_of,
    is_plain_list,
)
from checkers.catalog.models.views import Tenancy, TenancyInput
from checkers.catalog.passes.contradiction import (
    Contradiction,
    Listing,
    contradiction_of,
    end_of,
)

Tenant = tuple[str, int]  # table id, version


def tenancies(operation: CatalogOperation) -> Iterator[tuple[str, TenancyInput]]:
    """Yield (name, statement) for each name in the operation, except names that a list lacks."""
    call, answer = operation.input, answer_of(operation)
    if answer is None:
        return
    if isinstance(call, ListTables):
        if is_plain_list(answer):
            for name, ident, version in answer.listing:
                if ident is not None and version is not None:
                    yield name, TenancyInput("at", (ident, version))
        return
    if answer.result == "not-found":
        yield call.name, TenancyInput("absent")
        return
    if answer.result != "ok" or (isinstance(call, Rename) and call.name == call.new_name):
        return
    version = 0 if isinstance(call, Create) else answer.version
    if answer.table_id is None or version is None:
        # Without an id and a version, the answer shows only that a name was free: the new name
        # before a create or a rename, and the old name after a delete or a rename.
        if isinstance(call, Create | Delete | Rename):
            yield call.name, TenancyInput("absent")
        if isinstance(call, Rename):
            yield call.new_name, TenancyInput("absent")
        return
    tenant, before = (answer.table_id, version), (answer.table_id, version - 1)
    match call:
        case Create(name=name):
            yield name, TenancyInput("enter", tenant)
        case Alter(name=name):
            yield name, TenancyInput("alter", before, tenant)
        case Rename(name=name, new_name=new_name):
            yield name, TenancyInput("leave", before)
            yield new_name, TenancyInput("enter", tenant)
        case Delete(name=name):
            yield name, TenancyInput("leave", tenant)
        case Get(name=name) | Look(name=name):
            yield name, TenancyInput("at", tenant)


def tenancy_of(name: str, operation: CatalogOperation) -> TenancyInput | None:
    """Return the statement of `operation` about `name`, or `None`."""
    for about, input_ in tenancies(operation):
        if about == name:
            return input_
    answer = answer_of(operation)
    if isinstance(operation.input, ListTables) and answer is not None and is_plain_list(answer):
        listed = {entry[0] for entry in answer.listing}
        return None if name in listed else TenancyInput("absent")
    return None


@dataclass(slots=True)
class _Zone:
    """The interval in which a table surely had a name; alters of the table do not end it."""

    first: CatalogOperation
    last: CatalogOperation
    table: str
    from_version: int
    to_version: int

    @property
    def begin(self) -> float:
        return end_of(self.first)

    @property
    def end(self) -> float:
        return self.last.call


Saying = tuple[CatalogOperation, TenancyInput]


def broken_tenancies(
    known: Sequence[CatalogOperation], listings: Sequence[Listing]
) -> Iterator[Contradiction]:
    """Yield contradictions about the tenants of names, at most two for each name."""
    sayings: dict[str, list[Saying]] = {}
    for operation in known:
        for name, about in tenancies(operation):
            sayings.setdefault(name, []).append((operation, about))
    lists = [
        (listing, frozenset(entry[0] for entry in answer.listing)) for listing, answer in listings
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
    """Map each altered tenant to the tenant at the start of its chain of alters under this name."""
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
    zones: dict[Tenant, _Zone] = {}
    for operation, about in sayings:
        for tenant in _tenants(about):
            root = roots.get(tenant, tenant)
            zone = zones.get(root)
            if zone is None:
                zones[root] = _Zone(operation, operation, tenant[0], tenant[1], tenant[1])
                continue
            if end_of(operation) < zone.begin:
                zone.first, zone.from_version = operation, tenant[1]
            if operation.call > zone.end:
                zone.last, zone.to_version = operation, tenant[1]
    # A table that goes back to an earlier version has no zone here: `broken_lifetimes` reports it.
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
    chosen = list(others)
    for zone in zones:
        chosen += [zone.first, zone.last]
        for version in range(zone.from_version + 1, zone.to_version + 1):
            alter = alters.get((zone.table, version))
            if alter is not None:
                chosen.append(alter)
    about = [(operation, tenancy_of(name, operation)) for operation in chosen]
    return contradiction_of(f"tenants of name {name!r}", Tenancy(), about, rule)


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
    if any(a.end > b.begin for a, b in pairwise(zones)):
        return  # `broken_tenancies` reports overlapping zones itself
    begins = [zone.begin for zone in zones]
    for operation, about in others:
        at = bisect_left(begins, operation.call) - 1
        if at < 0 or end_of(operation) >= zones[at].end:
            continue
        zone = zones[at]
        home = roots.get((zone.table, zone.from_version), (zone.table, zone.from_version))
        if any(roots.get(tenant, tenant) == home for tenant in _tenants(about)):
            continue
        rule = f"{name!r} was table {zone.table} before and after without a break"
        yield _clash(name, (zone,), alters, (operation,), rule)
        return
