"""Plans the faults of a case: combines its nemeses' plans, checks them, and makes ids unique."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case, Fault, stream
from harness.errors import TargetError, UsageError, shown
from harness.ops import NS_PER_S
from harness.plugins import Nemesis
from harness.support.interrupts import blaming

FAULTS_MAX: Final = 100_000
PLAN_TRIES: Final = 20
"""How often to plan a nemesis again until one of its faults begins while no other fault is
active."""


def with_faults(case: Case, nemeses: Mapping[str, Nemesis]) -> Case:
    """Check the faults that a case has, or else fill in the faults that its nemeses plan."""
    if case.faults is not None:
        _check_faults(case.faults)
        for fault in case.faults:
            check_fault_args(fault, nemeses[fault.nemesis])
        return case
    plans: list[Sequence[Fault]] = []
    for name, nemesis in nemeses.items():
        planned = _plan_beside(plans, case, name, nemesis)
        others = {fault.id for plan in plans for fault in plan}
        plans.append([_with_own_id(fault, others) for fault in planned])
    faults = [fault for planned in plans for fault in planned]
    faults.sort(key=lambda fault: (fault.at_ns, fault.id))
    return msgspec.structs.replace(case, faults=tuple(faults))


def check_fault_args(fault: Fault, nemesis: Nemesis) -> None:
    """Raise `UsageError` for arguments that would make the nemesis fail during a run."""
    try:
        with blaming(f"the nemesis {fault.nemesis!r}: check_args()"):
            nemesis.check_args(fault.args)
    except UsageError as error:
        raise UsageError(f"the fault {fault.id!r}: {error}") from error


def _plan_beside(
    others: Sequence[Sequence[Fault]], case: Case, name: str, nemesis: Nemesis
) -> Sequence[Fault]:
    """Plan a nemesis so that each nemesis has a fault that begins while the others are inactive.

    Otherwise a nemesis might never have an effect: after a kill of all nodes, there is no node left
    to kill. If `PLAN_TRIES` tries fail, the first plan is used.
    """
    first: Sequence[Fault] = ()
    for number in range(PLAN_TRIES):
        with blaming(f"the nemesis {name!r}: plan()"):
            planned = list(
                nemesis.plan(
                    stream(case.seed, f"nemesis/{name}" + (f"/{number}" if number else "")),
                    horizon_ns=int(case.time_limit_s * NS_PER_S),
                    interval_ns=int(case.interval_s * NS_PER_S),
                    duration_ns=int(case.duration_s * NS_PER_S),
                )
            )
        planned = _planned_faults(name, nemesis, planned)
        plans = [*others, planned]
        if all(_begins_in_calm(plan, plans) for plan in plans):
            return planned
        first = first or planned
    return first


def _planned_faults(name: str, nemesis: Nemesis, planned: Sequence[object]) -> list[Fault]:
    """Check the faults that a nemesis planned, and give them the nemesis's name in the case.

    Raises `TargetError` for a plan that cannot be carried out.
    """
    what = f"the nemesis {name!r}: plan()"
    faults: list[Fault] = []
    for fault in planned:
        if not isinstance(fault, Fault) or not isinstance(fault.id, str):
            raise TargetError(f"{what} returned {shown(fault)}, which is not a Fault with an id")
        if fault.nemesis not in (name, nemesis.name):
            raise TargetError(f"{what} planned a fault of another nemesis, {shown(fault.nemesis)}")
        if not all(type(time_ns) is int for time_ns in (fault.at_ns, fault.duration_ns)):
            raise TargetError(f"{what} returned {shown(fault)}; its times must be whole numbers")
        try:
            msgspec.json.encode(fault.args)
        except Exception as error:
            raise TargetError(
                f"{what} returned args={shown(fault.args)}, which is not plain JSON: {error}"
            ) from error
        faults.append(msgspec.structs.replace(fault, nemesis=name))
    try:
        _check_faults(faults)
    except UsageError as error:
        raise TargetError(f"{what} returned an impossible schedule: {error}") from error
    return faults


def _with_own_id(fault: Fault, others: Collection[str]) -> Fault:
    """Return the fault. If its id is in `others`, the nemesis's name precedes the id."""
    if fault.id not in others:
        return fault
    return msgspec.structs.replace(fault, id=f"{fault.nemesis}/{fault.id}")


def _begins_in_calm(plan: Sequence[Fault], plans: Sequence[Sequence[Fault]]) -> bool:
    """Whether `plan` is empty, or a fault of it begins while no other plan's fault is active."""
    spans = [
        (fault.at_ns, fault.at_ns + fault.duration_ns)
        for other in plans
        if other is not plan
        for fault in other
    ]
    return not plan or any(
        all(not begin <= fault.at_ns < end for begin, end in spans) for fault in plan
    )


def _check_faults(faults: Sequence[Fault]) -> None:
    """Raise `UsageError` for too many faults, equal ids, and times out of range."""
    if len(faults) > FAULTS_MAX:
        raise UsageError(f"the case plans {len(faults)} faults; the limit is {FAULTS_MAX}")
    seen: dict[str, Fault] = {}
    for fault in faults:
        if seen.setdefault(fault.id, fault) is not fault:
            raise UsageError(f"two faults of the case have the id {fault.id!r}; rename one")
        for name, value, least in (
            ("at_ns", fault.at_ns, 0),
            ("duration_ns", fault.duration_ns, 1),
        ):
            if not least <= value < 10**9 * NS_PER_S:
                raise UsageError(
                    f"the fault {fault.id!r} has {name} {value}; it must be in {least} .. 10**18-1"
                )


def drawn_by_hand(nemesis: Nemesis, rng: random.Random) -> dict[str, Any]:
    """Return the arguments that a nemesis draws for one fault outside of a plan."""
    planned = nemesis.plan(rng, horizon_ns=NS_PER_S, interval_ns=NS_PER_S, duration_ns=NS_PER_S)
    return dict(planned[-1].args) if planned else {}
