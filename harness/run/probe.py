"""The harness's own operations after the chaos phase: the probe of a healed core, and final reads.

These operations are recorded like all others. If one fails, the next process tries it again: a
client may be pinned to a node by its process number, and a fault may have left that node dead. A
verdict must not become invalid because of the harness's own routing. For the same reason the probe
records the nodes that it asked.

Each call of a client has a time limit, so a client that hangs cannot hang a run. A client that hung
or crashed may have done anything, so the operation ends as `info`. An error while a client closes
changes no outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from harness.errors import shown
from harness.ops import OpType
from harness.plugins import Client, Completion, Request, Workload
from harness.run.interpreter import (
    CLOSE_S_MAX,
    ERROR_CHARACTERS_MAX,
    GUARD_MARGIN_S,
    LOG,
    nonsense,
)
from harness.run.recorder import Recorder
from harness.support.interrupts import PLUGIN_FAILURES, UserInterrupt, blaming

POLL_S: Final = 0.25
FINAL_TRIES_MAX: Final = 40
_ERROR_SHOWN_MAX: Final = ERROR_CHARACTERS_MAX - 20


class Breach(Completion, frozen=True):
    """The outcome of an operation whose client broke its contract. `error` has the details."""


async def invoke_safely(client: Client, request: Request, timeout_s: float) -> Completion:
    """Do one operation and return its completion.

    If the client hangs or crashes, the completion is a `Breach`, since such a client may have done
    anything.
    """
    try:
        async with asyncio.timeout(timeout_s + GUARD_MARGIN_S) as limit:
            completion = await client.invoke(request, timeout_s=timeout_s)
    except UserInterrupt:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        wrong: str | None = "client crashed: cancelled from inside"
    except PLUGIN_FAILURES as error:  # the error becomes an op in the history
        hung = limit.expired() and isinstance(error, TimeoutError)
        what = "hung beyond its timeout" if hung else f"crashed: {shown(error, _ERROR_SHOWN_MAX)}"
        wrong = f"client {what}"
    else:
        wrong = nonsense(completion)
    return completion if wrong is None else Breach(OpType.INFO, request.value, error=wrong)


async def close_quietly(client: Client) -> BaseException | None:
    """Close the client; returns the error, if there is one."""
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await client.close()
    except UserInterrupt:
        raise
    except PLUGIN_FAILURES as error:  # re-raised by the caller, who may record it
        return error
    return None


class Driver:
    """The harness's own clients: one operation at a time, and a new process after each failure."""

    def __init__(
        self,
        recorder: Recorder,
        open_client: Callable[[int], Client],
        *,
        patience_s: float,
        workload: Workload,
    ) -> None:
        """The first operation opens the first client. `patience_s` is each operation's timeout."""
        self._recorder = recorder
        self._open_client = open_client
        self._patience_s = patience_s
        self._workload = workload
        self._next_process: int | None = None
        self._client: tuple[int, Client] | None = None

    async def invoke(self, request: Request) -> Completion:
        if self._client is None:
            self._client = self._new_client()
        process, client = self._client
        self._recorder.record(process, OpType.INVOKE, request.f, request.value)
        completion = await invoke_safely(client, request, self._patience_s)
        self._recorder.complete(process, request.f, completion)
        if completion.type is not OpType.OK:
            await self.close()
        return completion

    def serves(self, completion: Completion) -> bool:
        """Whether the answer shows that the system serves, by the workload's own rule."""
        with blaming(f"the workload {self._workload.name!r}: serves()"):
            return self._workload.serves(completion)

    async def read(self, request: Request, deadline_ns: int) -> bool:
        """Do a final read until it is served or a limit is reached; returns whether it was."""
        for _ in range(FINAL_TRIES_MAX):
            if self._recorder.now_ns() >= deadline_ns:
                return False
            if self.serves(await self.invoke(request)):
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def close(self) -> None:
        """Close the current client, with a time limit. Errors change no outcome."""
        if self._client is None:
            return
        (_, client), self._client = self._client, None
        error = await close_quietly(client)
        if error is not None:
            self._recorder.fact(LOG, {"message": f"a client did not close: {error!r}"})

    def _new_client(self) -> tuple[int, Client]:
        """Return a client with an unused process number. The workload's clients have finished."""
        if self._next_process is None:
            used = [op.process for op in self._recorder.history() if isinstance(op.process, int)]
            self._next_process = max(used, default=-1) + 1
        process = self._next_process
        self._next_process += 1
        return process, self._open_client(process)


class Probed(msgspec.Struct, frozen=True):
    """The result of a probe.

    `kinds` are the kinds of operations that it tried, `missing` the kinds that never succeeded, and
    `asked` the nodes to which it sent operations that failed.
    """

    kinds: list[str]
    missing: list[str]
    asked: list[str]
    asked_late: list[str]  # nodes in `asked` that got operations after the bound
    breach: str | None = None
    """How the client broke its contract after the bound, if this alone may explain `missing`."""


async def probe(
    driver: Driver,
    requests: Callable[[int, int], Sequence[Request]],
    *,
    now_ns: Callable[[], int],
    deadline_ns: int,
    late_tries_max: int,
) -> Probed:
    """Try the kinds of operations in order until one operation of each kind is served.

    `requests(attempt, retry)` makes the operations. A request that definitely did nothing is
    retried. A request with an unknown outcome restarts the probe as the next `attempt`. The probe
    goes on after the deadline, to show that the bound was really passed. At most `late_tries_max`
    operations may then fail, so that each node can be asked once more.
    """
    kinds = [request.f for request in requests(0, 0)]
    missing = set(range(len(kinds)))
    asked: dict[str, bool] = {}
    answered: set[int] = set()  # positions of late failures that the client itself reported
    breach: str | None = None
    attempt = retry = position = late_tries = 0
    while position < len(kinds):
        late = now_ns() >= deadline_ns
        if late and late_tries == late_tries_max:
            break
        completion = await driver.invoke(requests(attempt, retry)[position])
        if driver.serves(completion):
            missing.discard(position)
            position, retry = position + 1, 0
            continue
        late_tries += late
        if late and isinstance(completion, Breach):
            breach = completion.error
        elif late:
            answered.add(position)
        for node in (*(tried.node for tried in completion.attempts), completion.node):
            if node is not None:
                asked[node] = asked.get(node, False) or late
        if completion.type is OpType.INFO:
            attempt, position, retry = attempt + 1, 0, 0
        else:
            retry += 1
        await asyncio.sleep(POLL_S)
    return Probed(
        kinds=kinds,
        missing=list(dict.fromkeys(kinds[position] for position in sorted(missing))),
        asked=sorted(asked),
        asked_late=sorted(node for node, late in asked.items() if late),
        breach=None if answered & missing else breach,
    )
