"""A program that undoes faults in an engine; the warden runs it when the driver has died.

`python -m harness.environments.docker.undo` has three commands: `remove RUN CONTROLLER` removes the
whole run, `thaw CONTAINER` ends a pause, and `heal TABLE LABEL KEEPER...` deletes the rules of one
fault. All commands are idempotent, and succeed if nothing is left to undo.
"""

from __future__ import annotations

import sys
from typing import Final

from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.network.rules import Table, heal_command, select_fault
from harness.environments.docker.removal import remove_run
from harness.environments.warden import Run
from harness.errors import InfrastructureError

_USAGE: Final = (
    "usage: undo remove RUN CONTROLLER | undo thaw CONTAINER | undo heal TABLE LABEL KEEPER..."
)


def undo_by(*words: str) -> Run:
    """Return an action by which the warden runs this program with these arguments."""
    return Run([sys.executable, "-P", "-m", "harness.environments.docker.undo", *words])


def main(words: list[str]) -> int:
    """Run one command; returns the exit code."""
    match words:
        case ["remove", run_id, controller]:
            remove_run(Engine(), run_id, controller)
        case ["thaw", container]:
            Engine().unpause(container)
        case ["heal", table, label, *keepers] if keepers:
            engine = Engine()
            for keeper in keepers:
                if engine.state(keeper) is None:
                    continue
                command = heal_command(select_fault(label), Table[table])
                result = engine.exec(keeper, command)
                if result.code != 0:
                    raise InfrastructureError(f"docker: cannot heal {keeper}: {result.output}")
        case _:
            sys.stderr.write(_USAGE + "\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
