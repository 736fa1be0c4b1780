"""One name, or one id, of the versioned catalog by itself: necessary conditions, cheap to refute.

Whatever linearizes the whole catalog also linearizes each of these, so that a contradiction in one
is a contradiction of the history, and is told in its few operations instead of in thousands. The
models are those of `catalog_views`:

* **a name** (`NameView`): of a table that a rename put there only the id is known, of one that came
  by an unknown rename nothing.
* **its tenants** (`Tenancy`): an id that only one operation can have brought to the name has it for
  one time without a break.
* **an id** (`IdView`): renames, which take an id out of a name's sight, do not disturb it. An id
  that several creates give has several lives and no view; one that no create gives, whatever
  became of it, cannot be shown at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from checkers.catalog.models.views import (
    IdView,
    NameView,
    Said,
    Tenancy,
    TenancyInput,
    saying,
)
from checkers.linearizability.model import UNKNOWN, Operation, Projection

if TYPE_CHECKING:
    from checkers.linearizability.models.versioned import VersionedInput, VersionedOutput

    VersionedOperation = Operation[VersionedInput, VersionedOutput]

# --- names ------------------------------------------------------------------------------------


def _about_names(operation: VersionedOperation, names: Sequence[str]) -> Iterator[tuple[str, Said]]:
    given, answer = operation.input, operation.said
    if answer is UNKNOWN:
        yield from _about_names_unknown(given)
        return
    if given.op == "list":
        shown = dict(answer.listing)
        if list(answer.listing) != sorted(shown.items()):
            yield answer.listing[0][0], Said("never")  # a name twice, or names out of order
            return
        for name in names:
            yield name, Said("see", shown[name]) if name in shown else Said("absent")
    elif answer.result == "nf":
        yield given.name, Said("never" if given.op == "create" else "absent")
    elif answer.result == "ex":
        yield given.name, Said("present")
        if given.op == "ren" and given.name2 != given.name:
            yield given.name2, Said("present")
    elif given.op == "create":
        yield given.name, Said("put", given.ident, 1, given.payload)
    elif given.op == "alter":
        yield given.name, Said("bump", answer.ident, answer.version, given.payload)
    elif given.op == "get":
        yield given.name, Said("see", answer.ident, answer.version, answer.seen)
    else:
        yield given.name, Said("take", answer.ident)
        if given.op == "ren" and given.name2 != given.name:
            yield given.name2, Said("put", answer.ident)


def _about_names_unknown(given: VersionedInput) -> Iterator[tuple[str, Said]]:
    match given.op:
        case "create":
            yield given.name, Said("put", given.ident, 1, given.payload)
        case "alter":
            yield given.name, Said("bump", None, None, given.payload)
        case "drop":
            yield given.name, Said("take")
        case "ren" if given.name != given.name2:
            yield given.name, Said("take")
            yield given.name2, Said("put")


# --- tenants of names -------------------------------------------------------------------------


def _tenants(name: str, said: Sequence[Operation[Said, bool]]) -> Projection[Any, Any, Any]:
    """What is said about one name, in terms of the ids that can have come to it only once."""
    arrivals = Counter(o.input.ident for o in said if o.input.f == "put")
    any_id = arrivals.pop(None, 0) > 0
    changes = {"put": "enter", "take": "leave"}
    found = []
    for operation in said:
        f, ident = operation.input.f, operation.input.ident
        if operation.is_unknown or f in {"present", "never"}:
            continue
        once = ident is not None and not any_id and arrivals[ident] == 1
        given = TenancyInput(changes.get(f, "at"), ident) if once else TenancyInput("absent")
        found.append(saying(operation, given))
    return Projection(f"tenants of name {name!r}", Tenancy(), tuple(found))


# --- ids --------------------------------------------------------------------------------------


def _about_id(operation: VersionedOperation) -> tuple[int, Said] | None:
    given, answer = operation.input, operation.said
    if answer is UNKNOWN or answer.result != "ok" or given.op == "list":
        return None
    match given.op:
        case "create":
            return given.ident, Said("make", None, 1, given.payload)
        case "alter":
            return answer.ident, Said("change", None, answer.version, given.payload)
        case "get":
            return answer.ident, Said("see", None, answer.version, answer.seen)
        case "drop":
            return answer.ident, Said("die")
        case _:
            return answer.ident, Said("alive")


def _id_views(operations: Sequence[VersionedOperation]) -> Iterator[Projection[Any, Any, Any]]:
    sayings: dict[int, list[Operation[Said, bool]]] = {}
    lists: list[tuple[VersionedOperation, frozenset[int]]] = []
    for operation in operations:
        about = _about_id(operation)
        if about is not None:
            sayings.setdefault(about[0], []).append(saying(operation, about[1]))
        elif operation.input.op == "list" and (answer := operation.said) is not UNKNOWN:
            shown = frozenset(ident for _, ident in answer.listing)
            lists.append((operation, shown))
            for ident in shown:
                sayings.setdefault(ident, []).append(saying(operation, Said("alive")))
    creates = Counter(o.input.ident for o in operations if o.input.op == "create")
    lists.sort(key=lambda pair: (pair[0].call, pair[0].id))
    calls = [listing.call for listing, _ in lists]
    for ident in sorted(sayings):
        if creates[ident] > 1:
            continue
        said = sayings[ident]
        if not creates[ident]:
            said = [replace(operation, input=Said("never")) for operation in said]
            yield Projection(f"id {ident}", IdView(), tuple(said))
            continue
        begin = min(_end(o) for o in said)
        last = max(o.call for o in said)
        # A list that leaves it out says something only if it was there before and after.
        for listing, shown in lists[bisect_right(calls, begin) :]:
            if listing.call >= last:
                break
            if ident not in shown:
                said.append(saying(listing, Said("missing")))
        yield Projection(f"id {ident}", IdView(), tuple(said))


def _end(operation: Operation[Any, Any]) -> float:
    assert operation.return_time is not None, "only what returned says anything about an id"
    return operation.return_time


# --- both -------------------------------------------------------------------------------------


def projections_of(operations: Sequence[VersionedOperation]) -> list[Projection[Any, Any, Any]]:
    """Every name in two views, then every id that an answer shows."""
    names = sorted(
        {o.input.name for o in operations if o.input.op != "list"}
        | {o.input.name2 for o in operations if o.input.op == "ren"}
        | {
            name
            for o in operations
            if (answer := o.said) is not UNKNOWN
            for name, _ in answer.listing
        }
    )
    found: dict[str, list[Operation[Said, bool]]] = {name: [] for name in names}
    for operation in operations:
        for name, said in _about_names(operation, names):
            found[name].append(saying(operation, said))
    views: list[Projection[Any, Any, Any]] = [
        Projection(f"name {name!r}", NameView(), tuple(found[name])) for name in names
    ]
    tenants = (_tenants(name, found[name]) for name in names)
    return [*views, *tenants, *_id_views(operations)]
