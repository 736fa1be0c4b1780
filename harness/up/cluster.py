"""Manual control of a long-lived cluster: inspection, faults and healing.

Faults are the same as in a run (`harness.faults`), with the same language, ledger and damage
budget. A fault begins when the user asks for it, so the text of a fault must not contain times.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Fault, stream
from harness.cluster import Capability, NodeState
from harness.errors import (
    HarnessError,
    InfrastructureError,
    TargetError,
    UsageError,
    listed,
    why_not_copied,
)
from harness.faults.nemesis_from_text import AimedNemesis, load_nemesis
from harness.faults.schedules import Schedule
from harness.nodes.deployment import start_down
from harness.nodes.faults import Pause, Reset
from harness.ops import NS_PER_S
from harness.plan.fault_plans import check_fault_args, drawn_by_hand
from harness.plan.planning import TargetPlan
from harness.plan.reach import refuse_by_hand, refuse_unable
from harness.plugins import Convergence, Environment, KeepsData, Nemesis, Roles, Said, Session
from harness.run.conductor import LEASE_GRACE_S, WITHOUT_END_S
from harness.run.live_target import OpenedTarget, look
from harness.run.recorder import Recorder

OPS_KEPT: Final = 1000
ACTIVE_MAX: Final = 100
HEALED_KEPT: Final = 20
FOR_S_MIN: Final = 0.1
_log = logging.getLogger(__name__)


class Healed(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that has ended, and its measured effect."""

    id: str
    fault: str
    targets: tuple[str, ...]
    count: int | None
    unit: str


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """An injected fault. `healed` is set if the fault has already ended."""

    id: str
    fault: str
    targets: tuple[str, ...]
    note: str
    left_s: float | None = None  # seconds until the harness heals the fault
    trouble: str = ""  # why healing failed
    healed: Healed | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node, and its role in each of its groups."""

    name: str
    state: str
    roles: dict[str, str]


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cluster at one moment: nodes, leaders and faults."""

    ready: bool
    pending: tuple[str, ...]
    nodes: tuple[NodeStatus, ...]
    leaders: dict[str, str | None]  # group: its leader
    faults: tuple[Broken, ...]
    healed: tuple[Healed, ...]  # the faults that ended last


class _Active:
    """An active fault, and the time at which the harness will heal it."""

    def __init__(self, broken: Broken, end_ns: int | None) -> None:
        self.broken = broken
        self.end_ns = end_ns
        self.trouble = ""


def open_target(plan: TargetPlan, session: Session) -> OpenedTarget:
    """Open the target of a cluster that has no run. Only its latest ops are kept."""
    return OpenedTarget(plan, session, Recorder(session.env.clock, last=OPS_KEPT), {})


class StandingCluster:
    """A long-lived cluster: its opened target, with the actions that users ask for."""

    def __init__(
        self,
        target: OpenedTarget,
        environment: Environment,
        *,
        clocks: Collection[str] = frozenset(),
    ) -> None:
        """`clocks` are the foreign programs that support clock faults.

        Faults that are already active, as in a frozen run, can be healed by hand, too.
        """
        self.session = target.session
        self.env = target.env
        self.plan = target.plan
        self.system = target.system
        self.recorder = target.recorder
        self.conductor = target.conductor
        self.ledger = target.ledger
        self.cluster = target.cluster
        self._nemeses = target.nemeses
        self._environment = environment
        self._clocks = clocks
        planned = {fault.id: fault.nemesis for fault in target.plan.case.faults or ()}
        self._active = {
            each.id: _Active(
                Broken(
                    id=each.id,
                    fault=planned.get(each.id, "" if each.what is None else each.what.word),
                    targets=each.targets,
                    note=each.note,
                ),
                None,
            )
            for each in self.ledger.injections
        }
        self._healed: list[Healed] = []
        self._saving = False

    # --- break -------------------------------------------------------------------------------

    async def break_by_hand(self, text: str, for_s: float | None) -> Broken:
        """Inject the fault that `text` describes, for `for_s` seconds or until `heal`.

        Returns the fault with the nodes that it affected. Raises `UsageError` for a fault that is
        impossible or not allowed, and `TargetError` for a fault that misses.
        """
        if for_s is not None and not FOR_S_MIN <= for_s <= WITHOUT_END_S:
            raise UsageError(
                f"--for is {for_s:g} s; it must be in {FOR_S_MIN:g} .. {WITHOUT_END_S:g} s"
            )
        self._refuse_while_saving()
        if len(self._active) >= ACTIVE_MAX:
            raise UsageError(f"{ACTIVE_MAX} faults are active, which is the limit; heal some first")
        nemesis = self._checked(text)
        fault_id = self.ledger.new_id()
        lasts_s = WITHOUT_END_S if for_s is None else for_s
        fault = Fault(
            id=fault_id,
            nemesis=text,
            at_ns=self.recorder.now_ns(),
            duration_ns=int((lasts_s - LEASE_GRACE_S * (for_s is None)) * NS_PER_S),
            args=drawn_by_hand(nemesis, stream(self.plan.case.seed, f"by-hand/{fault_id}")),
        )
        check_fault_args(fault, nemesis)
        self._nemeses[text] = nemesis
        injection = await self.conductor.strike(fault)
        if injection.refused:
            raise UsageError(f"{text!r} is refused: {injection.note}; see docs/faults.md")
        if not injection.targets:
            raise TargetError(f"{text!r} hit no node: {injection.note}")
        broken = Broken(
            id=fault.id,
            fault=text,
            targets=injection.targets,
            note=injection.note or f"hit {', '.join(injection.targets)}",
            left_s=for_s,
        )
        if injection.what is None:  # the fault is an operation that has finished
            return broken
        end_ns = None if for_s is None else self.recorder.now_ns() + int(for_s * NS_PER_S)
        active = self._active[fault.id] = _Active(broken, end_ns)
        if isinstance(injection.what, Reset):  # a reset has nothing to undo
            return msgspec.structs.replace(broken, left_s=None, healed=await self._heal_one(active))
        if for_s is not None:
            self.env.spawn(self._heal_after(fault.id, for_s), name=f"heal-{fault.id}")
        return broken

    def _checked(self, text: str) -> Nemesis:
        nemesis = load_nemesis(text)
        refuse_unable({text: nemesis}, self.cluster.environment, self.cluster.capabilities)
        refuse_by_hand(
            nemesis,
            self.cluster.nodes,
            self.plan.target,
            self._environment,
            clocks=self._clocks,
            fix=f"start it with `harness up --fault {text!r}`",
        )
        if Capability.SINGLE_CLIENTS in nemesis.requires:
            raise UsageError(
                f"{text!r} distinguishes clients, but all callers of a long-lived cluster share "
                "the same links; aim at 'client'"
            )
        if isinstance(nemesis, AimedNemesis) and " " in text:
            sentence = nemesis.sentences[0]
            if sentence.trigger is not None or sentence.schedule != Schedule():
                raise UsageError(
                    f"{text!r} has a time, but `harness break` injects a fault now: leave out "
                    "`when`, `every`, `at` and `for`; with --for 30s the fault ends by itself"
                )
        return nemesis

    # --- heal --------------------------------------------------------------------------------

    async def _heal_after(self, fault_id: str, for_s: float) -> None:
        await asyncio.sleep(for_s)
        active = self._active.get(fault_id)
        if active is None:
            return
        try:
            await self._heal_one(active)
        except HarnessError as error:
            _log.warning("%s could not be undone: %s", fault_id, error)
            active.trouble = str(error)

    async def _heal_one(self, active: _Active) -> Healed:
        broken = active.broken
        bite = await self.ledger.heal(broken.id)
        healed = Healed(
            id=broken.id,
            fault=broken.fault,
            targets=broken.targets,
            count=bite.count,
            unit=bite.unit,
        )
        if self._active.pop(broken.id, None) is not None:
            self._healed = [*self._healed, healed][-HEALED_KEPT:]
        return healed

    async def heal_by_hand(self, fault_id: str | None) -> list[Healed]:
        """Undo the fault with this id; `None` means the only active fault.

        Raises `UsageError` for an unknown id, or for `None` unless exactly one fault is active.
        """
        self._refuse_while_saving()
        active = ", ".join(self._active) or "none"
        if fault_id is None:
            if len(self._active) != 1:
                raise UsageError(
                    f"name one of the active faults ({active}), or give --all to heal all"
                )
            fault_id = next(iter(self._active))
        if fault_id not in self._active:
            over = next((each for each in self._healed if each.id == fault_id), None)
            if over is not None:
                return [over]
            raise UsageError(f"there is no fault {fault_id!r}; active faults: {active}")
        return [await self._heal_one(self._active[fault_id])]

    async def heal_everything(self) -> list[Healed]:
        """Undo all faults, and start every node that is down.

        Raises one `InfrastructureError` for all faults that cannot be undone, after all other
        faults are undone.
        """
        self._refuse_while_saving()
        return await self._heal_all()

    async def _heal_all(self) -> list[Healed]:
        faults = list(self._active.values())
        [trouble] = await asyncio.gather(self.ledger.heal_all(), return_exceptions=True)
        on = self.ledger.active
        healed = [await self._heal_one(each) for each in faults if each.broken.id not in on]
        await start_down(self.cluster, self.cluster.nodes)
        if trouble is not None:
            raise trouble
        return healed

    async def save_data(self, folder: Path, record: Callable[[], None]) -> None:
        """Stop all nodes gracefully, and copy the data of each node to `folder`.

        `record` is called when all copies exist. The cluster is about to end, so later requests to
        inject, heal or save are refused. Raises `UsageError` if the environment cannot copy data,
        or the data are already saved. If copying or `record` fails, the nodes are started again,
        the copies are removed, and `InfrastructureError` has the reason.
        """
        controls = self.session.cluster
        if not isinstance(controls, KeepsData):
            raise UsageError(f"--keep-data: {self.cluster.environment!r} cannot copy nodes' data")
        self._refuse_while_saving()
        self._saving = True
        try:
            await self._heal_all()
            await self._copy_data(controls.save_data, folder, record)
        except BaseException:
            self._saving = False
            raise

    async def _copy_data(
        self,
        save: Callable[[str, Path], Awaitable[None]],
        folder: Path,
        record: Callable[[], None],
    ) -> None:
        try:
            for node in reversed(list(self.cluster.nodes)):
                await self.cluster.stop(node)
            await asyncio.to_thread(folder.mkdir)
            for node in self.cluster.nodes:
                await save(node, folder / node)
            record()
        except (OSError, HarnessError) as error:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            await start_down(self.cluster, self.cluster.nodes)
            raise InfrastructureError(
                f"data could not be copied to {folder}: {why_not_copied(error)}; the cluster goes "
                "on. Free some disk space, or end the cluster without --keep-data"
            ) from error

    def _refuse_while_saving(self) -> None:
        """Raise `UsageError` while data of nodes are being copied, since no node may start then."""
        if self._saving:
            raise UsageError(
                "the data of the cluster are being copied; wait until `harness down` is done"
            )

    # --- administer --------------------------------------------------------------------------

    async def use_tool(self, arguments: Sequence[str]) -> Said:
        """Run the target's own tool and return its output; `UsageError` if there is none."""
        if why := self._why_silent():
            raise UsageError(why)
        return await self.system.tool(arguments)

    def _why_silent(self) -> str:
        """Return why no node can answer, and the fix; "" if a node runs."""
        states = {self.cluster.state(node) for node in self.cluster.nodes}
        if NodeState.RUNNING in states:
            return ""
        pauses = (i.id for i in self.ledger.injections if isinstance(i.what, Pause))
        fixes = listed([f"`harness heal NAME {each}`" for each in pauses], limit=3)
        thaw = f"{fixes} thaws them" if fixes else "`harness heal NAME --all` starts them"
        return f"no node runs, so none can answer; {thaw}"

    # --- inspect -----------------------------------------------------------------------------

    async def status(self) -> StatusReport:
        """Return the state of every node, the leaders, and active faults with the time left."""
        name = self.plan.case.target
        groups: Mapping[str, Roles] = {}
        state = Convergence(ok=False, pending=(self._why_silent(),))
        if not state.pending[0]:
            groups, state = await asyncio.gather(
                look(self.system.groups, name), look(self.system.ready, name)
            )
        nodes = []
        for node in self.cluster.nodes:
            roles = {
                group: f"{role.role}{'' if role.ready else ' (not ready)'}"
                + (f", term {role.term}" if role.term else "")
                for group, each in groups.items()
                if (role := each.by_node.get(node)) is not None
                and self.cluster.state(node) is NodeState.RUNNING
            }
            nodes.append(NodeStatus(name=node, state=self.cluster.state(node).value, roles=roles))
        return StatusReport(
            ready=state.ok,
            pending=state.pending,
            nodes=tuple(nodes),
            leaders={group: roles.leader for group, roles in groups.items()},
            faults=tuple(self._reported(active) for active in self._active.values()),
            healed=tuple(self._healed),
        )

    def _reported(self, active: _Active) -> Broken:
        left_s = None
        if active.end_ns is not None:
            left_s = max(0.0, (active.end_ns - self.recorder.now_ns()) / NS_PER_S)
        return msgspec.structs.replace(active.broken, left_s=left_s, trouble=active.trouble)
