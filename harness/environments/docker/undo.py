"""The warden runs this when the driver cannot: `python -m harness.environments.docker.undo`.

`remove RUN CONTROLLER` takes the whole run away, `thaw CONTAINER` ends a pause, `heal TABLE LABEL
KEEPER...` deletes the rules of one fault. All are idempotent: nothing left to undo is no error.
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
    """A guard that runs this program with these words."""
    return Run([sys.executable, "-P", "-m", "harness.environments.docker.undo", *words])


def main(words: list[str]) -> int:
    """Do one thing; returns the exit code."""
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
                    raise InfrastructureError(f"docker: {keeper} did not heal: {result.output}")
        case _:
            sys.stderr.write(_USAGE + "\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
