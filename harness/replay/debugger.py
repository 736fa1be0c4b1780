"""Opens Python's debugger in the code of a node when a replay stops.

If the replay stops inside a callback of the node, the debugger opens at the current line. Otherwise
it opens at the line at which a task of the node waits; `next` then lets the world run until this
task continues. The debugger works on the world itself: a command that changes the node changes the
rest of the run.
"""

from __future__ import annotations

import asyncio
import pdb  # noqa: T100 - the debugger is the purpose
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import IO, Any, Final

from harness.cluster import CLIENT
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.machine import Incarnation
from harness.environments.sim.tripwires import Tripwires
from harness.errors import UsageError, choices_near
from harness.replay.frames import frames_of, module_of, running_frames
from harness.replay.nodes import live_objects
from harness.replay.watch import Stop, Watch

_SKIPPED: Final = ("harness.environments.*", "harness.replay.*", "harness.support.*", "asyncio.*")
_NOT_OF_NODES: Final = ("harness.", "asyncio", "contextlib")


def debug(
    watch: Watch,
    stop: Stop,
    node: str | None,
    *,
    stdin: IO[str],
    stdout: IO[str],
    stops_again: bool = False,
) -> NodeDebugger:
    """Open the debugger in a node (default: the stop's node); returns it when it is closed.

    If the user's last command continues in the code of the node, as `next` does, the world goes on,
    and the debugger opens again by itself. With `stops_again`, the world stops before the event
    that follows the user's `continue`. Raises `UsageError` if the node does not exist or does not
    run.
    """
    name = node or stop.node
    frames: Sequence[FrameType] = ()
    loop = stop.event[0]
    if stop.within and name in {None, CLIENT, loop and loop.name}:
        frames = running_frames()
        name = name or CLIENT
    incarnation = _incarnation(watch, name or CLIENT)
    if not frames:
        frames = frames_of(_task_to_open(incarnation.loop, stop))
    debugger = NodeDebugger(
        incarnation.name,
        {
            "env": incarnation.env,
            "objects": Names(**live_objects(incarnation)),
            "tasks": {task.get_name(): task for task in incarnation.loop.tasks()},
        },
        tripwires=watch.deployment.world.tripwires,
        on_quit=watch.quit,
        on_continue=watch.stop_next if stops_again else None,
        stdin=stdin,
        stdout=stdout,
    )
    debugger.open(frames)
    return debugger


def _incarnation(watch: Watch, node: str) -> Incarnation:
    machines = watch.deployment.machines
    if node not in machines:
        raise UsageError(f"there is no node {node!r}; {choices_near(node, list(machines))}")
    incarnation = machines[node].incarnation
    if incarnation is None:
        raise UsageError(f"node {node!r} is down at this moment, so none of its code runs")
    return incarnation


def _task_to_open(loop: NodeLoop, stop: Stop) -> asyncio.Task[Any]:
    """Return the node's next task to run, or else its task `main`, or else its oldest task."""
    calls = [stop.event[1]] if stop.event[0] is loop else []
    calls += [handle._callback for handle in loop.ready if handle._callback is not None]  # noqa: SLF001
    due = [owner for call in calls if (owner := getattr(call, "__self__", None)) is not None]
    tasks = [task for task in due if isinstance(task, asyncio.Task) and frames_of(task)]
    tasks += [task for task in loop.tasks() if task.get_name() == "main" and not task.done()]
    tasks += [task for task in loop.tasks() if frames_of(task)]
    if not tasks:
        raise UsageError(f"no task of {loop.name!r} waits at this moment")
    return tasks[0]


class Names(types.SimpleNamespace):
    """Has objects as attributes. Its `repr` lists their names."""

    def __repr__(self) -> str:
        return ", ".join(vars(self))


class NodeDebugger(pdb.Pdb):
    """A `Pdb` on the frames of one node.

    In every frame, the user can name `env` (the node's `Env`), `tasks` and `objects`. The
    attributes of `objects` are the node's objects, under the names that `show NODE` prints. `quit`
    ends the replay, and `continue` resumes it.
    """

    def __init__(
        self,
        node: str,
        names: Mapping[str, Any],
        *,
        tripwires: Tripwires,
        on_quit: Callable[[], None],
        on_continue: Callable[[], None] | None,
        stdin: IO[str],
        stdout: IO[str],
    ) -> None:
        super().__init__(
            skip=list(_SKIPPED), stdin=stdin, stdout=stdout, nosigint=True, readrc=False
        )
        terminal = stdin is sys.stdin and stdin.isatty()
        self.use_rawinput = terminal
        self.prompt = f"(pdb {node}) "
        self.has_quit = False
        self.goes_on = False
        """the last command continues in the node's code, or to a breakpoint"""
        self._names = dict(names)
        self._tripwires = tripwires
        self._on_quit = on_quit
        self._on_continue = on_continue
        self._opened: Sequence[FrameType] = ()
        self._echo = not terminal
        self._locals: Any = {}

    def open(self, frames: Sequence[FrameType]) -> None:
        self.reset()
        self._opened = frames
        self.botframe = frames[0]
        self.interaction(frames[-1], None)
        self._opened = ()
        if self.goes_on:
            for frame in frames:
                frame.f_trace = self.trace_dispatch
            sys.settrace(self.trace_dispatch)

    # --- hooks of `pdb.Pdb` ----------------------------------------------------------------------

    @property
    def curframe_locals(self) -> Any:
        """The local variables of the current frame, and the names of the node."""
        return self._locals

    @curframe_locals.setter
    def curframe_locals(self, local: Any) -> None:
        self._locals = None if local is None else ChainMap(local, self._names)

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        armed, self._tripwires.armed = self._tripwires.armed, False
        self.goes_on = True
        try:
            super().interaction(frame, traceback)
        finally:
            self._tripwires.armed = armed

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """Return the frames of a waiting task, which are not linked to each other."""
        if not self._opened or f is not self._opened[-1]:
            return super().get_stack(f, t)
        stack = [(frame, frame.f_lineno) for frame in self._opened]
        of_node = [i for i, frame in enumerate(self._opened) if not _is_foreign(frame)]
        return stack, of_node[-1] if of_node else len(stack) - 1

    def precmd(self, line: str) -> str:
        # internal commands of pdb, since Python 3.13
        if self._echo and not line.startswith("_pdbcmd"):
            self.message(line if line != "EOF" else "")
        return super().precmd(line)

    def do_continue(self, arg: str) -> bool | None:
        """c(ont(inue)): leave the debugger; it opens again at breakpoints only."""
        self.goes_on = bool(self.breaks)
        if not self._opened and not self.goes_on and self._on_continue is not None:
            self._on_continue()
        return super().do_continue(arg)

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool:
        """q(uit): end the replay; the callback that runs now still ends."""
        del arg
        self.has_quit, self.goes_on = True, False
        self.clear_all_breaks()
        self.set_continue()
        self._on_quit()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name that pdb looks for
        """Treat the end of the input like `quit`."""
        return self.do_quit(arg)


def _is_foreign(frame: FrameType) -> bool:
    return module_of(frame).startswith(_NOT_OF_NODES)
