"""Starts, queries and ends the holder (owning process) of a long-lived cluster, for commands."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case
from harness.environments import procfs
from harness.environments.controller import Life
from harness.errors import CleaningError, HarnessError, InfrastructureError, UsageError
from harness.plugins import Environment
from harness.registry import load_plugin
from harness.up.control_socket import ANSWER_TIMEOUT_S, Down, Question, ask
from harness.up.holder import STAY
from harness.up.kept_data import DATA, Kept, keep
from harness.up.records import Order, Place, Standing, claim, places

POLL_S: Final = 0.05
GONE_BOUND_S: Final = 180.0
"""How long an ending holder may take to stop its nodes and remove everything. Afterwards it is
killed."""
DOWN_TIMEOUT_S: Final = 20.0
"""How long a reachable holder may take to confirm that it is ending."""
LOG_LINES: Final = 10


def start(
    name: str, environment: str, case: Case, *, kept: tuple[Path, Kept] | None = None
) -> Standing:
    """Start a cluster with this name, empty or from kept data; returns when it serves.

    After any exception no part of the cluster is left. Raises `UsageError` if the name is taken,
    and the error with which the holder ended.
    """
    place = claim(name)
    run_id = f"up-{name}-{secrets.token_hex(2)}"
    holder: subprocess.Popen[bytes] | None = None
    try:
        order = Order(environment=environment, case=case, run_id=run_id)
        if kept is not None:
            folder, before = kept
            order = msgspec.structs.replace(
                order, goes_on=before.order.goes_on + 1, data=str(folder / DATA)
            )
        place.write_order(order)
        holder = start_holder(place)
        standing = _wait_standing(place, holder)
        let_stay(holder)
    except BaseException:
        if holder is not None:
            give_up(holder)
        place.remove()
        raise
    return standing


def start_holder(place: Place) -> subprocess.Popen[bytes]:
    """Start the holder of a cluster whose `Order` is written.

    The caller must then call `let_stay` or `give_up`.
    """
    search_path = os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path)
    with place.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.up.holder", str(place.folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": search_path},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )


def _wait_standing(place: Place, holder: subprocess.Popen[bytes]) -> Standing:
    while True:
        code = holder.poll()
        standing = place.standing()
        if standing is not None and code is None:
            return standing
        if code is not None:
            failure = place.failure()
            if failure is not None:
                raise failure.as_error()
            raise InfrastructureError(f"the holder ended with code {code}{end_of(place.log)}")
        time.sleep(POLL_S)


def end_of(log: Path) -> str:
    """Return the last lines of a holder's log, each on a new line."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines)


def let_stay(holder: subprocess.Popen[bytes]) -> None:
    """Let the cluster outlive this process."""
    assert holder.stdin is not None
    holder.stdin.write(STAY)
    holder.stdin.close()


def give_up(holder: subprocess.Popen[bytes]) -> None:
    """Make the holder undo everything, and wait for its end. Ctrl-C does not interrupt the wait."""
    assert holder.stdin is not None
    holder.stdin.close()
    deadline_s = time.monotonic() + GONE_BOUND_S
    while holder.poll() is None:
        try:
            holder.wait(max(0.0, deadline_s - time.monotonic()))
        except KeyboardInterrupt:
            continue  # the holder is already ending
        except subprocess.TimeoutExpired:
            holder.kill()  # the warden of a killed holder undoes the rest


def question(place: Place, asked: Question) -> Any:
    """Send a question to a cluster's holder.

    Raises `InfrastructureError` if the holder is dead or still starting.
    """
    if place.life() is Life.DEAD:
        raise place.why_gone()
    if place.standing() is None:
        raise InfrastructureError(f"the cluster {place.name!r} is still being started")
    try:
        return ask(place.folder, asked)
    except InfrastructureError as error:
        match place.life():
            case Life.DEAD:  # the holder died during the question
                raise place.why_gone() from None
            case Life.UNKNOWN:
                raise InfrastructureError(f"{error}; {place.why_unseen()}") from error
            case Life.ALIVE:
                raise


def take_down(
    place: Place, *, keep_data: bool = False, progress: Callable[[str], None]
) -> list[str]:
    """End a cluster's holder and remove leftovers; returns notes for the user.

    The folder is removed as well, unless its data are to be kept. Raises `InfrastructureError` if
    something cannot be removed, and `UsageError` if the holder may be alive in another PID
    namespace or on another machine.
    """
    if place.life() is Life.UNKNOWN:
        raise UsageError(place.why_unseen())
    lines: list[str] = []
    owner = place.owner()
    if owner is not None:
        _end(place, owner, keep_data=keep_data, progress=progress)
    order = place.order()
    if order is not None:
        environment: Environment = load_plugin("environments", order.environment)
        try:
            lines += environment.clean()  # returns no lines if the holder has already cleaned up
        except CleaningError as error:
            if any(order.run_id in failure for failure in error.failures):
                raise
            lines += [*error.removed, *error.failures]  # these failures concern other clusters
    kept = keep(place)
    if kept is not None:
        lines.append(f"kept: {kept}/{DATA}/NODE, {kept}/logs/NODE.log")
        lines.append(f"`harness up --name {place.name}` continues from there")
    elif keep_data:
        raise InfrastructureError(
            f"the data of {place.name!r} are incomplete, since its holder is dead; nothing is "
            f"kept. Its logs are in {place.folder}; `harness down {place.name}` removes them"
        )
    else:
        place.remove()
    return lines


def _end(
    place: Place,
    owner: procfs.ProcessId,
    *,
    keep_data: bool,
    progress: Callable[[str], None],
) -> None:
    if place.standing() is None:
        progress("the cluster is still being started; its holder gives up")
        procfs.send(owner, signal.SIGTERM)
    else:
        try:
            bound_s = ANSWER_TIMEOUT_S if keep_data else DOWN_TIMEOUT_S
            ask(place.folder, Down(keep_data=keep_data), timeout_s=bound_s)
        except HarnessError as error:
            if not place.saved:  # a holder that has saved the data is about to end
                if keep_data:
                    raise
                progress(f"{error}; the holder is killed, and its warden undoes what it deployed")
                procfs.send(owner, signal.SIGKILL)
    deadline_s = time.monotonic() + GONE_BOUND_S
    while procfs.is_alive(owner):
        if time.monotonic() > deadline_s:
            progress(f"the holder did not end within {GONE_BOUND_S:g} s; it is killed")
            procfs.send(owner, signal.SIGKILL)
            deadline_s += GONE_BOUND_S
        time.sleep(POLL_S)


def clean_places() -> tuple[list[str], list[str]]:
    """Remove the folders of clusters whose holders are dead, but keep data that they had saved.

    Returns lines about dead clusters, and lines about clusters that are left alone. Nodes that a
    dead holder left in its environment stay: `Environment.clean` removes them.
    """
    removed, standing = [], []
    for place in places(hidden=True):
        match place.life():
            case Life.ALIVE:
                standing.append(
                    f"the cluster {place.name} is running, and is left alone: "
                    f"`harness down {place.name}`"
                )
            case Life.UNKNOWN:
                standing.append(f"left alone: {place.why_unseen()}")
            case Life.DEAD:
                removed.append(_remove_dead(place))
    return removed, standing


def _remove_dead(place: Place) -> str:
    try:
        kept = keep(place)
    except InfrastructureError as error:
        return f"could not remove the cluster {place.name}: {error}"
    if kept is not None:
        return f"kept the data that the cluster {place.name} had saved: {kept}"
    place.remove()
    return f"removed the folder of the cluster {place.name}, whose holder is dead"
