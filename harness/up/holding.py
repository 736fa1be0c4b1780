"""The common base of holders: records a cluster, answers commands, and waits for the end.

A holder is the process that owns a long-lived cluster (`harness.up.holder`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from harness.env import Address
from harness.environments import procfs
from harness.errors import InternalError
from harness.plan.planning import TargetPlan
from harness.plugins import KeepsData, Session
from harness.up.cluster import StandingCluster
from harness.up.control_socket import Break, Down, Heal, Question, Status, UseTool
from harness.up.kept_data import DATA, record
from harness.up.records import NodeRow, Order, Place, Standing

LOOK_S: Final = 2.0
_log = logging.getLogger(__name__)


class Hold:
    """Waits for the end of a cluster: a command, a signal, or the loss of its folder."""

    def __init__(self, place: Place, order: Order, plan: TargetPlan) -> None:
        """Prepare for the cluster in this folder. The cluster will be deployed later."""
        self.down = asyncio.Event()
        """set by the command `harness down`"""
        self._place = place
        self._order = order
        self._plan = plan

    @contextlib.asynccontextmanager
    async def ending(self, session: Session) -> AsyncIterator[list[asyncio.Future[Any]]]:
        """Yield futures. The first one that is done ends the cluster."""
        over: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(event.wait()) for event in (session.interrupted, self.down)
        ]
        over.append(asyncio.ensure_future(self._wait_lost()))
        try:
            yield over
        finally:
            for task in over:
                task.cancel()
            await asyncio.gather(*over, return_exceptions=True)

    async def _wait_lost(self) -> None:
        """Wait until the cluster's folder is removed. Then no command can reach the holder."""
        while await asyncio.to_thread(self._place.folder.exists):  # noqa: ASYNC110 - no event exists
            await asyncio.sleep(LOOK_S)
        _log.warning("the folder %s is gone, so the cluster ends", self._place.folder)

    async def answer(self, cluster: StandingCluster, question: Question) -> Any:
        """Do what a command asks of the cluster; returns the answer."""
        match question:
            case Status():
                return await cluster.status()
            case Break(fault=fault, for_s=for_s):
                return await cluster.break_by_hand(fault, for_s)
            case Heal(everything=True):
                return await cluster.heal_everything()
            case Heal(id=fault_id):
                return await cluster.heal_by_hand(fault_id)
            case UseTool(arguments=arguments):
                return await cluster.use_tool(arguments)
            case Down(keep_data=keep_data):
                if keep_data:
                    await cluster.save_data(self._place.folder / DATA, self._record)
                self.down.set()
                return None
        raise InternalError(f"a cluster without a run was asked {question!r}")

    def _record(self) -> None:
        record(self._place, self._order, self._plan.nodes, now())

    def standing(
        self, session: Session, *, frozen: Path | None = None, pause: str = ""
    ) -> Standing:
        """Return the record of the deployed cluster.

        For a frozen run, `frozen` is the folder of the run, and `pause` is the fault that paused
        it.
        """
        plan = self._plan
        row = _rows(session)
        return Standing(
            name=self._place.name,
            environment=self._order.environment,
            target=plan.case.system,
            profile=plan.case.profile,
            bugs=plan.case.bugs,
            seed=plan.case.seed,
            run_id=self._order.run_id,
            holder=str(procfs.this_process()),
            started=now(),
            folder=str(self._place.folder),
            nodes=tuple(row(name) for name in session.cluster.nodes),
            tools=tuple(
                command.replace("CLUSTER", self._place.name) for command in plan.target.tools
            ),
            frozen="" if frozen is None else str(frozen),
            pause=pause,
        )


def _rows(session: Session) -> Callable[[str], NodeRow]:
    cluster = session.cluster

    def row(name: str) -> NodeRow:
        spec = cluster.nodes[name]

        def outside(port: int) -> str:
            host, real = session.env.endpoint(Address(name, port))
            return f"{host}:{real}"

        return NodeRow(
            name=name,
            role=spec.role,
            addresses={f"{name}:{port}": outside(port) for port in spec.ports},
            pages="" if spec.pages is None else f"http://{outside(spec.pages)}/",
            data=cluster.data_place(name) if isinstance(cluster, KeepsData) else "",
        )

    return row


def now() -> str:
    """Return the current time in UTC, to the second."""
    return dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
