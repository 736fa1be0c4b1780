"""Reads the state of one node: its pages, tasks, files, connections, objects and log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from harness.cluster import DiskQuality
from harness.env import PageRequest
from harness.environments.sim.connection import SimConn
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.machine import Incarnation, Machine
from harness.replay.calls import Namer, call_text_in
from harness.replay.frames import frames_of, places_of
from harness.replay.objects import Objects
from harness.replay.view import ConnectionView, FileView, NodeView, TaskView, within

LOG_LINES: Final = 30
TASKS_MAX: Final = 500
FILES_MAX: Final = 500
READY_MAX: Final = 100


def node_view(
    machine: Machine,
    pages: Sequence[str],
    connections: Sequence[tuple[int, SimConn, SimConn]],
    sleeps: Mapping[int, float],
    name: Namer,
) -> NodeView:
    """Return the state of a node.

    `pages` lists the paths of the pages that show the node's state. `sleeps` maps the `id` of a
    future to the time at which a timer ends it.
    """
    incarnation = machine.incarnation
    loop = None if incarnation is None else incarnation.loop
    left_out: dict[str, int] = {}
    unfinished = [] if loop is None else [task for task in loop.tasks() if not task.done()]
    tasks = within(TASKS_MAX, unfinished, "tasks", left_out)
    objects = Objects()
    object_views = objects.collect([(task.get_name(), frames_of(task)) for task in tasks])
    if objects.left_out:
        left_out["objects"] = objects.left_out
    quality = machine.trouble.quality
    return NodeView(
        name=machine.name,
        state=machine.state.value,
        boot=machine.boots - 1,
        variant=machine.variant,
        pages={} if incarnation is None else _pages(incarnation, pages),
        wall_skew_ms=machine.clock.skew_ns / 1e6,
        drift_ppm=machine.clock.drift_ppm,
        callback_us=machine.cost_ns / 1e3,
        disk="good" if quality == DiskQuality() else msgspec.json.encode(quality).decode(),
        ready=[] if loop is None else _ready(loop, name, left_out),
        tasks=[_task(task, sleeps) for task in tasks],
        files=_files(machine, left_out),
        changes_in_flight=machine.disk.changes_in_flight,
        connections=[
            _connection(machine.name, *each) for each in connections if _is_at(machine, each)
        ],
        objects=object_views,
        log=machine.world.log_lines(machine.name, last_lines=LOG_LINES),
        left_out=left_out,
    )


def live_objects(incarnation: Incarnation) -> dict[str, Any]:
    """Return the objects of a node, by their names in its view."""
    tasks = [task for task in incarnation.loop.tasks() if not task.done()][:TASKS_MAX]
    objects = Objects()
    objects.collect([(task.get_name(), frames_of(task)) for task in tasks])
    return objects.live()


def _pages(incarnation: Incarnation, paths: Sequence[str]) -> dict[str, Any]:
    """Request a node's pages as JSON, without letting time pass.

    A page that the node does not have is left out. A page whose handler waits is reported as such.
    """
    door = incarnation.pages
    pages: dict[str, Any] = {}
    if door is None:
        return pages
    for path in paths:
        answer = door.handler(PageRequest(path, {}, accepts_json=True))
        waiting = getattr(answer, "send", None)
        if waiting is None:
            continue
        try:
            waiting(None)
        except StopIteration as end:
            response = end.value
            if response.status == HTTPStatus.OK:
                pages[path] = msgspec.json.decode(response.body)
        except Exception as error:  # noqa: BLE001 - the page is the target's code
            pages[path] = {"error": f"{type(error).__name__}: {error}"}
        else:
            pages[path] = {"error": "the page has to wait before it answers"}
    return pages


def _task(task: asyncio.Task[Any], sleeps: Mapping[int, float]) -> TaskView:
    frames = frames_of(task)
    waiter = getattr(task, "_fut_waiter", None)
    waits_for = "its turn" if waiter is None else type(waiter).__name__.strip("_").lower()
    if isinstance(waiter, asyncio.Task):
        waits_for = f"task {waiter.get_name()}"
    elif isinstance(waiter, asyncio.Future) and waiter.done():
        waits_for = "its turn"
    elif id(waiter) in sleeps:
        waits_for = f"{sleeps[id(waiter)]:.6f} s"
    return TaskView(name=task.get_name(), waits_for=waits_for, stack=places_of(frames))


def _ready(loop: NodeLoop, name: Namer, left_out: dict[str, int]) -> list[str]:
    return [
        call_text_in(loop, handle._callback, handle._args, name)  # noqa: SLF001 - our own class
        for handle in within(READY_MAX, loop.ready, "ready", left_out)
        if handle._callback is not None  # noqa: SLF001
    ]


def _files(machine: Machine, left_out: dict[str, int]) -> list[FileView]:
    return [
        FileView(
            path=state.path,
            bytes=state.visible_bytes,
            synced_bytes=state.durable_bytes,
            unsynced_writes=state.unsynced_writes,
        )
        for state in within(FILES_MAX, machine.disk.states(), "files", left_out)
    ]


def _is_at(machine: Machine, connection: tuple[int, SimConn, SimConn]) -> bool:
    return any(end.owner.name == machine.name for end in connection[1:])


def _connection(node: str, number: int, calling: SimConn, accepted: SimConn) -> ConnectionView:
    end = calling if calling.owner.name == node else accepted
    return ConnectionView(
        connection=number,
        peer=end.peer,
        opened_by=calling.owner.name,
        unread=len(end.unread),
        held=len(end.out.held),
        unsent_bytes=end.out.buffered_bytes,
    )
