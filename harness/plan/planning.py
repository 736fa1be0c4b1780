"""From options to a complete, checked case.

Invalid options are refused here, before the first node starts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case, Fault
from harness.cluster import NodeSpec
from harness.errors import UsageError, choices_near, shown
from harness.faults.nemesis_from_text import load_nemesis
from harness.faults.parser import are_words
from harness.nodes.deployment import check_nodes, refuse_in_simulation
from harness.ops import NS_PER_S
from harness.permits import Permit
from harness.plan.fault_plans import check_faults, plan_beside, with_own_id
from harness.plan.needs import fitting_options, no_such_bug, no_vocabulary
from harness.plan.random_case import draw_case, expand_any
from harness.plan.reach import refuse_clients, refuse_nodes, refuse_unable
from harness.plugins import Checker, Environment, Nemesis, Target, TargetSettings, Workload
from harness.plugins.options import with_defaults
from harness.registry import load_plugin
from harness.support.interrupts import blaming
from harness.verdict.judge import checkers_of

CONCURRENCY_MAX: Final = 10_000


class TargetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a case that defines the system and the nemeses."""

    case: Case
    target: Target
    settings: TargetSettings
    nodes: tuple[NodeSpec, ...]
    nemeses: dict[str, Nemesis]


class Plan(TargetPlan, frozen=True, kw_only=True):
    """A case together with the plug-ins that it needs."""

    workload: Workload
    checkers: tuple[Checker, ...]


def plan_target(case: Case, environment: Environment) -> TargetPlan:
    """The system of a case, without a workload and without planned faults.

    Nodes are prepared for the nemeses of the case, which users inject by hand. Raises `UsageError`.
    """
    target: Target = load_plugin("targets", case.target)
    _check_behaviour(case, target)
    nemeses = {name: load_nemesis(name) for name in _nemesis_names(case)}
    refuse_unable(nemeses, environment.name, environment.capabilities)
    case = _with_target_options(case, target)
    settings, nodes = _declared(case, target, environment)
    for nemesis in nemeses.values():
        refuse_nodes(nemesis, {node.name: node for node in nodes}, target, environment)
    return TargetPlan(case=case, target=target, settings=settings, nodes=nodes, nemeses=nemeses)


def plan_case(case: Case, environment: Environment | None) -> Plan:
    """Load the plug-ins, fill in defaults and the fault schedule, and refuse impossible options.

    With `environment` its capabilities are checked too. Raises `UsageError`.
    """
    target: Target = load_plugin("targets", case.target)
    workload: Workload = load_plugin("workloads", case.workload)
    if workload.vocabulary not in target.vocabularies:
        raise no_vocabulary(target, workload)
    _check_behaviour(case, target)
    case = expand_any(case, environment)
    if case.concurrency > CONCURRENCY_MAX:
        raise UsageError(
            f"--concurrency is {case.concurrency}; the limit is {CONCURRENCY_MAX} processes"
        )
    nemeses = {name: load_nemesis(name) for name in _nemesis_names(case)}
    if environment is not None:
        refuse_unable(nemeses, environment.name, environment.capabilities)
        environment.check_knobs(case.knobs)
    case = draw_case(case, environment)
    nemeses = {name: nemeses[name] for name in _nemesis_names(case)}
    case = msgspec.structs.replace(
        _with_target_options(case, target),
        workload_options=with_defaults(
            "workload", case.workload, workload.options, case.workload_options
        ),
    )
    case = _with_faults(case, nemeses)
    checkers = dict.fromkeys([*target.checkers, *case.checkers])
    case = msgspec.structs.replace(case, checkers=tuple(checkers))
    settings, nodes = _declared(case, target, environment)
    _refuse_lacking(case, workload.vocabulary, permits_of_target(target, settings))
    for name, nemesis in nemeses.items():
        try:
            refuse_nodes(nemesis, {node.name: node for node in nodes}, target, environment)
        except UsageError as error:
            raise _with_fix(error, name, nemesis, target, environment) from error
        refuse_clients(nemesis, case.concurrency)
    with blaming(f"the workload {case.workload!r}: generator()"):
        workload.generator(case)  # refuse bad workload options now, not in the middle of a run
    return Plan(
        case=case,
        target=target,
        settings=settings,
        nodes=nodes,
        workload=workload,
        nemeses=nemeses,
        checkers=checkers_of(case),
    )


def _with_fix(
    error: UsageError, name: str, nemesis: Nemesis, target: Target, environment: Environment | None
) -> UsageError:
    """The error for a nemesis that does not suit a target, with the options that it needs."""

    def fits(other: Target, options: Mapping[str, Any]) -> None:
        case = Case(
            seed=0, profile=other.profiles[0], target=other.name, target_options=dict(options)
        )
        _, nodes = _declared(_with_target_options(case, other), other, environment)
        refuse_nodes(nemesis, {node.name: node for node in nodes}, other, environment)

    fixes = [fix for fix in fitting_options(target, fits) if fix]
    if are_words(name) or not fixes:
        return error
    return UsageError(
        f"the nemesis {name!r} does not fit the target {target.name!r} as it is set up; add "
        f"{' or '.join(fixes)} ({error})"
    )


def _check_behaviour(case: Case, target: Target) -> None:
    """Raise `UsageError` for a profile or a bug that the target lacks."""
    if case.profile not in target.profiles:
        raise UsageError(
            f"the target {case.target!r} has no profile {case.profile!r}; "
            f"{choices_near(case.profile, target.profiles)}"
        )
    for bug in case.bugs:
        if bug not in target.bugs:
            raise no_such_bug(bug, target)


def permits_of_target(target: Target, settings: TargetSettings) -> Sequence[Permit]:
    """The permits of the target's profile with these settings."""
    with blaming(f"the target {target.name!r}: permits()"):
        permits = list(target.permits(settings))
        for permit in permits:
            if not isinstance(permit, Permit):
                raise TypeError(f"{shown(permit)} is not a Permit")
    return permits


def _refuse_lacking(case: Case, vocabulary: str, permits: Iterable[Permit]) -> None:
    """Raise `UsageError` for a workload that the profile lacks."""
    for permit in permits:
        if vocabulary in permit.lacks:
            raise UsageError(
                f"the profile {case.profile!r} of the target {case.target!r} has nothing of the "
                f"workload {case.workload!r}: {permit.why}; use another profile or workload"
            )


def _with_target_options(case: Case, target: Target) -> Case:
    options = with_defaults("target", case.target, target.options, case.target_options)
    return msgspec.structs.replace(case, target_options=options)


def _declared(
    case: Case, target: Target, environment: Environment | None
) -> tuple[TargetSettings, tuple[NodeSpec, ...]]:
    settings = TargetSettings(
        profile=case.profile,
        bugs=case.bugs,
        options=case.target_options,
        environment=None if environment is None else environment.name,
    )
    with blaming(f"the target {case.target!r}: nodes()"):
        nodes = list(target.nodes(settings))
        for node in nodes:
            if not isinstance(node, NodeSpec):
                raise TypeError(f"{shown(node)} is not a NodeSpec")
    return settings, _checked_nodes(nodes, environment)


def check_fault_args(fault: Fault, nemesis: Nemesis) -> None:
    """Raise `UsageError` for arguments that would make the nemesis fail during a run."""
    try:
        with blaming(f"the nemesis {fault.nemesis!r}: check_args()"):
            nemesis.check_args(fault.args)
    except UsageError as error:
        raise UsageError(f"the fault {fault.id!r}: {error}") from error


def _nemesis_names(case: Case) -> list[str]:
    """Every nemesis that the case names, in order, without duplicates."""
    planned = [fault.nemesis for fault in case.faults or ()]
    return list(dict.fromkeys([*case.nemeses, *planned]))


def drawn_by_hand(nemesis: Nemesis, rng: random.Random) -> dict[str, Any]:
    """The arguments that a nemesis draws for one fault outside of a plan."""
    planned = nemesis.plan(rng, horizon_ns=NS_PER_S, interval_ns=NS_PER_S, duration_ns=NS_PER_S)
    return dict(planned[0].args) if planned else {}


def _with_faults(case: Case, nemeses: Mapping[str, Nemesis]) -> Case:
    if case.faults is not None:
        check_faults(case.faults)
        for fault in case.faults:
            check_fault_args(fault, nemeses[fault.nemesis])
        return case
    plans: list[Sequence[Fault]] = []
    for name, nemesis in nemeses.items():
        planned = plan_beside(plans, case, name, nemesis)
        others = {fault.id for plan in plans for fault in plan}
        plans.append([with_own_id(fault, others) for fault in planned])
    faults = [fault for planned in plans for fault in planned]
    faults.sort(key=lambda fault: (fault.at_ns, fault.id))
    return msgspec.structs.replace(case, faults=tuple(faults))


def _checked_nodes(
    nodes: Sequence[NodeSpec], environment: Environment | None
) -> tuple[NodeSpec, ...]:
    names = [node.name for node in nodes]
    if len(names) != len(dict.fromkeys(names)) or not names:
        raise UsageError(
            f"the target declares the nodes {names}; declare at least one node; "
            "names must be unique"
        )
    check_nodes(nodes)
    if environment is not None and environment.name == "sim":
        refuse_in_simulation(nodes)
    return tuple(nodes)
