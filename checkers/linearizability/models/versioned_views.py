"""One name, or one id, of the versioned catalog by itself: necessary conditions, cheap to refute.

Whatever linearizes the whole catalog also linearizes each of these, so that a contradiction in one
is a contradiction of the history, and is told in its few operations instead of in thousands:

* **a name** (`NameView`): who has it, at which version and payload. Of a table that a rename put
  there only the id is known, of one that came by an unknown rename nothing, and every answer about
  what is not known is believed.
* **its tenants** (`TenantView`): an id that only one operation can have brought to the name has it
  for one time without a break. What no operation says may happen by itself, so unknown outcomes
  need no operations here.
* **an id** (`IdView`): its versions only grow, each has one payload, and deletion is for ever.
  Here, too, what is not said may happen by itself. Renames, which take an id out of a name's
  sight, do not disturb it. An id that several creates give has several lives and no view; one that
  no create gives, whatever became of it, cannot be shown at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown

if TYPE_CHECKING:
    from checkers.linearizability.models.versioned import VersionedInput, VersionedOutput

    VersionedOperation = Operation[VersionedInput, VersionedOutput]

__all__ = ["IdView", "NameView", "Said", "TenantView", "of_interest", "projections_of"]


class Said(NamedTuple):
    """What an operation says about a name or an id; `None` is what it does not say.

    About a name: put, bump, take, see, present, absent, and never for what no state allows; about
    its tenants: put, at, take, not; about an id: make, change, see, die, alive, missing, never.
    """

    f: str
    ident: int | None = None
    version: int | None = None
    payload: int | None = None


# --- names ------------------------------------------------------------------------------------

Entry = tuple[int | None, int | None, int | None]
Slot = Entry | None


class NameView(Model[Slot, Said, bool]):
    """State: nothing, or (id, version, payload), as far as they are known."""

    def init(self) -> Slot:
        """Nothing is there."""
        return None

    def step(self, state: Slot, input_: Said, output: bool | Unknown, /) -> tuple[bool, Slot]:
        """Unknown operations act where they can."""
        f = input_.f
        if f == "never":
            return False, state
        if f in {"put", "absent"}:
            legal = state is None
        else:
            legal = state is not None and (f == "present" or _fits(state, input_))
        if not legal:
            return output is UNKNOWN, state
        if f == "put":
            return True, (input_.ident, input_.version, input_.payload)
        if f == "take":
            return True, None
        if f == "bump" and state is not None:
            following = None if state[1] is None else state[1] + 1
            version = following if input_.version is None else input_.version
            return True, (state[0], version, input_.payload)
        return True, state

    def read_only(self, input_: Said, output: bool | Unknown, /) -> bool:
        """What only looks."""
        del output
        return input_.f in {"see", "present", "absent", "never"}

    def blurred(
        self, core: Sequence[Operation[Said, bool]], others: Sequence[Operation[Said, bool]], /
    ) -> Sequence[Operation[Said, bool]]:
        """Without what only comes and goes while the core looks away; see `of_interest`."""
        return of_interest(
            [operation.input.ident for operation in core],
            [operation for operation in others if not self.read_only(operation.input, True)],
            id_of=lambda operation: operation.input.ident,
            any_will_do=any(operation.input.f == "present" for operation in core),
        )

    def describe_state(self, state: Slot, /) -> str:
        """For people."""
        if state is None:
            return "nothing has the name"
        ident, version, payload = ("unknown" if part is None else part for part in state)
        return f"id {ident} version {version} payload {payload} has the name"


I = TypeVar("I")  # noqa: E741 - an id
T = TypeVar("T")


def of_interest(
    wanted: Iterable[I | None],
    others: Sequence[T],
    *,
    id_of: Callable[[T], I | None],
    any_will_do: bool,
) -> Sequence[T]:
    """The `others` that can help operations about the ids `wanted` to a legal order.

    While a table of another id has the name, none of those operations is legal, unless it asks
    for any table at all. So the stay of such a table helps nobody: leave it out, and what was legal
    before and after it still is. What does not say its id may be about one that is wanted.
    """
    if any_will_do:
        return others
    ids = set(wanted)
    return [other for other in others if id_of(other) is None or id_of(other) in ids]


def _fits(state: Entry, said: Said) -> bool:
    before = said.version
    if said.f == "bump":
        before = None if said.version is None else said.version - 1
    pairs = [(state[0], said.ident), (state[1], before)]
    if said.f == "see":
        pairs.append((state[2], said.payload))
    return all(known is None or shown is None or known == shown for known, shown in pairs)


def _about_names(operation: VersionedOperation, names: Sequence[str]) -> Iterator[tuple[str, Said]]:
    given, answer = operation.input, operation.output
    if operation.is_unknown or answer is UNKNOWN:
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

Tenancy = tuple[int | None, frozenset[int]]


class TenantView(Model[Tenancy, Said, bool]):
    """State: who has the name, of the ids that have it only once, and who had it already."""

    def init(self) -> Tenancy:
        """None of them."""
        return None, frozenset()

    def step(self, state: Tenancy, input_: Said, output: bool | Unknown, /) -> tuple[bool, Tenancy]:
        """Tenants come and go by themselves, each once."""
        del output
        now, over = state
        f, ident = input_.f, input_.ident
        if f == "not":
            return True, (None, over if now is None else over | {now})
        if ident in over or (f == "put" and ident == now):
            return False, state
        if now is not None and now != ident:
            over |= {now}
        assert ident is not None, f"{f} says an id"
        return True, ((None, over | {ident}) if f == "take" else (ident, over))

    def blurred(
        self, core: Sequence[Operation[Said, bool]], others: Sequence[Operation[Said, bool]], /
    ) -> Sequence[Operation[Said, bool]]:
        """None: all they can do is what may happen by itself."""
        del core, others
        return ()

    def describe_state(self, state: Tenancy, /) -> str:
        """For people."""
        return f"{'another id or none' if state[0] is None else f'id {state[0]}'} has the name"


def _tenants(name: str, said: Sequence[Operation[Said, bool]]) -> Projection[Tenancy, Said, bool]:
    """What is said about one name, in terms of the ids that can have come to it only once."""
    arrivals = Counter(o.input.ident for o in said if o.input.f == "put")
    any_id = arrivals.pop(None, 0) > 0
    found = []
    for operation in said:
        f, ident = operation.input.f, operation.input.ident
        if operation.is_unknown or f in {"present", "never"}:
            continue
        once = ident is not None and not any_id and arrivals[ident] == 1
        given = Said(f if f in {"put", "take"} else "at", ident) if once else Said("not")
        found.append(replace(operation, input=given))
    return Projection(f"tenants of name {name!r}", TenantView(), tuple(found))


# --- ids --------------------------------------------------------------------------------------

Life = tuple[int, int | None]
UNBORN: Final[Life] = (0, None)
GONE: Final[Life] = (-1, None)


class IdView(Model[Life, Said, bool]):
    """State: (version, payload); version 0 is not created yet, -1 deleted."""

    def init(self) -> Life:
        """Not created yet."""
        return UNBORN

    def step(self, state: Life, input_: Said, output: bool | Unknown, /) -> tuple[bool, Life]:
        """Time only goes on."""
        del output
        f, version, payload = input_.f, input_.version, input_.payload
        if f == "never":
            return False, state
        if f == "missing":
            return True, UNBORN if state == UNBORN else GONE
        if state == GONE:
            return False, state
        if f == "die":
            return True, GONE
        if f == "alive":
            return True, (1, None) if state == UNBORN else state
        assert version is not None, f"{f} says a version"
        now, known = state
        if f == "see" and version == now:
            return known is None or known == payload, (now, payload)
        return now < version, (version, payload)

    def blurred(
        self, core: Sequence[Operation[Said, bool]], others: Sequence[Operation[Said, bool]], /
    ) -> Sequence[Operation[Said, bool]]:
        """None: all they can do is what may happen by itself."""
        del core, others
        return ()

    def describe_state(self, state: Life, /) -> str:
        """For people."""
        if state == UNBORN:
            return "it is not there yet"
        if state == GONE:
            return "it was dropped"
        shown = "" if state[1] is None else f" payload {state[1]}"
        return f"it is at version {state[0]}{shown}"


def _about_id(operation: VersionedOperation) -> tuple[int, Said] | None:
    given, answer = operation.input, operation.output
    if operation.is_unknown or answer is UNKNOWN or answer.result != "ok" or given.op == "list":
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
            sayings.setdefault(about[0], []).append(_saying(operation, about[1]))
        elif operation.input.op == "list" and operation.output is not UNKNOWN:
            if operation.is_unknown:
                continue
            shown = frozenset(ident for _, ident in operation.output.listing)
            lists.append((operation, shown))
            for ident in shown:
                sayings.setdefault(ident, []).append(_saying(operation, Said("alive")))
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
                said.append(_saying(listing, Said("missing")))
        yield Projection(f"id {ident}", IdView(), tuple(said))


def _end(operation: Operation[Any, Any]) -> float:
    assert operation.return_time is not None, "only what returned says anything about an id"
    return operation.return_time


# --- both -------------------------------------------------------------------------------------


def _saying(operation: VersionedOperation, said: Said) -> Operation[Said, bool]:
    return Operation(
        operation.client_id,
        said,
        operation.call,
        UNKNOWN if operation.is_unknown else True,
        operation.return_time,
        operation.id,
    )


def projections_of(operations: Sequence[VersionedOperation]) -> list[Projection[Any, Any, Any]]:
    """Every name in two views, then every id that an answer shows."""
    names = sorted(
        {o.input.name for o in operations if o.input.op != "list"}
        | {o.input.name2 for o in operations if o.input.op == "ren"}
        | {
            name
            for o in operations
            if o.output is not UNKNOWN and not o.is_unknown
            for name, _ in o.output.listing
        }
    )
    found: dict[str, list[Operation[Said, bool]]] = {name: [] for name in names}
    for operation in operations:
        for name, said in _about_names(operation, names):
            found[name].append(_saying(operation, said))
    views: list[Projection[Any, Any, Any]] = [
        Projection(f"name {name!r}", NameView(), tuple(found[name])) for name in names
    ]
    tenants = (_tenants(name, found[name]) for name in names)
    return [*views, *tenants, *_id_views(operations)]
