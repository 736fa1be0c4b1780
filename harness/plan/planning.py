"""Turns options into a complete, checked case.

Invalid options are refused here, before the first node starts. A workload may require options of
the target (`Workload.needs`), which the user can override. A target may list options that add roles
or spare nodes (`Target.larger`); error messages suggest these options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.cluster import NodeSpec
from harness.errors import HarnessError, UsageError, choices_near, shown
from harness.faults.nemesis_from_text import load_nemesis
from harness.faults.parser import are_words
from harness.nodes.deployment import check_nodes, refuse_in_simulation
from harness.permits import Permit
from harness.plan.configured import load_target
from harness.plan.fault_plans import with_faults
from harness.plan.random_case import draw_case, expand_any
from harness.plan.reach import refuse_clients, refuse_nodes, refuse_unable
from harness.plugins import Checker, Environment, Nemesis, Target, TargetSettings, Workload
from harness.plugins.options import with_defaults
from harness.registry import load_plugin, load_working
from harness.support.interrupts import blaming
from harness.verdict.judge import checkers_of

CONCURRENCY_MAX: Final = 10_000
_Fits = Callable[[Target, Mapping[str, Any]], None]
"""A function that raises `HarnessError` if a target with these options does not fit."""


class TargetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A planned system: its case, target, settings, nodes, and the nemeses that may affect it."""

    case: Case
    target: Target
    settings: TargetSettings
    nodes: tuple[NodeSpec, ...]
    nemeses: dict[str, Nemesis]


class Plan(TargetPlan, frozen=True, kw_only=True):
    """A case, and the plug-ins that it needs."""

    workload: Workload
    checkers: tuple[Checker, ...]


def needed_options(
    workload: Workload, target: Target, given: Mapping[str, Any], given_target: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the target options that a workload needs and that the user did not set."""
    names = {option.key for option in target.options}
    options = with_defaults("workload", workload.name, workload.options, given)
    of_target = with_defaults("target", target.name, target.options, given_target)
    needed = workload.needs(options, of_target)
    return {
        name: value for name, value in needed.items() if name in names and name not in given_target
    }


def flags_of(options: Mapping[str, Any]) -> str:
    """Return options in the syntax of the command line."""
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in options.items()
    )


def plan_target(case: Case, environment: Environment) -> TargetPlan:
    """Plan the system of a case, without a workload and without planned faults.

    Nodes are prepared for the nemeses of the case, which users inject by hand. Raises `UsageError`.
    """
    target = load_target(case.target, case.target_options)
    _check_behaviour(case, target)
    nemeses = {name: load_nemesis(name).for_target(target) for name in _nemesis_names(case)}
    refuse_unable(nemeses, environment.name, environment.capabilities)
    case = _with_target_options(case, target)
    settings, nodes = _declared(case, target, environment)
    for nemesis in nemeses.values():
        refuse_nodes(nemesis, {node.name: node for node in nodes}, target, environment)
    return TargetPlan(case=case, target=target, settings=settings, nodes=nodes, nemeses=nemeses)


def plan_case(case: Case, environment: Environment | None) -> Plan:
    """Load the plug-ins, fill in defaults and the fault schedule, and refuse impossible options.

    With `environment`, its capabilities are checked, too. Raises `UsageError`.
    """
    target = load_target(case.target, case.target_options)
    workload: Workload = load_plugin("workloads", case.workload)
    if workload.vocabulary not in target.vocabularies:
        raise _no_vocabulary(target, workload)
    _check_behaviour(case, target)
    case = expand_any(case, environment)
    if case.concurrency > CONCURRENCY_MAX:
        raise UsageError(
            f"--concurrency is {case.concurrency}; the limit is {CONCURRENCY_MAX} processes"
        )
    nemeses = {name: load_nemesis(name).for_target(target) for name in _nemesis_names(case)}
    if environment is not None:
        refuse_unable(nemeses, environment.name, environment.capabilities)
        environment.check_knobs(case.knobs)
    case = draw_case(case, environment)
    workload = load_plugin("workloads", case.workload)
    nemeses = {name: nemeses[name] for name in _nemesis_names(case)}
    case = msgspec.structs.replace(
        _with_target_options(case, target),
        workload_options=with_defaults(
            "workload", case.workload, workload.options, case.workload_options
        ),
    )
    case = with_faults(case, nemeses)
    checkers = dict.fromkeys([*target.checkers, *case.checkers])
    case = msgspec.structs.replace(case, checkers=tuple(checkers))
    settings, nodes = _declared(case, target, environment, workload.vocabulary)
    _refuse_lacking(case, workload.vocabulary, permits_of_target(target, settings))
    for name, nemesis in nemeses.items():
        try:
            refuse_nodes(nemesis, {node.name: node for node in nodes}, target, environment)
        except UsageError as error:
            raise _with_fix(error, name, nemesis, target, environment) from error
        refuse_clients(nemesis, case.concurrency)
    with blaming(f"the workload {case.workload!r}: generator()"):
        # refuses bad workload options now, and not in the middle of a run
        workload.generator(case)
    return Plan(
        case=case,
        target=target,
        settings=settings,
        nodes=nodes,
        workload=workload,
        nemeses=nemeses,
        checkers=checkers_of(case),
    )


def _no_vocabulary(target: Target, workload: Workload) -> UsageError:
    able = [
        name for name, other in load_working("targets") if workload.vocabulary in other.vocabularies
    ]
    if target.name in able:
        runs = {
            name
            for name, other in load_working("workloads")
            if other.vocabulary in target.vocabularies
        }
        fix = f"with its options it can run {', '.join(sorted(runs))}"
    elif able:
        fix = f"add {' or '.join(f'--target {name}' for name in able)}"
    else:
        fix = (
            "no installed target can; name a system that can with --system FILE.toml "
            "(docs/your-system.md), or install a package with such a target"
        )
    return UsageError(
        f"the target {target.name!r} cannot run the workload {workload.name!r}, whose vocabulary "
        f"is {workload.vocabulary!r}; {fix}"
    )


def _with_fix(
    error: UsageError, name: str, nemesis: Nemesis, target: Target, environment: Environment | None
) -> UsageError:
    """Return the error for a nemesis that does not suit a target, and suggest better options."""

    def fits(other: Target, options: Mapping[str, Any]) -> None:
        case = Case(
            seed=0, profile=other.profiles[0], target=other.name, target_options=dict(options)
        )
        _, nodes = _declared(_with_target_options(case, other), other, environment)
        refuse_nodes(nemesis, {node.name: node for node in nodes}, other, environment)

    fixes = [fix for fix in _fitting_options(target, fits) if fix]
    if are_words(name) or not fixes:
        return error
    return UsageError(
        f"the nemesis {name!r} does not fit the target {target.name!r} as it is set up; add "
        f"{' or '.join(fixes)} ({error})"
    )


def _fitting_options(target: Target, fits: _Fits) -> Iterator[str]:
    """Yield options with which `target` fits, or else other targets with fitting options."""
    fitting = list(_that_fit(target, fits))
    if fitting:
        yield from fitting
        return
    for name, other in load_working("targets"):
        if name != target.name:
            for flags in list(_that_fit(other, fits))[:1]:
                yield f"--target {name} {flags}".strip()


def _that_fit(target: Target, fits: _Fits) -> Iterator[str]:
    for options in ({}, *target.larger):
        try:
            fits(target, options)
        except HarnessError:
            continue
        yield flags_of(options)


def _check_behaviour(case: Case, target: Target) -> None:
    """Raise `UsageError` for a profile or a bug that the target does not have."""
    if case.profile not in target.profiles:
        raise UsageError(
            f"the target {case.system!r} has no profile {case.profile!r}; "
            f"{choices_near(case.profile, target.profiles)}"
        )
    for bug in case.bugs:
        if bug not in target.bugs:
            raise _no_such_bug(bug, target)


def _no_such_bug(bug: str, target: Target) -> UsageError:
    start = f"the target {target.name!r} has no bug {bug!r}"
    for name, other in load_working("targets"):
        if bug in other.bugs:
            return UsageError(f"{start}; it is a bug of the target {name}: add --target {name}")
    see = f"harness list bugs --target {target.name}"
    return UsageError(f"{start}; {choices_near(bug, sorted(target.bugs), see=see)}")


def permits_of_target(target: Target, settings: TargetSettings) -> Sequence[Permit]:
    """Return a target's permits: promises that its profile does not make."""
    with blaming(f"the target {target.name!r}: permits()"):
        permits = list(target.permits(settings))
        for permit in permits:
            if not isinstance(permit, Permit):
                raise TypeError(f"{shown(permit)} is not a Permit")
    return permits


def _refuse_lacking(case: Case, vocabulary: str, permits: Iterable[Permit]) -> None:
    """Raise `UsageError` if the case's profile does not support the workload's vocabulary."""
    for permit in permits:
        if vocabulary in permit.lacks:
            raise UsageError(
                f"the profile {case.profile!r} of the target {case.system!r} does not support the "
                f"workload {case.workload!r}: {permit.why}; use another profile or workload"
            )


def _with_target_options(case: Case, target: Target) -> Case:
    options = with_defaults("target", case.target, target.options, case.target_options)
    return msgspec.structs.replace(case, target_options=options)


def _declared(
    case: Case, target: Target, environment: Environment | None, vocabulary: str | None = None
) -> tuple[TargetSettings, tuple[NodeSpec, ...]]:
    settings = TargetSettings(
        profile=case.profile,
        bugs=case.bugs,
        options=case.target_options,
        environment=None if environment is None else environment.name,
        vocabulary=vocabulary,
    )
    with blaming(f"the target {case.system!r}: nodes()"):
        nodes = list(target.nodes(settings))
        for node in nodes:
            if not isinstance(node, NodeSpec):
                raise TypeError(f"{shown(node)} is not a NodeSpec")
    return settings, _checked_nodes(nodes, environment)


def _nemesis_names(case: Case) -> list[str]:
    """Return every nemesis that the case names, in order, without duplicates."""
    planned = [fault.nemesis for fault in case.faults or ()]
    return list(dict.fromkeys([*case.nemeses, *planned]))


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
