"""Changes membership under load: adds and removes masters, and moves replicas.

There is one change at a time, as from an administrator, who lists the members after each change.
The workload adds spare masters, and removes members while more than `--least-masters` are left. It
never removes the known leader, since masters refuse that.

Three workloads use this module: `members` changes masters during the operations of `ddl`, `move`
moves replicas during operations on rows, and `mixed` does everything at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from harness.case import Case
from harness.errors import UsageError
from harness.generator import Context, Draft, Emit, Generator, Pending, Step
from harness.ops import Op, OpType, Process
from harness.plugins import Option
from harness.vocabularies.members import (
    BY_NAME,
    AddMaster,
    ListMasters,
    MembersCall,
    MoveReplica,
    RemoveMaster,
)

LEAST_MASTERS: Final = Option("least-masters", 3, "keep at least this many masters", (1, 7))


def masters_of(case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the initial masters of a deployment, and its spare masters. Spare masters may join."""
    first = int(case.target_options.get("masters", 1))
    spares = int(case.target_options.get("spare_masters", 0))
    names = [f"m{number}" for number in range(1, first + spares + 1)]
    return tuple(names[:first]), tuple(names[first:])


@dataclasses.dataclass(frozen=True, slots=True)
class MembersOps:
    """An endless generator of membership changes, one at a time.

    `inside` are the members among `masters` according to the last list. `busy` is the process of
    the change in progress. In `moves` percent of the changes, a replica of one of `tables` moves.
    """

    masters: tuple[str, ...]
    inside: tuple[str, ...]
    least: int
    tables: tuple[str, ...]
    moves: int
    leader: str = ""
    unsure: bool = True
    busy: Process | None = None

    def op(self, ctx: Context) -> Step:
        process = ctx.free_process()
        call = self._call(ctx) if process is not None and self.busy is None else None
        if call is None:
            return Pending(self)
        draft = Draft(call.f, call.asked(), process)
        return Emit(draft, dataclasses.replace(self, busy=process))

    def _call(self, ctx: Context) -> MembersCall | None:
        rng = ctx.random
        if self.unsure:
            return ListMasters()
        outside = [name for name in self.masters if name not in self.inside]
        many = len(self.inside) > self.least
        may_go = [name for name in self.inside if many and name != self.leader]
        if self.tables and (rng.randrange(100) < self.moves or not (outside or may_go)):
            return MoveReplica(self.tables[rng.randrange(len(self.tables))])
        if outside and (not may_go or rng.randrange(2)):
            return AddMaster(outside[rng.randrange(len(outside))])
        if may_go:
            return RemoveMaster(may_go[rng.randrange(len(may_go))])
        return None

    def update(self, ctx: Context, event: Op) -> Generator:
        del ctx
        if event.process != self.busy or event.f not in BY_NAME or event.type is OpType.INVOKE:
            return self
        over = dataclasses.replace(self, busy=None)
        if event.type is not OpType.OK:
            return dataclasses.replace(over, unsure=event.f not in (ListMasters.f, MoveReplica.f))
        value = event.value if isinstance(event.value, Mapping) else {}
        if event.f == ListMasters.f:
            masters = list(value.get("masters", ()))
            inside = tuple(sorted(str(entry[0]) for entry in masters))
            leader = next((str(entry[0]) for entry in masters if entry[1] == "LEADER"), "")
            return dataclasses.replace(over, inside=inside, leader=leader, unsure=False)
        # The answer to a change of masters does not name the leader, so list the masters next.
        return dataclasses.replace(over, unsure=event.f != MoveReplica.f)


def members_ops(case: Case, tables: tuple[str, ...], options: Mapping[str, Any]) -> MembersOps:
    """Return the generator for a case. Raises `UsageError` if no change could ever succeed."""
    first, spares = masters_of(case)
    least, moves = int(options["least_masters"]), int(options["moved"])
    if int(options["members"]):
        _refuse_idle(case, spares, least, bool(tables and moves), int(options["replicas"]))
    return MembersOps(
        masters=(*first, *spares), inside=first, least=least, tables=tables, moves=moves
    )


def members_need(
    options: Mapping[str, Any], target_options: Mapping[str, Any], *, moves: bool
) -> dict[str, Any]:
    """Return the target options to change so that membership changes are possible."""
    replicas = int(options["replicas"])
    if not int(options["members"]):
        return {}
    if moves:
        return {"tservers": replicas + 1} if target_options["tservers"] <= replicas else {}
    short = target_options["masters"] <= int(options["least_masters"])
    return {"spare_masters": 1} if short and not target_options.get("spare_masters", 1) else {}


def _refuse_idle(
    case: Case, spares: tuple[str, ...], least: int, moves: bool, replicas: int
) -> None:
    """Raise `UsageError` for a case in which no membership change could ever succeed."""
    options = case.target_options
    tservers, masters = options.get("tservers"), options.get("masters")
    if moves and isinstance(tservers, int) and tservers <= replicas:
        raise UsageError(
            f"--tservers is {tservers} and tables have {replicas} replicas, so no server is free "
            f"for a replica that moves; give --tservers {replicas + 1}, or --moved 0"
        )
    if not moves and not spares and isinstance(masters, int) and masters <= least:
        raise UsageError(
            f"--masters is {masters}, with --least-masters {least} and without --spare-masters: "
            "no master can be added or removed; give --spare-masters 1, or a lower --least-masters"
        )
