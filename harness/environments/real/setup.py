"""One-shot set-up commands: how long they may take, and what is said of one that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from harness.cluster import NodeSpec
from harness.errors import TargetError

__all__ = ["SETUP_S", "failed_setup"]

SETUP_S: Final = 300.0
"""How long each command may take."""
_OUTPUT_CHARACTERS_MAX: Final = 4000


def failed_setup(spec: NodeSpec, command: Sequence[str], code: int | None, output: str) -> NoReturn:
    """Raise the `TargetError` for a command that did not exit with 0 (`None`: it took too long)."""
    how = f"took longer than {SETUP_S:.0f} s" if code is None else f"exited with {code}"
    said = output.strip()[-_OUTPUT_CHARACTERS_MAX:]
    shown = "".join(f"\n  {line}" for line in said.splitlines()) or " nothing"
    raise TargetError(
        f"the set-up of node {spec.name!r} failed: {' '.join(command)!r} {how}; it said:{shown}"
    )
