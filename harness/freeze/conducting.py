"""Conducts a run that may freeze: follows its op log, checks it, and freezes the run.

A background process, the *holder*, conducts the run itself. The command and the holder share two
folders. The holder writes the op log into the run folder. The holder's own folder
(`harness.up.records`) records how the run ended. If either process dies, the other ends the run:
the holder notices that its stdin is closed, and if the holder is killed, its warden (a process that
watches it) undoes the deployment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from types import FrameType
from typing import Final

from harness.errors import EXIT_INTERRUPTED, HarnessError, InfrastructureError, UsageError
from harness.freeze.prefix import find_violation, prefix_checkers
from harness.ops import History, Op
from harness.plan.planning import Plan
from harness.plugins import Environment
from harness.run.freeze import Frozen, Violation
from harness.run.phases import Outcome
from harness.run.recorder import Observer
from harness.store.folder import OPS_LOG, RunFolder
from harness.store.oplog import OpTail
from harness.up.control_socket import Freeze, Release, ask
from harness.up.lifecycle import end_of, give_up, let_stay, start_holder
from harness.up.records import Ended, Order, Place, RunOrder, Standing, claim

NAME: Final = "frozen"
CLUSTERS_MAX: Final = 99
CHECK_EVERY_S: Final = 3.0
"""The minimum pause between two checks. After a slow check, the pause is as long as the check."""
POLL_S: Final = 0.1


class FreezingConductor:
    """Conducts one run in a holder process, in place of `harness.run.phases.conduct`.

    After the run, `standing` is the record of the kept cluster, and `frozen` describes the freeze.
    Both are `None` if the run did not freeze.
    """

    def __init__(self) -> None:
        """Make a conductor. A call of it conducts the run."""
        self.standing: Standing | None = None
        self.frozen: Frozen | None = None
        self._interrupted = False

    def __call__(
        self,
        plan: Plan,
        environment: Environment,
        *,
        run_id: str,
        folder: RunFolder | None,
        label: str | None = None,
        link_proxy: str | None = None,
        listener: Callable[[Op], None] | None = None,
        observer: Observer | None = None,
    ) -> Outcome:
        """Conduct the run, seal its history in `folder`, and return its outcome.

        Raises like `conduct`, and `UsageError` if no checker of the plan can judge an incomplete
        history.
        """
        assert folder is not None, "a run that may freeze has a folder"
        assert observer is None, "only simulated runs are observed"
        checkers = prefix_checkers(plan.checkers)
        place = _claim_free()
        holder: Popen[bytes] | None = None
        try:
            run = RunOrder(folder=str(folder.path.absolute()), link_proxy=link_proxy)
            place.write_order(
                Order(environment=environment.name, case=plan.case, run_id=run_id, run=run)
            )
            holder = start_holder(place)
            follower = _Follower(place, holder, folder.path / OPS_LOG, listener)
            with self._forwarding_signals(holder), ThreadPoolExecutor(max_workers=1) as executor:
                ended = self._follow(
                    follower,
                    lambda ops: executor.submit(find_violation, ops, plan.case, checkers),
                )
            if ended.frozen is not None:
                self.frozen, self.standing = ended.frozen, place.standing()
                let_stay(holder)
        except BaseException:
            if holder is not None:
                give_up(holder)
            place.remove()
            raise
        if self.standing is None:
            place.remove()
        history = History(follower.ops)
        folder.seal(history, label=label)
        return Outcome(
            history=history,
            interrupted=ended.interrupted,
            stop_asked=ended.stop_asked,
            wall_ns=ended.wall_ns,
            trace_digest=None,
            frozen=None if self.standing is None else self.standing.name,
        )

    def _follow(
        self, follower: _Follower, check: Callable[[list[Op]], Future[Violation | None]]
    ) -> Ended:
        """Follow the run to its end, check the growing history, and decide whether to freeze."""
        checking: Future[Violation | None] | None = None
        judged, begun_s, due_s = 0, 0.0, 0.0
        decided = False
        while (ended := follower.ended()) is None:
            if checking is not None and checking.done():
                violation, checking = checking.result(), None
                due_s = time.monotonic() + max(CHECK_EVERY_S, time.monotonic() - begun_s)
                if violation is not None and not decided and not self._interrupted:
                    decided = follower.ask(Freeze(violation=violation))
            elif checking is None and not decided and not self._interrupted:
                # `over` comes first: once the run is over, all ops have been written
                over = follower.over
                follower.read()
                if len(follower.ops) == judged:
                    decided = over and follower.ask(Release())
                elif over or time.monotonic() >= due_s:
                    judged, begun_s = len(follower.ops), time.monotonic()
                    checking = check(list(follower.ops))
            follower.read()
            time.sleep(POLL_S)
        follower.read()
        return ended

    @contextlib.contextmanager
    def _forwarding_signals(self, holder: Popen[bytes]) -> Iterator[None]:
        """Pass Ctrl-C and SIGTERM on to the holder inside this context.

        As in any other run, the first ends the workload, and the second the run.
        """

        def forward(number: int, frame: FrameType | None) -> None:
            del frame
            self._interrupted = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, number)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {n: signal.signal(n, forward) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Follower:
    """A run in a holder as the command sees it: its ops so far, and its end."""

    def __init__(
        self,
        place: Place,
        holder: Popen[bytes],
        log: Path,
        listener: Callable[[Op], None] | None,
    ) -> None:
        self.ops: list[Op] = []
        self._place = place
        self._holder = holder
        self._tail = OpTail(log)
        self._listener = listener

    def read(self) -> None:
        new = self._tail.read()
        self.ops += new
        if self._listener is not None:
            for op in new:
                self._listener(op)

    @property
    def over(self) -> bool:
        """Whether the run's phases are over and the holder waits for a decision."""
        return self._place.over

    def ask(self, question: Freeze | Release) -> bool:
        """Send the decision to the holder.

        Returns whether the holder received it, or has ended and no longer needs it.
        """
        try:
            ask(self._place.folder, question)
        except InfrastructureError:
            return self._holder.poll() is not None
        return True

    def ended(self) -> Ended | None:
        """Return how the run ended, or `None` if it goes on; raises the holder's last error."""
        code = self._holder.poll()
        ended = self._place.ended()
        if ended is not None and (ended.frozen is not None or code is not None):
            return ended
        if code is None:
            return None
        self.read()
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        failure = self._place.failure()
        if failure is not None:
            raise failure.as_error()
        raise InfrastructureError(
            f"the holder of the run ended with code {code}{end_of(self._place.log)}"
        )


def _claim_free() -> Place:
    """Reserve the first free name for a frozen cluster."""
    reason: HarnessError | None = None
    for number in range(1, CLUSTERS_MAX + 1):
        try:
            return claim(NAME if number == 1 else f"{NAME}-{number}")
        except UsageError as error:
            reason = error
    raise UsageError(
        f"--freeze: there are {CLUSTERS_MAX} frozen clusters, which is the limit; `harness status` "
        "shows them, and `harness down NAME` removes one"
    ) from reason
