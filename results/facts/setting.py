"""The setting of a run: its case without the parts that differ from seed to seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from harness.case import Case
from harness.plan.random_case import undrawn
from results.facts.schema import LIST_SEPARATOR

ASKED_MAX: Final = 3
IGNORABLE: Final[dict[str, object]] = {"bugs": (), "profile": ""}
"""Fields of a case that a comparison may ignore, each with the value that replaces it."""


def asked_nemeses(case: Case) -> str:
    """Return a case's nemeses as text. If each seed draws some of them, `1 to N of NEMESES`."""
    names = case.drawn.get("nemeses") or case.nemeses
    joined = LIST_SEPARATOR.join(sorted(set(names)))
    if not case.drawn:
        return joined
    of = joined if len(names) <= ASKED_MAX else f"{len(names)} nemeses"
    return f"1 to {case.drawn.get('draw', len(names))} of {of}"


def setting_of(case: Case, environment: str | None, ignored: Iterable[str] = ()) -> str:
    """Return the hash of a case without its seed-dependent values; equal for all seeds of a soak.

    The hash includes explicit operations, since they come from the author of the case. It excludes
    the fields `ignored`, which must be names in `IGNORABLE`.
    """
    absent = {name: IGNORABLE[name] for name in ignored}
    bare = msgspec.structs.replace(undrawn(case), seed=0, faults=None, **absent)
    return hashlib.sha256(bare.encode() + (environment or "").encode()).hexdigest()[:12]
