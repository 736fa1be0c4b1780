"""Removes a run's containers, volumes and networks from the engine.

A run does this at its end. If the driver dies, the warden or `harness clean` does it. Objects are
found by their labels, so removal works at any stage of a deployment. Both the label of the run and
the label of its controller must match, so another run with the same name stays. An engine may still
be carrying out a request of a dead driver. So removal repeats until nothing of the run has appeared
for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from harness.environments.controller import Controller, Life, life, this_controller
from harness.environments.docker.engine.answers import Found
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.engine.labels import CONTROLLER_LABEL, RUN_LABEL
from harness.errors import CleaningError, InfrastructureError

_THREADS: Final = 8
_ROUNDS_MAX: Final = 30
_SETTLE_S: Final = 0.5


def _labels(run_id: str, controller: str) -> tuple[str, str]:
    return f"{RUN_LABEL}={run_id}", f"{CONTROLLER_LABEL}={controller}"


def _remove_round(engine: Engine, run_id: str, controller: str) -> tuple[list[str], list[str]]:
    """Remove a run's objects once. Returns a line for each removal, and one for each failure."""
    labels = _labels(run_id, controller)
    lines: list[str] = []
    failures: list[str] = []

    def remove(kind: str, found: Found, how: Callable[[str], bool]) -> None:
        try:
            if how(found.id):
                lines.append(f"removed the {kind} {found.name} of run {run_id}")
        except InfrastructureError as error:
            failures.append(str(error))

    containers = engine.containers(*labels)
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda found: remove("container", found, engine.remove), containers))
    # A volume or network cannot be removed while a container uses it. The next round tries again.
    for volume in engine.volumes(*labels):
        remove("volume", volume, engine.remove_volume)
    for network in engine.networks(*labels):
        remove("network", network, engine.remove_network)
    return sorted(lines), failures


def remove_run(
    engine: Engine, run_id: str, controller: str, *, stragglers: bool = True
) -> list[str]:
    """Remove all containers, volumes and networks of a run; returns a line for each of them.

    `stragglers` means that requests of a dead driver may be pending in the engine. Then removal
    repeats until nothing has appeared for a second. Raises `InfrastructureError` if an object
    stays.
    """
    labels = _labels(run_id, controller)
    removed: list[str] = []
    failures: list[str] = []
    quiet_rounds = 0
    for _ in range(_ROUNDS_MAX):
        lines, failures = _remove_round(engine, run_id, controller)
        removed += lines
        left = engine.containers(*labels) or engine.networks(*labels) or engine.volumes(*labels)
        if not left and not stragglers:
            return removed
        quiet_rounds = 0 if left or lines else quiet_rounds + 1
        if quiet_rounds == 2:
            return removed
        time.sleep(_SETTLE_S)
    raise InfrastructureError(
        f"docker: run {run_id} still has containers, volumes or networks after {_ROUNDS_MAX} "
        "rounds: "
        f"{'; '.join(failures) or 'new ones keep appearing'}"
    )


def remove_dead_runs(engine: Engine) -> list[str]:
    """Remove the remains of runs whose controller is dead; returns a line for each action.

    A run whose controller may be alive stays, and a line gives the reason. If a run cannot be
    removed, the other runs are still removed, and then `CleaningError` is raised.
    """
    runs = {
        (kind.labels[RUN_LABEL], kind.labels.get(CONTROLLER_LABEL, ""))
        for kind in (
            *engine.containers(RUN_LABEL),
            *engine.networks(RUN_LABEL),
            *engine.volumes(RUN_LABEL),
        )
    }
    here = this_controller()
    lines: list[str] = []
    failures: list[str] = []
    for run_id, text in sorted(runs):
        try:
            verdict = life(Controller.parse(text), here, same_machine=engine.is_local)
        except ValueError:
            verdict = Life.UNKNOWN
        if verdict is Life.DEAD:
            try:
                lines += remove_run(engine, run_id, text)
            except InfrastructureError as error:
                failures.append(str(error))
        elif verdict is Life.UNKNOWN:
            lines.append(
                f"left run {run_id} alone: its controller {text!r} may be alive, which cannot be "
                f"seen from here; to remove the run: docker rm -f $(docker ps -aq -f "
                f"label={RUN_LABEL}={run_id})"
            )
    if failures:
        raise CleaningError(failures, lines)
    return lines
