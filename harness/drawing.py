"""What a seed draws for itself in a soak: which nemeses strike it, and how its world is.

Composing every nemesis in every seed weakens runs: little is written while so much is down, and
each fault hides the others. One or two nemeses a seed, and worlds that differ, find more (Groce et
al., "Swarm Testing", ISSTA 2012). The draw depends on the seed alone and is written into the case,
so a run replays and shrinks like any other.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harness.case import Case, stream
from harness.cluster import Fidelity
from harness.errors import UsageError
from harness.plugins import Environment, Nemesis, Target, load_plugin, plugin_names

__all__ = ["ANY", "draw_case", "expand_any"]

ANY: Final = "any"
ANY_DRAW: Final = 2
NONE: Final = "none"


def expand_any(case: Case, environment: Environment | None) -> Case:
    """The case with the nemeses that `any` stands for, at most two of which a seed draws.

    These are what the target names in `nemeses` (without it, all that are installed and suit any
    target), as far as the environment can do them. Raises `UsageError` where none is left.
    """
    if ANY not in case.nemeses:
        return case
    if len(case.nemeses) > 1:
        raise UsageError(
            f"the nemeses are {', '.join(case.nemeses)}; `{ANY}` stands alone: leave it out to "
            "draw from the others, with --draw"
        )
    target: Target = load_plugin("targets", case.target)
    names = getattr(target, "nemeses", None)
    if names is None:
        names = [name for name in plugin_names("nemeses") if _suits_all(name)]
    able = tuple(name for name in names if _is_able(load_plugin("nemeses", name), environment))
    if not able:
        raise UsageError(
            f"no nemesis for the target {case.target!r} can run here; use --nemesis {NONE}"
        )
    return msgspec.structs.replace(case, nemeses=able, draw=case.draw or ANY_DRAW)


def draw_case(case: Case, environment: Environment | None) -> Case:
    """The case with what its seed draws, once and for all."""
    if not case.draw:
        return case
    rng = stream(case.seed, "draw/nemeses")
    count = 1 + rng.randrange(min(case.draw, len(case.nemeses)))
    drawn = rng.sample(case.nemeses, count)
    knobs = case.knobs
    draw_knobs = getattr(environment, "draw_knobs", None)
    if draw_knobs is not None:
        knobs = {**draw_knobs(stream(case.seed, "draw/knobs")), **knobs}
    asked = {"nemeses": list(case.nemeses), "knobs": case.knobs, "draw": case.draw}
    return msgspec.structs.replace(case, nemeses=tuple(drawn), knobs=knobs, draw=0, drawn=asked)


def _suits_all(name: str) -> bool:
    return name != NONE and bool(getattr(load_plugin("nemeses", name), "suits_all", True))


def _is_able(nemesis: Nemesis, environment: Environment | None) -> bool:
    return environment is None or all(
        environment.capabilities.get(capability, Fidelity.NONE) is not Fidelity.NONE
        for capability in nemesis.requires
    )
