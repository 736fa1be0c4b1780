"""What the warden runs when the driver cannot: `python -m harness.environments.docker.undo`.

`remove RUN CONTROLLER` takes the whole run away, `thaw CONTAINER` ends a pause, `heal FAULT
KEEPER...` deletes the rules of one fault. All are idempotent, and what is gone already is no error.
"""

from __future__ import annotations

import sys
from typing import Final

from harness.environments.docker.engine import Engine
from harness.environments.docker.labels import this_controller
from harness.environments.docker.removal import remove_run
from harness.environments.docker.rules import Table, heal_command, select_fault
from harness.environments.warden import Run
from harness.errors import InfrastructureError

__all__ = ["heal_undo", "main", "remove_undo", "thaw_undo"]

_USAGE: Final = (
    "usage: undo remove RUN CONTROLLER | undo thaw CONTAINER | undo heal FAULT KEEPER..."
)


def _undo(*words: str) -> Run:
    return Run([sys.executable, "-P", "-m", "harness.environments.docker.undo", *words])


def remove_undo(run_id: str) -> Run:
    """Remove the run that this process controls."""
    return _undo("remove", run_id, str(this_controller()))


def thaw_undo(container: str) -> Run:
    """End a pause."""
    return _undo("thaw", container)


def heal_undo(fault: str, keepers: list[str]) -> Run:
    """Heal a link fault."""
    return _undo("heal", fault, *keepers)


def main(words: list[str]) -> int:
    """Do one thing; returns the exit code."""
    match words:
        case ["remove", run_id, controller]:
            remove_run(Engine(), run_id, controller)
        case ["thaw", container]:
            Engine().unpause(container)
        case ["heal", fault, *keepers] if keepers:
            engine = Engine()
            for keeper in keepers:
                if engine.state(keeper) is None:
                    continue
                command = heal_command(select_fault(fault), Table.of(fault))
                result = engine.exec(keeper, command)
                if result.code != 0:
                    raise InfrastructureError(f"docker: {keeper} did not heal: {result.output}")
        case _:
            sys.stderr.write(_USAGE + "\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
