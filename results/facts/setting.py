"""Which runs are alike: the case without what differs from seed to seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from harness.case import Case
from harness.drawing import undrawn
from results.facts.schema import LIST_SEPARATOR

__all__ = ["asked_nemeses", "code_of", "setting_of"]

ASKED_MAX: Final = 3


def asked_nemeses(case: Case) -> str:
    """The nemeses, or of what and how many each seed draws."""
    names = case.drawn.get("nemeses") or case.nemeses
    joined = LIST_SEPARATOR.join(sorted(set(names)))
    if not case.drawn:
        return joined
    of = joined if len(names) <= ASKED_MAX else f"{len(names)} nemeses"
    return f"1 to {case.drawn.get('draw', len(names))} of {of}"


def setting_of(case: Case, environment: str | None) -> str:
    """What stays equal over the seeds of one soak: the case without what is planned from the seed.

    Operations are not: where a case lists them, somebody gave them.
    """
    bare = msgspec.structs.replace(undrawn(case), seed=0, faults=None)
    return hashlib.sha256(bare.encode() + (environment or "").encode()).hexdigest()[:12]


def code_of(versions: Mapping[str, str]) -> str | None:
    """What stands for the version of the code that ran, of what a run's record says.

    A commit where somebody wrote one down, else the digest that a soak goes by, else the version of
    the harness.
    """
    for name in ("commit", "code"):
        if versions.get(name):
            return versions[name]
    return f"harness {versions['harness']}" if versions.get("harness") else None
