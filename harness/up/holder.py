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
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from harness.errors import EXIT_CRASH, EXIT_INTERRUPTED, HarnessError
from harness.plan.planning import plan_target
from harness.plan.reach import foreign_clocks, nodes_for
from harness.plugins import DeploymentPlan, Environment, Session
from harness.registry import load_plugin
from harness.run.starting import explaining_start
from harness.up.cluster import StandingCluster, open_target
from harness.up.control_socket import Question, open_door
from harness.up.holding import Hold
from harness.up.kept_data import seed_of
from harness.up.records import Failure, Order, Place
from harness.up.run_holder import RunHolder

STAY: Final = b"stay\n"
"""The message of the command that started the holder: the cluster may outlive this command."""
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
        self._hold = Hold(place, order, self._plan)

    def hold(self) -> bool:
        """Deploy the cluster and answer commands; returns whether a command ended the cluster."""
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
        with explaining_start(self._plan):
            return self._environment.execute(deployment, self._main)

    async def _main(self, session: Session) -> bool:
        self._deployed.set()
        if session.interrupted.is_set():
            return False
        target = open_target(self._plan, session)
        cluster = StandingCluster(target, self._environment, clocks=self._clocks)
        starting = asyncio.ensure_future(target.become_ready())
        try:
            async with self._hold.ending(session) as over:
                await asyncio.wait([starting, *over], return_when=asyncio.FIRST_COMPLETED)
                if not starting.done():
                    return False
                await starting

                async def answer(question: Question) -> Any:
                    return await self._hold.answer(cluster, question)

                async with open_door(self._place.folder, answer):
                    self._place.write_standing(self._hold.standing(session))
                    await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
                    await asyncio.sleep(0)  # let `answer` reply to `harness down`
                return self._hold.down.is_set()
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)


def _watch_starter(place: Place, deployed: threading.Event) -> None:
    """Shut down if the command that started this holder ends before it has confirmed the cluster.

    One signal ends a finished deployment. A deployment in progress needs a second signal. So does a
    run, which then ends without being healed first (`environments.host.session`). The second signal
    has a different number, so that the kernel does not merge the two.
    """
    if os.read(0, len(STAY)) != STAY:
        os.kill(os.getpid(), signal.SIGTERM)
        order = place.order()
        if not deployed.is_set() or (order is not None and order.run is not None):
            os.kill(os.getpid(), signal.SIGINT)


def main(arguments: list[str]) -> int:
    """Run the cluster of one folder until a command ends it.

    Returns 0, or 255 after writing the reason to `failure.json`.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    place = Place(Path(arguments[0]))
    place.own()
    deployed = threading.Event()
    threading.Thread(target=_watch_starter, args=(place, deployed), daemon=True).start()
    order = place.order()
    if order is None:
        place.write_failure(Failure(error=f"there is no order in {place.folder}"))
        return EXIT_CRASH
    try:
        if order.run is None:
            regular = _Holder(place, order, deployed).hold()
        else:
            regular = RunHolder(place, order, order.run, deployed).hold()
        if regular:
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
