"""Plans one case for two targets, with equal operations, faults and seed.

The first target plans the faults, and the other target gets the same plan. Options that only the
first target has are ignored for the other target.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.case import Case, load_case
from harness.errors import UsageError, listed
from harness.plan.configured import load_target
from harness.plan.planning import Plan, plan_case
from harness.plugins import Environment, KnownDifference, Target

RUN_FILE = "case.json"


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of one case, per seed and side, with notes about unavoidable differences."""

    name: str
    plans: tuple[tuple[Plan, Plan], ...]
    notes: tuple[str, ...]


def read_case(path: Path) -> tuple[str, Case]:
    """Read a case file, or the case of a run's folder; return the case and its name."""
    if path.is_dir():
        if not (path / RUN_FILE).is_file():
            raise UsageError(
                f"{str(path)!r} holds no case.json; give a case file or a run's folder"
            )
        return path.resolve().parent.name, load_case(path / RUN_FILE)
    return path.stem, load_case(path)


def original_of(case: Case) -> str:
    """Return the target that the case's target re-creates; raise `UsageError` if it names none."""
    target = load_target(case.target, case.target_options)
    if target.original is None:
        raise UsageError(
            f"the target {case.target!r} names no original; give the other target with --with"
        )
    return target.original


def plan_sides(
    name: str, case: Case, other: str | Case, *, seeds: int, environments: tuple[Environment, ...]
) -> Sides:
    """Plan a case for its target and for `other`, for the case's seed and the following seeds.

    `other` is a target, or a case from which target, profile, bugs and the target's options are
    taken.
    """
    if case.drawn:
        raise UsageError(f"the case {name!r} was drawn from its seed; give a case without a draw")
    first, second, notes = _both(case, other)
    plans = []
    for seed in range(case.seed, case.seed + seeds):
        left = plan_case(msgspec.structs.replace(first, seed=seed), environments[0])
        right = msgspec.structs.replace(
            second, seed=seed, faults=left.case.faults, workload_options=left.case.workload_options
        )
        plans.append((left, plan_case(right, environments[1])))
    return Sides(name=name, plans=tuple(plans), notes=tuple(notes))


def _both(case: Case, other: str | Case) -> tuple[Case, Case, list[str]]:
    """Return the case for each target, and notes about differences that no plan can remove."""
    if isinstance(other, Case):
        fields = ("target", "profile", "bugs", "target_options")
        return (
            case,
            msgspec.structs.replace(case, **{name: getattr(other, name) for name in fields}),
            [],
        )
    mine, theirs = load_target(case.target, case.target_options), load_target(other, {})
    names = {option.key for option in theirs.options}
    left_out = sorted(set(case.target_options) - names)
    notes = []
    if left_out:
        notes.append(f"{other} has no option {listed(left_out, limit=5)}")
    if case.bugs:
        notes.append(f"{other} has no bug {listed(case.bugs, limit=5)}")
    profile, lacks = _profile(case, mine, theirs)
    notes += lacks
    options = {k: v for k, v in case.target_options.items() if k in names}
    first = msgspec.structs.replace(case, profile=profile[0])
    second = msgspec.structs.replace(
        case, target=other, profile=profile[1], target_options=options, bugs=()
    )
    return first, second, notes


def _profile(case: Case, mine: Target, theirs: Target) -> tuple[tuple[str, str], list[str]]:
    """Return the profile for the other target: the same if it exists there, else the default."""
    if case.profile in theirs.profiles:
        return (case.profile, case.profile), []
    both = [name for name in theirs.profiles if name in mine.profiles]
    if both:
        note = f"{theirs.name} has no profile {case.profile!r}, so both run {both[0]!r}"
        return (both[0], both[0]), [note]
    usual = str(theirs.usual.get("profile", theirs.profiles[0]))
    return (case.profile, usual), [f"the targets share no profile: {theirs.name} runs {usual!r}"]


def names_of(case: Case, other: str | Case, environments: tuple[str, str]) -> tuple[str, str]:
    """Name both sides by their targets and, where needed, by properties that differ."""
    second = other if isinstance(other, str) else other.target
    names = [case.target, second]
    if environments[0] != environments[1]:
        names = [f"{name} ({where})" for name, where in zip(names, environments, strict=True)]
    elif isinstance(other, Case) and case.target == second:
        names = [_told_apart(each) for each in (case, other)]
    if names[0] == names[1]:
        names = [f"{name}, {side}" for name, side in zip(names, ("first", "second"), strict=True)]
    return names[0], names[1]


def _told_apart(case: Case) -> str:
    bugs = f" with {'+'.join(case.bugs)}" if case.bugs else ""
    return f"{case.target} {case.profile}{bugs}"


def known_for(case: Case, other: str | Case) -> list[KnownDifference]:
    """Return the known differences from the other target, as the case's target declares them."""
    second = other if isinstance(other, str) else other.target
    target = load_target(case.target, case.target_options)
    return [each for each in target.known_differences() if each.original == second]
