"""Makes the random choices of a soak's seed: nemeses, their pace, environment knobs, and load.

A run that combines all nemeses is a weak test: little is written while most nodes are down, and
each fault hides effects of other faults. More bugs are found if a seed draws one or two nemeses,
and varies everything else that the user does not fix (Groce et al., "Swarm Testing", ISSTA 2012).
Each choice has its own random stream, which depends only on the seed. So if the user fixes an
option, all other choices stay the same. The case records all choices, so its run can be replayed
and shrunk like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.case import SEARCH, Case, stream
from harness.errors import UsageError, shown
from harness.plan.configured import load_target
from harness.plan.reach import can_hit_all
from harness.plugins import Environment, Target, TargetSettings, Workload
from harness.plugins.options import with_defaults
from harness.registry import load_plugin, load_working
from harness.support.interrupts import blaming

ANY: Final = "any"
ANY_DRAW: Final = 2
EXTRA_DRAW: Final = 2
"""If `Case.draw` is at least this, a target's `extras` are drawn apart from its other nemeses."""
NONE: Final = "none"
PACE: Final = "pace"
Fields = dict[str, Any]
DRAWN_TOGETHER: Final[tuple[tuple[str, tuple[Fields, ...]], ...]] = (
    (
        PACE,
        (
            {"interval_s": 10.0, "duration_s": 5.0},  # the system recovers between faults
            {"interval_s": 5.0, "duration_s": 2.5},
            # these faults are healed before another node can lead
            {"interval_s": 4.0, "duration_s": 1.0},
        ),
    ),
    # With many clients, some are idle when a new leader is elected, and keep using the old leader.
    # Operations of many clients get more time, because a checker cannot order hundreds of unknown
    # outcomes.
    (
        "clients",
        (
            {"concurrency": 10, "op_timeout_s": 2.0},
            {"concurrency": 10, "op_timeout_s": 2.0},
            {"concurrency": 60, "op_timeout_s": 5.0},
        ),
    ),
)
"""Fields of a case that are drawn in groups. If the user sets a field, nothing in its group is
drawn.

The pace is drawn only in simulation: real nodes take longer to restart than a drawn fault may last.
"""
_DEFAULTS: Final = Case(seed=0)
DRAWABLE: Final = ("workload", *(name for _, choices in DRAWN_TOGETHER for name in choices[0]))


def expand_any(case: Case, environment: Environment | None) -> Case:
    """Replace the nemesis `any` by all suitable nemeses; by default a seed draws at most two.

    Candidates are the target's `nemeses`, or if it lists none, the installed nemeses that suit all
    targets. Raises `UsageError` if no candidate suits the target's nodes and the environment.
    """
    if ANY not in case.nemeses:
        return case
    if len(case.nemeses) > 1:
        raise UsageError(
            f"the nemeses are {', '.join(case.nemeses)}; `{ANY}` cannot be combined with others: "
            "leave it out, and give --draw to draw from the others"
        )
    target = load_target(case.target, case.target_options)
    names = None if target.nemeses is None else (*target.nemeses, *dict.fromkeys(target.extras))
    if names is None:
        names = tuple(
            name for name, nemesis in load_working("nemeses") if name != NONE and nemesis.suits_all
        )
    options = with_defaults("target", case.target, target.options, case.target_options)
    settings = TargetSettings(
        profile=case.profile,
        bugs=case.bugs,
        options=options,
        environment=None if environment is None else environment.name,
        vocabulary=load_plugin("workloads", case.workload).vocabulary,
    )
    with blaming(f"the target {case.system!r}: nodes()"):
        nodes = target.nodes(settings)
    with blaming(f"the target {case.system!r}: pointless()"):
        pointless = frozenset(target.pointless(settings))
    able = tuple(
        name
        for name in names
        if name not in pointless and can_hit_all(load_plugin("nemeses", name), nodes, environment)
    )
    if not able:
        raise UsageError(
            f"no nemesis for the target {case.system!r} can run here; use --nemesis {NONE}"
        )
    return msgspec.structs.replace(case, nemeses=able, draw=case.draw or ANY_DRAW)


def draw_case(case: Case, environment: Environment | None) -> Case:
    """Draw the random fields of a case from its seed."""
    if not case.draw:
        return case
    target = load_target(case.target, case.target_options)
    fields: Fields = {"nemeses": _draw_nemeses(case, target), "draw": 0}
    knobs = None
    if environment is not None:
        knobs = environment.draw_knobs(stream(case.seed, "draw/knobs"))
    if knobs is not None:
        fields["knobs"] = {**knobs, **case.knobs}
    for label, choices in DRAWN_TOGETHER:
        able = label != PACE or knobs is not None
        if able and not any(_is_given(case, name) for name in choices[0]):
            fields |= choices[stream(case.seed, f"draw/{label}").randrange(len(choices))]
    fields["target_options"] = _draw_options(case, target, "target_options")
    workload, needed = _draw_workload(case, target, fields["target_options"])
    fields["workload"] = workload.name
    fields["target_options"] |= needed
    fields["workload_options"] = _draw_options(case, workload, "workload_options")
    asked = {name: getattr(case, name) for name in fields}
    return msgspec.structs.replace(case, **fields, drawn={**asked, "nemeses": list(case.nemeses)})


def _draw_nemeses(case: Case, target: Target) -> tuple[str, ...]:
    """Draw 1 to `case.draw` nemeses; of the target's `extras`, at most one.

    Half of the seeds have an extra nemesis, alone or together with others.
    """
    rng = stream(case.seed, "draw/nemeses")
    usual = [name for name in case.nemeses if name not in target.extras]
    extras = [name for name in target.extras if name in case.nemeses]
    if case.draw < EXTRA_DRAW or not usual or not extras:
        count = 1 + rng.randrange(min(case.draw, len(case.nemeses)))
        return tuple(rng.sample(case.nemeses, count))
    extra = extras[rng.randrange(len(extras))] if rng.randrange(2) else None
    least, most = (1, case.draw) if extra is None else (0, case.draw - 1)
    count = least + rng.randrange(min(most, len(usual)) - least + 1)
    return (*rng.sample(usual, count), *([] if extra is None else [extra]))


def _draw_workload(
    case: Case, target: Target, target_options: Mapping[str, Any]
) -> tuple[Workload, dict[str, Any]]:
    """Draw the workload; returns it, and the options of the target that it needs.

    A workload whose needs contradict the user's options is not drawn.
    """
    usual: Workload = load_plugin("workloads", case.workload)
    if not target.workloads or case.workload_options or _is_given(case, "workload"):
        return usual, {}
    names = target.workloads
    name = names[stream(case.seed, "draw/workload").randrange(len(names))]
    workload: Workload = load_plugin("workloads", name)
    options = with_defaults("workload", name, workload.options, {})
    of_target = with_defaults("target", target.name, target.options, target_options)
    with blaming(f"the workload {name!r}: needs()"):
        needed = dict(workload.needs(options, of_target))
    if needed.keys() & case.target_options.keys():
        return usual, {}
    return workload, needed


def _draw_options(case: Case, plugin: Target | Workload, field: str) -> dict[str, Any]:
    with blaming(f"the {field.partition('_')[0]} {plugin.name!r}: draw_options()"):
        drawn = plugin.draw_options(stream(case.seed, f"draw/{field}"), dict(getattr(case, field)))
        if not isinstance(drawn, dict):
            raise TypeError(f"{shown(drawn)} is not a dict")
    return drawn


def undrawn(case: Case) -> Case:
    """Undo `draw_case`: return the case without its random choices."""
    if not case.drawn:
        return case
    asked = {**case.drawn, "nemeses": tuple(case.drawn["nemeses"])}
    asked.pop(SEARCH, None)
    return msgspec.structs.replace(case, **asked, drawn={})


def _is_given(case: Case, name: str) -> bool:
    return name in case.given or getattr(case, name) != getattr(_DEFAULTS, name)
