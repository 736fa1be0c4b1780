"""Describes events of the simulated world in words: the task, timer or message behind a call."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from harness.environments.sim.connection import Pipe
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.network import Attempt
from harness.replay.frames import frames_of, place_of


def node_of(
    loop: NodeLoop | None, call: Callable[..., object], arguments: Sequence[Any]
) -> str | None:
    """Return the node on which an event happens; `None` if it belongs to no single node."""
    if loop is not None:
        return loop.name
    owner = getattr(call, "__self__", None)
    if isinstance(owner, Pipe):
        return owner.receiver.owner.name
    for value in (owner, *arguments, *_enclosed(call)):
        if isinstance(value, NodeLoop):
            return value.name
        if isinstance(value, Attempt):
            return value.source
    return None


Namer = Callable[[bytes], str]
"""A function that names the type of a frame (`Target.message_name`)."""


def call_text(call: Callable[..., object], arguments: Sequence[Any], name: Namer) -> str:
    """Describe an event's function in words, without addresses of objects."""
    while isinstance(call, functools.partial):
        arguments = (*call.args, *arguments)
        call = call.func
    owner = getattr(call, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}"
    if isinstance(owner, Pipe) and call.__name__ == "arrive":
        what = name(arguments[0]) if isinstance(arguments[0], bytes) else mark_text(arguments[0])
        return f"from {owner.link.link.source}: {what}"
    if isinstance(owner, asyncio.Timeout):
        return f"time is up for {_task_name(getattr(owner, '_task', None))}"
    if arguments and isinstance(arguments[0], asyncio.Future) and "set_result" in _name(call):
        return "a sleep ends"
    if arguments and isinstance(arguments[0], NodeLoop):
        return "its turn"
    return _name(call)


def mark_text(mark: Any) -> str:
    """Describe a control message of a connection."""
    words = {"ACCEPTED": "the acceptance of a connection", "END": "the end of a connection"}
    return words.get(getattr(mark, "name", ""), "a reset")


_WORDS: Final = {
    "_give_up": "the sender of held frames gives up",
    "_run_out_of_time": "the limit of virtual time",
    "complete": "a request to the disk ends",
    "open_window": "a full connection has room again",
}


def call_text_in(
    loop: NodeLoop | None, call: Callable[..., object], arguments: Sequence[Any], name: Namer
) -> str:
    """Describe an event. For a task of a node, add the line at which it continues."""
    text = call_text(call, arguments, name)
    task = getattr(call, "__self__", None)
    if loop is None or not isinstance(task, asyncio.Task):
        return text
    frames = frames_of(task)
    return f"{text}, at {place_of(frames[-1])}" if frames else text


def _name(call: Callable[..., object]) -> str:
    short = getattr(call, "__name__", "")
    if short in _WORDS:
        return _WORDS[short]
    if short == "<lambda>":
        inner = [each for each in _enclosed(call) if callable(each)]
        if inner:
            return _name(inner[0])
    name = getattr(call, "__qualname__", type(call).__name__).replace(".<locals>", "")
    module = getattr(call, "__module__", None)
    return f"{module}.{name}" if module else str(name)


def _task_name(task: object) -> str:
    return f"task {task.get_name()}" if isinstance(task, asyncio.Task) else "a task"


def _enclosed(call: Callable[..., object]) -> Iterator[Any]:
    """Yield the objects in the closure of a nested function, such as the loop of a disk request."""
    for cell in getattr(call, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
