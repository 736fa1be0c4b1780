"""The holder: the process that owns a long-lived cluster.

`python -m harness.up.holder FOLDER` reads which cluster to start (`records.Order`), deploys, waits
until the system serves, records the cluster, and answers at its socket until a command ends it. Its
stdin comes from the command that started it. If stdin closes without a line, the user gave up
during the start, and the holder undoes everything.

The holder controls the deployment like a run: if the holder is killed, the warden undoes the
deployment, and `harness clean` removes the rest.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from harness.env import Address
from harness.environments import procfs
from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED, HarnessError
from harness.plan.planning import plan_target
from harness.plan.reach import foreign_clocks, nodes_for
from harness.plugins import DeploymentPlan, Environment, KeepsData, Session
from harness.registry import load_plugin
from harness.up.cluster import StandingCluster
from harness.up.control_socket import Break, Down, Heal, Question, Status, UseTool, open_door
from harness.up.kept_data import DATA, record, seed_of
from harness.up.records import Failure, NodeRow, Order, Place, Standing

STAY: Final = b"stay\n"
"""The message of the command that started the holder: the cluster may outlive this command."""
LOOK_S: Final = 2.0
_log = logging.getLogger(__name__)


class _Holder:
    """One long-lived cluster, from its deployment to its end."""

    def __init__(self, place: Place, order: Order, deployed: threading.Event) -> None:
        self._place = place
        self._deployed = deployed
        self._order = order
        self._environment: Environment = load_plugin("environments", order.environment)
        self._plan = plan_target(order.case, self._environment)
        self._clocks = foreign_clocks(self._plan.nemeses, self._plan.nodes)
        self._down = asyncio.Event()

    def hold(self) -> bool:
        """Deploy the cluster and answer commands; return whether a command ended the cluster."""
        plan = self._plan
        deployment = DeploymentPlan(
            run_id=self._order.run_id,
            nodes=nodes_for(plan.nodes, plan.nemeses),
            seed=seed_of(self._order),
            knobs=plan.case.knobs,
            folder=self._place.folder,
            clocks=self._clocks,
            data=Path(self._order.data) if self._order.data else None,
        )
        return self._environment.execute(deployment, self._main)

    async def _main(self, session: Session) -> bool:
        self._deployed.set()
        if session.interrupted.is_set():
            return False
        cluster = StandingCluster(self._plan, session, self._environment, clocks=self._clocks)
        over: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(event.wait()) for event in (session.interrupted, self._down)
        ]
        over.append(asyncio.ensure_future(self._wait_lost()))
        starting = asyncio.ensure_future(cluster.become_ready())
        try:
            await asyncio.wait([starting, *over], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            await starting

            async def answer(question: Question) -> Any:
                return await self._answer(cluster, question)

            async with open_door(self._place.folder, answer):
                self._place.write_standing(self._standing(session))
                await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # let `answer` reply to the command `down`
            return self._down.is_set()
        finally:
            for task in (starting, *over):
                task.cancel()
            await asyncio.gather(starting, *over, return_exceptions=True)

    async def _wait_lost(self) -> None:
        """Wait until the cluster's folder is removed: then no command can reach the holder any
        more.
        """
        while await asyncio.to_thread(self._place.folder.exists):  # noqa: ASYNC110 - no event exists
            await asyncio.sleep(LOOK_S)
        _log.warning("the folder %s is gone, so the cluster ends", self._place.folder)

    async def _answer(self, cluster: StandingCluster, question: Question) -> Any:
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
                self._down.set()
                return None

    def _record(self) -> None:
        record(self._place, self._order, self._plan.nodes, _now())

    def _standing(self, session: Session) -> Standing:
        plan = self._plan
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

        return Standing(
            name=self._place.name,
            environment=self._order.environment,
            target=plan.case.target,
            profile=plan.case.profile,
            bugs=plan.case.bugs,
            seed=plan.case.seed,
            run_id=self._order.run_id,
            holder=str(procfs.this_process()),
            started=_now(),
            folder=str(self._place.folder),
            nodes=tuple(row(name) for name in session.cluster.nodes),
            tools=tuple(
                command.replace("CLUSTER", self._place.name) for command in plan.target.tools
            ),
        )


def _now() -> str:
    return dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")


def _watch_starter(deployed: threading.Event) -> None:
    """Shut down if the command that started this holder ends before it has confirmed the cluster.

    One signal ends a finished deployment. A deployment in progress stops only at a second signal,
    which has a different number, so that the kernel does not merge the two signals
    (`environments.host.session`).
    """
    if os.read(0, len(STAY)) != STAY:
        os.kill(os.getpid(), signal.SIGTERM)
        if not deployed.is_set():
            os.kill(os.getpid(), signal.SIGINT)


def main(arguments: list[str]) -> int:
    """Hold the cluster of one folder until a command ends it; returns 0, or 255 with the reason in
    `failure.json`.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    place = Place(Path(arguments[0]))
    place.own()
    deployed = threading.Event()
    threading.Thread(target=_watch_starter, args=(deployed,), daemon=True).start()
    order = place.order()
    if order is None:
        place.write_failure(Failure(error=f"there is no order in {place.folder}"))
        return EXIT_CRASH
    try:
        if _Holder(place, order, deployed).hold():
            return 0
        place.write_failure(Failure(error="a signal ended its holder"))
    except HarnessError as error:
        place.write_failure(Failure.of(error))
    except KeyboardInterrupt:
        place.write_failure(Failure(error="interrupted"))
        return EXIT_INTERRUPTED
    except BaseException as error:
        _log.exception("the holder failed")
        place.write_failure(Failure(error=f"the holder failed: {error!r}"))
        raise
    return EXIT_CRASH


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
