"""Does nothing; also what a toxic becomes on connections that its toxicity spares."""

from __future__ import annotations

from harness.environments.toxiproxy.toxics.base import Toxic

__all__ = ["Noop"]


class Noop(Toxic, frozen=True):
    """Pass everything on, as every toxic does by default."""
