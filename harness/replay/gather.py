"""Reads the state of a stopped world from the objects of the simulation.

Reading may change the world: it runs the target's code (for pages and fields), and even reading the
local variables of a coroutine keeps objects alive for longer. So `look` reads the state in a fork
of the process. The world itself is not affected, and can continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from harness.cluster import CLIENT
from harness.environments.sim.clock import Entry
from harness.environments.sim.environment import Deployment
from harness.environments.sim.loop import NodeLoop
from harness.ops import NS_PER_S, Op, OpType
from harness.plan.planning import Plan
from harness.replay.calls import Namer, call_text, call_text_in, node_of
from harness.replay.frames import place_of, running_frames
from harness.replay.messages import is_message, messages_of
from harness.replay.nodes import node_view
from harness.replay.view import (
    FaultView,
    LinkView,
    MomentView,
    OperationView,
    Stopped,
    TimerView,
    within,
)
from harness.replay.watch import Stop, Watch, op_text
from harness.support.process_copy import in_copy
from harness.timeline import faults_of

LOOK_TIMEOUT_S: Final = 120.0
LAST_OPS: Final = 10
MESSAGES_MAX: Final = 2000
OTHERS_MAX: Final = 200
TIMERS_MAX: Final = 2000


def look(plan: Plan, watch: Watch, stop: Stop) -> Stopped:
    """Return the state of the world without changing the world."""
    data = in_copy(lambda: msgspec.json.encode(gather(plan, watch, stop)), timeout_s=LOOK_TIMEOUT_S)
    return msgspec.json.decode(data, type=Stopped)


def gather(plan: Plan, watch: Watch, stop: Stop) -> Stopped:
    """Read the state of the world in this process. This runs the handlers of nodes' pages."""
    deployment, name = watch.deployment, plan.target.message_name
    due = _due(deployment, stop)
    connections = list(deployment.fabric.connections)
    sleeps = _sleeps(due)
    left_out: dict[str, int] = {}
    messages = messages_of(deployment.fabric, due, name)
    loops = [m.incarnation.loop for m in deployment.machines.values() if m.incarnation is not None]
    return Stopped(
        target=plan.case.system,
        profile=plan.case.profile,
        bugs=list(plan.case.bugs),
        workload=plan.case.workload,
        seed=plan.case.seed,
        moment=_moment(watch, stop, name),
        leaders=_leaders(watch.ops),
        operations=_open_operations(watch.ops),
        last_ops=[op_text(op) for op in watch.ops[-LAST_OPS:]],
        faults=_faults(watch.ops),
        links=_links(deployment),
        messages=within(MESSAGES_MAX, messages, "messages", left_out),
        timers=within(TIMERS_MAX, _timers(due, loops, name), "timers", left_out),
        others=within(OTHERS_MAX, _others(due, name), "others", left_out),
        left_out=left_out,
        nodes=[
            node_view(machine, plan.target.state_pages, connections, sleeps, name)
            for machine in deployment.machines.values()
            if machine.name != CLIENT
        ],
        trace_digest=deployment.world.trace_digest(),
    )


def _due(deployment: Deployment, stop: Stop) -> list[Entry]:
    """Return the entries of the world's heap in order. The first is the next event."""
    due = sorted(deployment.world.heap, key=lambda entry: entry[:2])
    loop, action, arguments = stop.event
    if loop is None and not stop.within:
        due.insert(0, (deployment.world.now_ns, -1, action, *arguments))
    return due


def _sleeps(due: Iterable[Entry]) -> dict[int, float]:
    """Map the `id` of each future that a timer ends to the timer's time, in seconds of the run."""
    return {
        id(value): at_ns / NS_PER_S
        for at_ns, _, action, timer in due
        if action is None
        for value in timer._args  # noqa: SLF001 - our own class
    }


def _moment(watch: Watch, stop: Stop, name: Namer) -> MomentView:
    world = watch.deployment.world
    phases = [op.value["phase"] for op in watch.ops if op.f == "phase"]
    stack = running_frames() if stop.within else []
    return MomentView(
        time_s=world.now_ns / NS_PER_S,
        time_ns=world.now_ns,
        events=world.events,
        what=stop.what,
        node=stop.node,
        within=stop.within,
        event=_event_text(stop, name),
        stack=[place_of(frame) for frame in stack],
        phase=phases[-1] if phases else "",
    )


def _event_text(stop: Stop, name: Namer) -> str:
    loop, call, arguments = stop.event
    node = node_of(*stop.event)
    # The coroutine of a running task does not show its position. Python's stack does.
    text = call_text_in(None if stop.within else loop, call, arguments, name)
    return f"{node}: {text}" if node else text


# --- the run ---------------------------------------------------------------------------------


def _leaders(ops: Iterable[Op]) -> list[str]:
    leads = [op.value for op in ops if op.f == "leader" and isinstance(op.value, dict)]
    return [f"{value.get('node')} led in term {value.get('term')}" for value in leads[-3:]]


def _open_operations(ops: Iterable[Op]) -> list[OperationView]:
    begun: dict[Any, Op] = {}
    for op in ops:
        if op.is_client:
            if op.type is OpType.INVOKE:
                begun[op.process] = op
            else:
                begun.pop(op.process, None)
    return [
        OperationView(
            index=op.index,
            process=str(op.process),
            f=op.f,
            value=op.value,
            since_s=op.time / NS_PER_S,
        )
        for op in begun.values()
    ]


def _faults(ops: Iterable[Op]) -> list[FaultView]:
    return [
        FaultView(
            id=fault.id,
            kind=fault.kind,
            nemesis=fault.nemesis,
            targets=list(fault.targets),
            since_s=fault.start / NS_PER_S,
            note=fault.note,
        )
        for fault in faults_of(ops, most=None)
        if fault.targets and fault.heal is None
    ]


def _links(deployment: Deployment) -> list[LinkView]:
    return [
        LinkView(
            link=f"{link.link.source} > {link.link.destination}",
            blocked=link.blocked,
            faults=list(link.faults),
            quality="cut" if link.cuts else msgspec.json.encode(link.quality).decode(),
        )
        for link in sorted(deployment.fabric.links, key=lambda link: link.link)
        if not link.whole
    ]


# --- due events ------------------------------------------------------------------------------


def _timers(due: Iterable[Entry], loops: Iterable[NodeLoop], name: Namer) -> list[TimerView]:
    waiters = {
        id(waiter): task
        for loop in loops
        for task in loop.tasks()
        if (waiter := getattr(task, "_fut_waiter", None)) is not None
    }
    timers = []
    for at_ns, _, action, timer in due:
        if action is not None or timer.cancelled() or not timer._loop.alive:  # noqa: SLF001
            continue
        callback, arguments = timer._callback, timer._args  # noqa: SLF001
        owner = getattr(callback, "__self__", None)
        task = getattr(owner, "_task", None) if isinstance(owner, asyncio.Timeout) else None
        for value in arguments:
            task = task or waiters.get(id(value))
        timers.append(
            TimerView(
                node=timer._loop.name,  # noqa: SLF001
                at_s=at_ns / NS_PER_S,
                calls=call_text(callback, arguments, name),
                task=None if task is None else task.get_name(),
            )
        )
    return timers


def _others(due: Iterable[Entry], name: Namer) -> list[str]:
    texts = []
    for at_ns, _, action, argument in due:
        if action is None or is_message(action):
            continue
        node = node_of(None, action, (argument,))
        text = call_text(action, (argument,), name)
        texts.append(f"{at_ns / NS_PER_S:.6f} {node or 'world'}: {text}")
    return texts
