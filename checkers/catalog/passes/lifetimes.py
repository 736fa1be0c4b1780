"""Passes that find contradictions in the versions of tables, and lists that miss a table.

`broken_lifetimes` finds an operation that shows a lower version than an earlier operation, or a
deleted table. It also finds two operations that made the same version, and a version above the
version at the deletion. `torn_lists` finds lists that leave out a table that answers showed before
and after the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from checkers.catalog.models.types import (
    Alter,
    CatalogOperation,
    Create,
    Delete,
    ListTables,
    Rename,
    answer_of,
    is_plain_list,
)
from checkers.catalog.models.views import IdView, Said
from checkers.catalog.passes.contradiction import (
    Contradiction,
    Listing,
    contradiction_of,
    end_of,
)

# the maximum number of torn lists to report; each needs a scan of all operations on its table
LISTS_MAX = 3


class _Sight(NamedTuple):
    """An operation that shows version v of a table. Its rank is 2v, or 2v - 1 if the operation made
    v.
    """

    rank: int
    operation: CatalogOperation


class _Span(NamedTuple):
    """The span in which a table surely exists, between two operations that show the table."""

    begin: float
    end: float
    table: str
    first: CatalogOperation
    last: CatalogOperation


def versions_of(table: str, operation: CatalogOperation) -> Said | None:
    """Return the statement of `operation` about the versions of `table`, or `None`."""
    call, answer = operation.input, answer_of(operation)
    if answer is None or answer.result != "ok":
        return None
    if isinstance(call, ListTables):
        if not is_plain_list(answer):
            return None
        for _, ident, version in answer.listing:
            if ident == table:
                return Said("alive" if version is None else "see", table, version)
        return Said("missing")
    if answer.table_id != table:
        return None
    if isinstance(call, Create):
        return Said("make", table, 0)
    if isinstance(call, Delete):
        return Said("die", table, answer.version)
    if answer.version is None:
        return Said("alive")
    return Said("make" if isinstance(call, Alter | Rename) else "see", table, answer.version)


def broken_lifetimes(table: str, shown: Sequence[CatalogOperation]) -> Iterator[Contradiction]:
    """Yield contradictions about versions and deletions among operations that show `table`."""
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
    earliest: CatalogOperation | None = None
    for rank, group in groupby(sights, key=lambda sight: sight.rank):
        level = [sight.operation for sight in group]
        if rank % 2 and len(level) > 1:
            made = "created twice" if rank < 0 else f"given version {rank // 2 + 1} twice"
            level.sort(key=lambda o: (-end_of(o), o.id))
            yield _about(table, level[-2:], f"table {table} cannot have been {made}")
        late = _soonest(level, after=earliest)
        if earliest is not None and late is not None:
            version = next((sight.rank + 1) // 2 for sight in sights if sight.operation is earliest)
            if rank % 2:  # `earliest` saw the change before `late` was invoked to make it
                what = "it was created" if rank < 0 else f"the change to version {rank // 2 + 1}"
                rule = f"table {table} was at version {version} before {what}"
                yield _about(table, (earliest, late), rule)
            else:
                rule = f"table {table} cannot go back from version {version} to version {rank // 2}"
                yield _about(table, (late, earliest), rule)
        earliest = min([*level, *([earliest] if earliest else [])], key=lambda o: (end_of(o), o.id))


def _about(table: str, operations: Iterable[CatalogOperation], rule: str) -> Contradiction:
    return contradiction_of(
        f"versions of table {table}",
        IdView(first=0),
        [(operation, versions_of(table, operation)) for operation in operations],
        rule,
    )


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
        rule = (
            f"table {table} was deleted at version {about.version} and never had a higher version"
        )
        yield _about(table, (sights[0].operation, last), rule)
    after = _soonest([sight.operation for sight in sights], after=last)
    if after is not None:
        yield _about(table, (after, last), f"table {table} was deleted and cannot come back")


def _soonest(
    operations: Iterable[CatalogOperation], *, after: CatalogOperation | None
) -> CatalogOperation | None:
    """Of the operations invoked after `after` returned, return the one that returned first.

    Returns `None` if `after` is `None`, or if there is no such operation.
    """
    if after is None:
        return None
    late = [operation for operation in operations if operation.call > end_of(after)]
    return min(late, key=lambda o: (end_of(o), o.id), default=None)


def torn_lists(
    listings: Iterable[Listing], tables: dict[str, list[CatalogOperation]]
) -> Iterator[Contradiction]:
    """Yield at most `LISTS_MAX` contradictions about lists that lack an existing table.

    `tables` maps each table id to the operations that show the table.
    """
    spans: list[_Span] = []
    for table, listed in tables.items():
        first = min(listed, key=lambda o: (end_of(o), o.id))
        last = max(listed, key=lambda o: (o.call, -o.id))
        if end_of(first) < last.call:
            spans.append(_Span(end_of(first), last.call, table, first, last))
    spans.sort(key=lambda span: span[:3])
    alive: dict[str, _Span] = {}
    following = count = 0
    for listing, answer in listings:
        while following < len(spans) and spans[following].begin < listing.call:
            alive[spans[following].table] = spans[following]
            following += 1
        for table in [t for t, span in alive.items() if span.end <= listing.call]:
            del alive[table]
        seen = {ident for _, ident, _ in answer.listing}
        for table, span in alive.items():
            if table not in seen and end_of(listing) < span.end:
                rule = f"table {table} existed before and after, but the list does not show it"
                proof = _soonest(tables[table], after=listing) or span.last
                yield _about(table, (listing, span.first, proof), rule)
                count += 1
                break
        if count == LISTS_MAX:
            return
