"""Freezes a run at a proven violation: pauses all nodes, and saves their states.

1. No more planned fault begins. Active faults stay active, even beyond the end of their leases.

2. The states are read: roles, the target's snapshot, the nodes' pages. Paused nodes cannot answer,
so this comes first, within `LOOK_S`. A node that does not answer in time has no state.

3. All running nodes are paused by a single fault. As long as that fault is active, each node that
starts is paused, too, such as one whose start was in progress.

4. The workload is cancelled; operations in flight end as `info`.

5. The data of the paused nodes are copied, as they were at the pause.

While the workload runs, this happens at once. In later phases the phase in progress ends first,
since an interrupted heal would leave the cluster half healed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from harness.cluster import ClusterEvent, NodeState
from harness.env import Address
from harness.errors import HarnessError, InfrastructureError, described, why_not_copied
from harness.nodes.faults import Aim, Pause
from harness.plugins import KeepsData, NodeRole
from harness.run.conductor import WITHOUT_END_S
from harness.run.phases import Run
from harness.support.http1 import fetch
from harness.support.interrupts import PLUGIN_FAILURES, UserInterrupt
from harness.support.loopback import dial

T = TypeVar("T")
FOLDER: Final = "frozen"
"""The folder below a run with the saved states."""
LOOK_S: Final = 2.0
FAULTS_END_S: Final = 10.0
UNDER_LOAD: Final = frozenset({"warm-up", "chaos"})
_ERROR_CHARACTERS_MAX: Final = 300


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that the history so far proves, and that no later operation can excuse."""

    checker: str
    rule: str
    reason: str
    ops: int
    """how many lines of the history prove it"""


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The freeze of a run, as in `frozen/states.json` and in the op `frozen`.

    `pause` is the id of the fault that paused the `nodes`. `roles` maps each group to the role of
    each node that answered. `errors` has the reasons why some states or data are missing.
    """

    violation: Violation
    phase: str
    pause: str
    nodes: tuple[str, ...]
    faults: tuple[str, ...]
    """the other active faults, by id"""
    roles: dict[str, dict[str, NodeRole]] = {}
    snapshot: Any = None
    errors: dict[str, str] = {}


class Freezer:
    """Runs the phases of a run until they are over or a violation freezes it."""

    def __init__(self, run: Run, folder: Path) -> None:
        """Prepare to save states below the folder of the run.

        From now on, no fault of the run ends with its lease.
        """
        run.conductor.lease_grace_s = WITHOUT_END_S
        self.over = asyncio.Event()
        """set once all phases are over: the run then waits for `ask` or `release`"""
        self._run = run
        self._folder = folder / FOLDER
        self._violation: Violation | None = None
        self._pause = ""
        self._late: list[asyncio.Task[None]] = []
        """the pauses of nodes that started late"""
        self._asked = asyncio.Event()
        self._released = asyncio.Event()

    def ask(self, violation: Violation) -> None:
        """Freeze the run because of this violation."""
        self._violation = self._violation or violation
        self._asked.set()

    def release(self) -> None:
        """Let the run end once its phases are over."""
        self._released.set()

    async def phases(self) -> tuple[bool, Frozen | None]:
        """Run the phases.

        Returns whether the user ended the workload early, and the freeze if there was one.
        """
        run = self._run
        work = asyncio.ensure_future(run.phases(ends=self._asked.is_set))
        frozen: Frozen | None = None
        interrupted = False
        try:
            await _first_of(work, self._asked)
            if self._violation is not None and run.phase in UNDER_LOAD and not work.done():
                frozen = await self._stop(self._violation)
                work.cancel()
            await asyncio.wait({work})
            if frozen is None:
                interrupted = work.result()
                self.over.set()
                await _first_of(self._asked, self._released, run.session.interrupted)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        if frozen is None and self._violation is not None:
            frozen = await self._stop(self._violation)
        if frozen is not None:
            frozen = await self._save(frozen)
            run.recorder.fact("frozen", _brief(frozen))
        return interrupted, frozen

    async def _stop(self, violation: Violation) -> Frozen:
        """Begin no more faults, read the states, and pause all nodes."""
        run = self._run
        errors: dict[str, str] = {}
        run.conductor.end()
        if run.faults is not None:  # an injection in progress is completed first
            await asyncio.wait({run.faults}, timeout=FAULTS_END_S)
            # otherwise a slow operation of the nemesis might restart paused nodes later
            run.faults.cancel()
            await asyncio.wait({run.faults})
        roles, snapshot, pages = await asyncio.gather(
            _within("roles", run.system.groups, errors),
            _within("snapshot", run.system.snapshot, errors),
            self._pages(errors),
        )
        faults = tuple(run.ledger.active)
        up = [name for name in run.cluster.nodes if run.cluster.state(name) is NodeState.RUNNING]
        aim = Aim(what=Pause(), targets=tuple(up), note=f"paused {', '.join(up)}")
        self._pause = run.ledger.new_id()
        run.session.cluster.subscribe(self._on_event)
        pause = await run.ledger.inject(aim, lease_s=WITHOUT_END_S, groups={}, fault_id=self._pause)
        await asyncio.to_thread(self._write_pages, pages, errors)
        return Frozen(
            violation=violation,
            phase=run.phase,
            pause=pause.id,
            nodes=pause.targets,
            faults=faults,
            roles={group: dict(each.by_node) for group, each in (roles or {}).items()},
            snapshot=snapshot,
            errors=errors,
        )

    def _on_event(self, event: ClusterEvent) -> None:
        """Pause a node that starts while the others are paused."""
        if event.kind == "node-started":
            pausing = self._run.ledger.extend(self._pause, event.node, lease_s=WITHOUT_END_S)
            name = f"pause-{event.node}"
            self._late.append(self._run.env.spawn(pausing, name=name))

    async def _pages(self, errors: dict[str, str]) -> dict[str, bytes]:
        """Read the first page of each node that has pages."""
        ports = {name: spec.pages for name, spec in self._run.cluster.nodes.items() if spec.pages}

        async def page(name: str, port: int) -> bytes | None:
            return await _within(f"page of {name}", lambda: self._fetch(name, port), errors)

        bodies = await asyncio.gather(*(page(name, port) for name, port in ports.items()))
        return {n: body for n, body in zip(ports, bodies, strict=True) if body is not None}

    async def _fetch(self, name: str, port: int) -> bytes:
        host, real = self._run.env.endpoint(Address(name, port))
        reader, writer = await dial(host, real)
        try:
            response, _ = await fetch(reader, writer, "GET", "/", [("Host", "localhost")])
        finally:
            writer.transport.abort()
        return response.body

    def _write_pages(self, pages: Mapping[str, bytes], errors: dict[str, str]) -> None:
        folder = self._folder / "pages"
        try:
            folder.mkdir(parents=True)
            for name, body in pages.items():
                (folder / f"{name}.html").write_bytes(body)
        except OSError as error:
            errors["pages"] = str(error)

    async def _save(self, frozen: Frozen) -> Frozen:
        """Copy the data of all nodes, and write `states.json`."""
        await asyncio.gather(*self._late)
        for pause in self._run.ledger.injections:
            if pause.id == self._pause:
                frozen = msgspec.structs.replace(frozen, nodes=pause.targets)
        controls = self._run.session.cluster
        errors = dict(frozen.errors)
        data = self._folder / "data"
        if isinstance(controls, KeepsData):
            for name in self._run.cluster.nodes:
                try:
                    await asyncio.to_thread(data.mkdir, parents=True, exist_ok=True)
                    await controls.save_data(name, data / name)
                except (OSError, HarnessError) as error:
                    errors[f"data of {name}"] = why_not_copied(error)
                    await asyncio.to_thread(shutil.rmtree, data / name, ignore_errors=True)
        frozen = msgspec.structs.replace(frozen, errors=errors)
        text = msgspec.json.format(msgspec.json.encode(frozen), indent=1) + b"\n"
        try:
            await asyncio.to_thread((self._folder / "states.json").write_bytes, text)
        except OSError as error:
            raise InfrastructureError(
                f"the states of the frozen run cannot be written: {error}; free some disk space"
            ) from error
        return frozen


async def _first_of(*waits: asyncio.Future[Any] | asyncio.Event) -> None:
    """Wait until a future is done or an event is set."""
    tasks = [asyncio.ensure_future(w.wait()) for w in waits if isinstance(w, asyncio.Event)]
    futures = [wait for wait in waits if not isinstance(wait, asyncio.Event)]
    try:
        await asyncio.wait([*tasks, *futures], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _within(
    what: str, looking: Callable[[], Awaitable[T]], errors: dict[str, str]
) -> T | None:
    """Return the result of `looking`.

    If it fails or takes longer than `LOOK_S`, add the reason to `errors` and return `None`.
    """
    try:
        async with asyncio.timeout(LOOK_S):
            return await looking()
    except TimeoutError:
        errors[what] = f"no answer within {LOOK_S:g} s"
    except UserInterrupt:
        raise
    except (*PLUGIN_FAILURES, EOFError) as error:  # freeze the run even if a state cannot be read
        errors[what] = described(error, _ERROR_CHARACTERS_MAX)
    return None


def _brief(frozen: Frozen) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(frozen.violation),
        "phase": frozen.phase,
        "nodes": list(frozen.nodes),
    }
