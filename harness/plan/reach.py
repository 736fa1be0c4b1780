"""The reach of a nemesis: the nodes on which an environment can carry out its faults.

A foreign program is a node that is not written for `Env`. The harness does not control its disk or
its clock, so some faults do not work on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from harness.cluster import (
    CLIENT,
    CLOCKS,
    ENV_NODES_ONLY,
    FAULTY_DISK,
    Capability,
    Fidelity,
    NodeSpec,
    client_end,
    env_nodes_only,
    unsupported,
)
from harness.errors import UsageError
from harness.nodes.program import is_program
from harness.plugins import Environment, Nemesis, Target
from harness.registry import load_working
from harness.support.interrupts import blaming


def can(able: Mapping[Capability, Fidelity], capability: Capability) -> bool:
    """Whether `able` includes the capability with any fidelity."""
    return able.get(capability, Fidelity.NONE) is not Fidelity.NONE


def needs_faulty_disk(nemesis: Nemesis) -> bool:
    """Whether the nemesis affects disks."""
    return not nemesis.requires.isdisjoint(FAULTY_DISK)


def may_hit(nemesis: Nemesis, nodes: Iterable[NodeSpec], what: Collection[Capability]) -> list[str]:
    """Return the foreign programs that the nemesis may choose for faults that need `what`."""
    if nemesis.requires.isdisjoint(what):
        return []
    foreign = {node.name: node for node in nodes if node.entry is None}
    return list(nemesis.may_hit(foreign, what))


def out_of_reach(
    nemesis: Nemesis, nodes: Iterable[NodeSpec], reach: Collection[Capability] = ()
) -> list[str]:
    """Return the foreign programs that the nemesis may choose but cannot affect.

    `reach` has the capabilities in `ENV_NODES_ONLY` that work on all foreign programs. Disk faults
    also work on nodes that declare a `faulty_disk`.
    """
    nodes, lacks = list(nodes), ENV_NODES_ONLY - frozenset(reach)
    bare = [node for node in nodes if not node.faulty_disk]
    hit = {*may_hit(nemesis, bare, lacks), *may_hit(nemesis, nodes, lacks - FAULTY_DISK)}
    return [node.name for node in nodes if node.name in hit]


def why_no_faulty_disks(environment: Environment | None) -> str | None:
    """Return the environment's reason why foreign programs cannot have a faulty disk, or `None`."""
    return None if environment is None else environment.why_no_faulty_disks()


def can_hit_all(
    nemesis: Nemesis, nodes: Sequence[NodeSpec], environment: Environment | None
) -> bool:
    """Whether the nemesis can affect all of these nodes.

    The environment's `reaches_foreign` is ignored.
    """
    nodes = _not_owned(nodes, environment)
    able = None if environment is None else environment.capabilities
    if able is not None and not all(can(able, needed) for needed in nemesis.requires):
        return False
    if out_of_reach(nemesis, nodes):
        return False
    on_disks = may_hit(nemesis, nodes, FAULTY_DISK)
    return not (on_disks and why_no_faulty_disks(environment) is not None)


def _not_owned(nodes: Iterable[NodeSpec], environment: Environment | None) -> list[NodeSpec]:
    """Return the nodes whose disks and clocks are not the environment's own."""
    owns = environment is not None and environment.owns_programs
    return [node for node in nodes if not (owns and is_program(node))]


def refuse_unable(
    nemeses: Mapping[str, Nemesis], environment: str, capabilities: Mapping[Capability, Fidelity]
) -> None:
    """Raise `UsageError` for a nemesis that needs capabilities which the environment lacks."""
    for name, nemesis in nemeses.items():
        for capability in sorted(nemesis.requires, key=lambda item: item.value):
            if not can(capabilities, capability):
                others = [name for name in _able(capability) if name != environment]
                error = unsupported(environment, capability, others)
                raise UsageError(f"the nemesis {name!r} cannot run here: {error}")


def _able(capability: Capability) -> list[str]:
    return [
        name for name, other in load_working("environments") if can(other.capabilities, capability)
    ]


def refuse_nodes(
    nemesis: Nemesis,
    specs: Mapping[str, NodeSpec],
    target: Target,
    environment: Environment | None,
) -> None:
    """Raise `UsageError` for a nemesis that cannot affect these nodes, or names an unknown one.

    Also raises it for a nemesis that needs faulty disks on foreign programs that have none.
    """
    reach = ENV_NODES_ONLY if environment is None else environment.reaches_foreign or ()
    nodes = _not_owned(specs.values(), environment)
    beyond = out_of_reach(nemesis, nodes, reach)
    if beyond:
        raise env_nodes_only(f"the nemesis {nemesis.name!r}", beyond)
    with blaming(f"the nemesis {nemesis.name!r}: check_target()"):
        nemesis.check_target(specs, target)
    hit = may_hit(nemesis, nodes, FAULTY_DISK)
    why = why_no_faulty_disks(environment) if hit else None
    if why is not None:
        raise UsageError(
            f"the nemesis {nemesis.name!r} cannot reach {', '.join(hit)}: a faulty disk "
            f"for a foreign program is a FUSE file system, and {why}"
        )


def refuse_clients(nemesis: Nemesis, concurrency: int) -> None:
    """Raise `UsageError` if the nemesis names a client that this `concurrency` does not make."""
    needed = nemesis.clients_min
    if needed > concurrency:
        raise UsageError(
            f"the nemesis {nemesis.name!r} aims at {client_end(needed - 1)!r}, and --concurrency "
            f"{concurrency} makes {client_end(0)} to {client_end(concurrency - 1)}; name one of "
            f"these, or raise --concurrency to {needed}"
        )


def refuse_by_hand(
    nemesis: Nemesis,
    specs: Mapping[str, NodeSpec],
    target: Target,
    environment: Environment,
    *,
    clocks: Collection[str],
    fix: str,
) -> None:
    """Raise `UsageError` for a nemesis that cannot affect a running system.

    `clocks` are the foreign programs that were started with support for clock faults. `fix` names
    the option for such a start.
    """
    refuse_nodes(nemesis, specs, target, environment)
    bare = [node for node in may_hit(nemesis, specs.values(), CLOCKS) if node not in clocks]
    if bare:
        raise UsageError(
            f"the nemesis {nemesis.name!r} may change the clock of {', '.join(bare)}: a foreign "
            f"program, which must be started with libfaketime for this; {fix}"
        )


def foreign_clocks(nemeses: Mapping[str, Nemesis], nodes: Sequence[NodeSpec]) -> frozenset[str]:
    """Return the foreign programs whose clocks these nemeses may change."""
    hit = (may_hit(nemesis, nodes, CLOCKS) for nemesis in nemeses.values())
    return frozenset(itertools.chain.from_iterable(hit))


def nodes_for(nodes: Sequence[NodeSpec], nemeses: Mapping[str, Nemesis]) -> tuple[NodeSpec, ...]:
    """Return the nodes to deploy. Without nemeses that affect disks, none has a faulty disk."""
    if any(needs_faulty_disk(nemesis) for nemesis in nemeses.values()):
        return tuple(nodes)
    return tuple(msgspec.structs.replace(node, faulty_disk=False) for node in nodes)


def client_ends(nemeses: Mapping[str, Nemesis], concurrency: int) -> tuple[str, ...]:
    """Return the harness's link ends: one for all clients, and if needed one for each client.

    An end per client is made only if a nemesis needs it, because each end is a port that containers
    wait for.
    """
    per_client = any(Capability.SINGLE_CLIENTS in each.requires for each in nemeses.values())
    return (CLIENT, *(map(client_end, range(concurrency)) if per_client else ()))
