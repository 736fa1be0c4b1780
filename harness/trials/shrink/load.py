"""Reduces a case's load and world: time limit, rate, clients, options, nodes and knobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import NS_PER_S
from harness.plan.planning import plan_case
from harness.plugins import Target, Workload
from harness.plugins.options import Option
from harness.registry import load_plugin
from harness.trials.shrink.faults import end_of, with_faults
from harness.trials.shrink.search import Search

NODES_MAX: Final = 16
BEGINNINGS: Final = (16, 8, 4)
"""The parts of a run that are tried in place of the whole run: a 16th, an 8th, and a 4th."""
BEGINNING_S_MIN: Final = 2.0
"""The shortest chaos phase that is tried as the beginning of a run."""
OP_TIMEOUT_DEFAULT_S: Final = Case(seed=0).op_timeout_s


def beginning(case: Case, limit_s: float) -> Case:
    """Return the case with only the first `limit_s` of its chaos phase.

    The run of this case is equal to the first part of the run of `case`.
    """
    kept = [fault for fault in case.faults or () if fault.at_ns < limit_s * NS_PER_S]
    return msgspec.structs.replace(with_faults(case, kept), time_limit_s=limit_s)


def beginnings(case: Case) -> Iterator[Case]:
    """Yield longer and longer beginnings of the case; together they cost less than the run."""
    for part in BEGINNINGS:
        limit_s = case.time_limit_s / part
        if limit_s >= BEGINNING_S_MIN and case.ops is None:
            yield beginning(case, limit_s)


def shrink_time(search: Search) -> None:
    """Shorten the chaos phase. A fault that would outlive it then lasts until the heal."""
    case = search.case
    lasting = max((fault.at_ns for fault in case.faults or ()), default=0) / NS_PER_S
    lasting = max([lasting, *(op.at_ns / NS_PER_S for op in case.ops or ())])
    end_s = end_of(case.faults or ()) / NS_PER_S
    limits = {round(lasting + 0.1, 1), round(end_s + 0.1, 1), round(case.time_limit_s / 2, 1)}
    search.first(
        [
            msgspec.structs.replace(case, time_limit_s=limit)
            for limit in sorted(limits)
            if lasting < limit < case.time_limit_s
        ],
        "a shorter run",
    )


def shrink_rate(search: Search) -> None:
    """Let the generator of the best case make fewer operations per second."""
    rate = search.case.rate
    rates = (round(rate / part, 1) for part in (16, 4, 2))
    search.first(
        [msgspec.structs.replace(search.case, rate=each) for each in rates if each > 0],
        "a lower rate",
    )


def shrink_world(search: Search) -> None:
    """Reset knobs and options to their defaults, and reduce clients and nodes."""
    search.try_one(msgspec.structs.replace(search.case, knobs={}), "default knobs")
    for name in list(search.case.knobs):
        knobs = {key: value for key, value in search.case.knobs.items() if key != name}
        search.try_one(msgspec.structs.replace(search.case, knobs=knobs), "a default knob")
    if search.case.op_timeout_s != OP_TIMEOUT_DEFAULT_S:
        search.try_one(
            msgspec.structs.replace(search.case, op_timeout_s=OP_TIMEOUT_DEFAULT_S),
            "the default timeout of operations",
        )
    workload: Workload = load_plugin("workloads", search.case.workload)
    target: Target = load_plugin("targets", search.case.target)
    _reset_options(search, "workload_options", workload.options)
    _reset_options(search, "target_options", target.options)
    search.first(_with_fewer_nodes(search, target.options), "fewer nodes")
    search.first(_with_fewer_clients(search.case), "fewer clients")


def _with_fewer_clients(case: Case) -> Iterator[Case]:
    """Yield the case with fewer clients, the fewest first."""
    clients = sorted({op.process for op in case.ops or ()})
    counts = {1, case.concurrency // 2} if case.ops is None else {1, 2}
    for count in sorted(counts | {len(clients)}):
        if 0 < count < case.concurrency:
            ops = case.ops and tuple(
                msgspec.structs.replace(op, process=clients.index(op.process) % count)
                for op in case.ops
            )
            yield msgspec.structs.replace(case, concurrency=count, ops=ops)


def _reset_options(search: Search, field: str, options: tuple[Option, ...]) -> None:
    """Reset the options that differ from their defaults, all at once or one by one."""
    search.try_one(msgspec.structs.replace(search.case, **{field: {}}), "default options")
    for option in options:
        name = option.key
        now: dict[str, Any] = getattr(search.case, field)
        if now.get(name, option.default) != option.default:
            changed = {**now, name: option.default}
            search.try_one(
                msgspec.structs.replace(search.case, **{field: changed}), "a default option"
            )


def _with_fewer_nodes(search: Search, options: tuple[Option, ...]) -> Iterator[Case]:
    """Yield the case with target options that lead to fewer nodes, the fewest first."""
    case, smaller = search.case, []
    count = _nodes(search, case)
    for option in options:
        name = option.key
        value = case.target_options.get(name)
        if type(value) is not int or value > NODES_MAX:  # too large for a number of nodes
            continue
        for lower in range(value):
            changed = msgspec.structs.replace(
                case, target_options={**case.target_options, name: lower}
            )
            nodes = _nodes(search, changed)
            if 0 < nodes < count:
                smaller.append((nodes, name, changed))
    yield from (changed for _, _, changed in sorted(smaller, key=lambda each: each[:2]))


def _nodes(search: Search, case: Case) -> int:
    try:
        return len(plan_case(case, search.environment).nodes)
    except UsageError:
        return 0
