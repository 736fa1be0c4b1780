"""Three small models, each of a single name or a single table of a catalog.

Their inputs are statements, into which `models.name`, `models.tables` and `catalog.passes`
translate operations.

* `NameView`: the table that has a name, with its version and payload.
* `Tenancy`: a name has one tenant (table) at a time, and each tenant has the name only once,
  without a break.
* `IdView`: a table's versions only grow, each version is made once and has one payload, and a
  deleted table does not come back.

`Tenancy` and `IdView` ignore operations of unknown outcome: changes that no answer reports may
happen at any time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - input, as in `Model`


class Said(NamedTuple):
    """An operation's statement about a name or a table.

    A field is `None` if the answer does not show it, or if it cannot be compared. The statements
    about a name are:

    | f         | legal in the state       | next state                                           |
    |-----------|--------------------------|------------------------------------------------------|
    | put       | nothing                  | table (id, version, payload)                         |
    | bump      | table (id, version - 1)  | table (id, version, payload)                         |
    | take      | table (id, version)      | nothing                                              |
    | see       | table (id, version)      | the same                                             |
    | present   | any table                | the same                                             |
    | absent    | nothing                  | the same                                             |
    | never     | no state                 |                                                      |

    The statements about a table are make, change and see (with a version), die (a delete), alive
    (without a version), missing (a list without the table), and never (legal in no state).
    """

    f: str
    ident: Any = None
    version: int | None = None
    payload: Any = None

    @property
    def may_be_any_table(self) -> bool:
        """Whether the statement says that some table exists, without its id."""
        unnamed = self.ident is None and self.f not in {"absent", "never"}
        return self.f == "present" or unnamed


def saying(operation: Operation[Any, Any], said: I) -> Operation[I, bool]:
    """Make an operation whose input is the statement of `operation`, and whose output is `True`."""
    return Operation(
        operation.client_id,
        said,
        operation.call,
        UNKNOWN if operation.is_unknown else True,
        operation.return_time,
        operation.id,
    )


# --- names ------------------------------------------------------------------------------------

Entry = tuple[Any, int | None, Any]
Slot = Entry | None


class NameView(Model[Slot, Said, bool]):
    """The model of one name. Its state is `None` (no table), or (id, version, payload) with `None`
    for unknown parts.
    """

    def init(self) -> Slot:
        return None

    def step(self, state: Slot, input_: Said, output: bool | Unknown, /) -> tuple[bool, Slot]:
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
        del output
        return input_.f in {"see", "present", "absent", "never"}

    def blurred(
        self, core: Sequence[Operation[Said, bool]], others: Sequence[Operation[Said, bool]], /
    ) -> Sequence[Operation[Said, bool]]:
        """Leave out the changes of tables that the core is not about.

        The core is a set of operations that contradict each other. While another table has the
        name, no operation of the core is legal, except statements that hold for any table. So the
        changes of the other table do not matter.
        """
        changes = [other for other in others if not self.read_only(other.input, True)]
        if any(operation.input.may_be_any_table for operation in core):
            return changes
        ids = {None, *(operation.input.ident for operation in core)}
        return [other for other in changes if other.input.ident in ids]

    def describe_state(self, state: Slot, /) -> str:
        if state is None:
            return "nothing has the name"
        ident, version, payload = ("unknown" if part is None else part for part in state)
        return f"id {ident} version {version} payload {payload} has the name"


def _fits(state: Entry, said: Said) -> bool:
    before = said.version
    if said.f == "bump":
        before = None if said.version is None else said.version - 1
    pairs = [(state[0], said.ident), (state[1], before)]
    if said.f == "see":
        pairs.append((state[2], said.payload))
    return all(a is None or b is None or a == b for a, b in pairs)


class _FreeView(Model[S, I, bool]):
    """The base class of models that change to any state that the next operation requires."""

    def blurred(
        self, core: Sequence[Operation[I, bool]], others: Sequence[Operation[I, bool]], /
    ) -> Sequence[Operation[I, bool]]:
        """Leave out all operations of unknown outcome. The model allows their effects anyway."""
        del core, others
        return ()


# --- tenants of names -------------------------------------------------------------------------


class TenancyInput(NamedTuple):
    """A statement about the tenant of a name: the table, or version of a table, that has the name.

    If `f` is "at", "enter" or "leave", the statement contains the tenant. If `f` is "alter", it
    contains the tenants before and after the operation. "absent" means that the name has no tenant.
    """

    f: str
    tenant: Any = None
    following: Any = None


TenancyState = tuple[Hashable | None, frozenset[Hashable | None]]


class Tenancy(_FreeView[TenancyState, TenancyInput]):
    """The model of a name's tenants. Its state is the current tenant and the past tenants.

    A past tenant never has the name again.
    """

    def init(self) -> TenancyState:
        return None, frozenset((None,))

    def step(
        self, state: TenancyState, input_: TenancyInput, output: bool | Unknown, /
    ) -> tuple[bool, TenancyState]:
        """Return whether the statement is legal, and the next state. No past tenant comes back."""
        del output
        now, over = state
        f, tenant, following = input_
        if f == "at" and tenant == now:
            return True, state
        later = over | {now}
        if f == "absent":
            return True, (None, later)
        if tenant in (later if f == "enter" else over):
            return False, state
        if f == "alter":
            return following not in later, (following, later | {tenant})
        if f == "leave":
            return True, (None, later | {tenant})
        return True, (tenant, later)

    def describe_state(self, state: TenancyState, /) -> str:
        return f"{'another id or none' if state[0] is None else f'id {state[0]}'} has the name"


# --- tables -----------------------------------------------------------------------------------

Life = tuple[int, Any]
GONE: Final[Life] = (-2, None)


class IdView(_FreeView[Life, Said]):
    """The model of one table. Its state is (version, payload), or `GONE` after a delete.

    Versions may be skipped, since the history may lack the operations that made them.
    """

    def __init__(self, *, first: int = 1) -> None:
        """Create the model of a table whose first version is `first`, 0 or 1."""
        self._unborn: Life = (first - 1, None)

    def init(self) -> Life:
        return self._unborn

    def step(self, state: Life, input_: Said, output: bool | Unknown, /) -> tuple[bool, Life]:
        del output
        f, version, payload = input_.f, input_.version, input_.payload
        if f == "never":
            return False, state
        if f == "missing":
            return True, state if state == self._unborn else GONE
        if state == GONE:
            return False, state
        now, payload_now = state
        if f == "die":
            return version is None or now <= version, GONE
        if f == "alive":
            return True, (now + 1, None) if state == self._unborn else state
        assert version is not None, f"a statement {f} needs a version"
        if f == "see" and version == now:
            return payload_now is None or payload_now == payload, (now, payload)
        return now < version, (version, payload)

    def describe_state(self, state: Life, /) -> str:
        if state == self._unborn:
            return "it is not there yet"
        if state == GONE:
            return "it was dropped"
        payload = "" if state[1] is None else f" payload {state[1]}"
        return f"it is at version {state[0]}{payload}"
