"""Projections for histories in the format "catalog table", which keep counterexamples small.

A projection is a model of a part of the catalog, with the operations on this part. If the whole
catalog has a legal order, each projection also has a legal order. The projections are:

* **a name in a window** (`NameWindow`): the operations on a name within a window of time.
* **the tenants of a name** (`Tenancy`): if only one operation can have given the name to an id, the
  id has the name for one interval without a break.
* **an id** (`IdView`): the operations on a table under all of its names.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from checkers.catalog.models.types import (
    TABLES,
    Alter,
    Answer,
    CatalogInput,
    Create,
    Delete,
    Get,
    ListTables,
    apply_steps,
)
from checkers.catalog.models.views import (
    IdView,
    NameView,
    Said,
    Slot,
    Tenancy,
    TenancyInput,
    saying,
)
from checkers.linearizability.model import UNKNOWN, Operation, Projection, Unknown

TableOperation = Operation[CatalogInput, Answer]
NameProjection = Projection[Slot, Said, bool]

STRIDE: Final = 32
"""The number of operations between the starts of successive windows; a window has twice as many."""

WINDOWS_MAX: Final = 200
"""The maximum number of windows of one name; longer histories get wider windows."""

ANYTHING: Final[Slot] = (None, -1, None)
"""The state at the start of a window, in which any table may have the name."""


def table_projections(
    names: Sequence[NameProjection], operations: Sequence[TableOperation]
) -> list[Projection[Any, Any, Any]]:
    """Return the projections for windows of names, for names, for tenants of names, and for ids."""
    windows = (window for name in names for window in _windows(name))
    return [*windows, *names, *map(_tenants, names), *_ids(operations)]


# --- windows of names -------------------------------------------------------------------------


class NameWindow(NameView):
    """The model of one name within a window of time.

    In a long history, many tables have the name in turn, and a counterexample over the whole
    history would have to name them all. So the model starts at a moment at which any table may have
    the name, and ends at a later moment. An operation that is open at one of these moments may take
    effect inside or outside the window.

    A legal order of the whole catalog stays legal without the operations outside the window. So the
    model is a projection for any two moments.
    """

    def init(self) -> Slot:
        return ANYTHING

    def step(self, state: Slot, input_: Said, output: bool | Unknown, /) -> tuple[bool, Slot]:
        """Take the step of `NameView`. In the state `ANYTHING`, every read and change is legal."""
        if state != ANYTHING or input_.f == "never":
            return super().step(state, input_, output)
        if self.read_only(input_, output):
            return True, state
        if input_.f == "take":
            return True, None
        return True, (input_.ident, input_.version, input_.payload)

    def describe_state(self, state: Slot, /) -> str:
        return "anything may have the name" if state == ANYTHING else super().describe_state(state)


def _windows(whole: NameProjection) -> Iterator[NameProjection]:
    sayings = sorted(whole.operations, key=lambda operation: (operation.call, operation.id))
    stride = max(STRIDE, -(-len(sayings) // WINDOWS_MAX))
    if len(sayings) <= 2 * stride:
        return
    still_open: list[Operation[Said, bool]] = []
    for first in range(0, len(sayings) - stride, stride):
        begin, beyond = sayings[first].call, first + 2 * stride
        end = sayings[beyond].call if beyond < len(sayings) else math.inf
        still_open += sayings[max(0, first - stride) : first]
        still_open = [o for o in still_open if o.return_time is None or o.return_time >= begin]
        within = [_seen_from(begin, end, o) for o in (*still_open, *sayings[first:beyond])]
        yield Projection(
            f"{whole.name} from {begin} " + ("on" if end == math.inf else f"to {end}"),
            NameWindow(),
            tuple(operation for operation in within if operation is not None),
        )


def _seen_from(
    begin: float, end: float, operation: Operation[Said, bool]
) -> Operation[Said, bool] | None:
    """Return the operation as part of the window from `begin` to `end`.

    A change that may have taken effect outside the window gets an unknown outcome. Returns `None`
    for an operation that does not belong to the window.
    """
    returned = operation.return_time
    if returned is not None and returned < begin:
        return None
    if returned is not None and begin <= operation.call and returned < end:
        return operation
    if NameWindow().read_only(operation.input, True):
        return None
    return replace(operation, output=UNKNOWN, return_time=None)


# --- tenants of names -------------------------------------------------------------------------


def _tenants(whole: NameProjection) -> Projection[Any, Any, Any]:
    arrivals = Counter(o.input.ident for o in whole.operations if o.input.f == "put")
    any_id = arrivals.pop(None, 0) > 0
    changes = {"put": "enter", "take": "leave"}
    operations = []
    for operation in whole.operations:
        f, ident = operation.input.f, operation.input.ident
        if operation.is_unknown or f in {"present", "never"}:
            continue
        once = ident is not None and not any_id and arrivals[ident] == 1
        tenant = TenancyInput(changes.get(f, "at"), ident) if once else TenancyInput("absent")
        operations.append(saying(operation, tenant))
    return Projection(f"tenants of {whole.name}", Tenancy(), tuple(operations))


# --- ids --------------------------------------------------------------------------------------


def _about_id(operation: TableOperation) -> tuple[str, Said] | None:
    request, answer = operation.input, operation.said
    if answer is UNKNOWN or answer.result != "ok" or answer.table_id is None:
        return None
    ident = answer.table_id
    match request:
        case Create(columns=columns):
            return ident, Said("make", None, TABLES.first, columns)
        case Alter(steps=steps):
            return ident, Said("change", None, answer.version, apply_steps((), steps))
        case Get():
            return ident, Said("see", None, answer.version, answer.columns)
        case Delete():
            return ident, Said("die")
        case _:
            return ident, Said("alive")


def _ids(operations: Sequence[TableOperation]) -> Iterator[Projection[Any, Any, Any]]:
    sayings: dict[str, list[Operation[Said, bool]]] = {}
    lists: list[tuple[TableOperation, frozenset[str | None]]] = []
    for operation in operations:
        about = _about_id(operation)
        if about is not None:
            sayings.setdefault(about[0], []).append(saying(operation, about[1]))
        elif isinstance(operation.input, ListTables) and (answer := operation.said) is not UNKNOWN:
            listed = frozenset(ident for _, ident, _ in answer.listing)
            lists.append((operation, listed))
            for ident in sorted(ident for ident in listed if ident is not None):
                sayings.setdefault(ident, []).append(saying(operation, Said("alive")))
    creates = Counter(o.input.key for o in operations if isinstance(o.input, Create))
    lists.sort(key=lambda pair: (pair[0].call, pair[0].id))
    calls = [listing.call for listing, _ in lists]
    for ident, statements in sayings.items():
        if creates[ident] > 1:
            continue
        if not creates[ident]:
            never = [replace(operation, input=Said("never")) for operation in statements]
            yield Projection(f"id {ident}", IdView(), tuple(never))
            continue
        begin = min(o.return_time for o in statements if o.return_time is not None)
        last = max(o.call for o in statements)
        # A list without the id can be a contradiction only if answers show the id before and after
        # the list.
        for listing, listed in lists[bisect_right(calls, begin) :]:
            if listing.call >= last:
                break
            if ident not in listed:
                statements.append(saying(listing, Said("missing")))
        yield Projection(f"id {ident}", IdView(), tuple(statements))
