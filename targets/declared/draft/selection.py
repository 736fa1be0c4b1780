"""Chooses the services of a Compose file that belong to the system under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from harness.errors import UsageError, choices_near
from targets.declared.draft.kinds import REDIS, SENTINEL, Kind
from targets.declared.draft.questions import Questions
from targets.declared.draft.survey import Service

__all__ = ["AS_ASKED", "Selection", "selected"]

AS_ASKED: Final = "as --without says"
"""The reason for leaving out a service that the user named with `--without`."""


class Selection(NamedTuple):
    """The chosen services: the members, to which clients talk, and the services that members need.

    `left_out` maps each other service to the reason why it is not part of the system.
    """

    kind: Kind | None  # `None` for an HTTP service of an unknown kind
    members: Sequence[Service]
    support: Sequence[Service]
    left_out: Mapping[str, str]


def selected(
    services: Sequence[Service], without: Collection[str], questions: Questions
) -> Selection:
    """Choose the servers that clients talk to, and the services they need. Raises `UsageError`."""
    names = [service.name for service in services]
    for name in without:
        if name not in names:
            raise UsageError(f"--without names {name!r}; {choices_near(name, names)}")
    left = dict.fromkeys(without, AS_ASKED)
    candidates = [each for each in services if each.name not in left]
    kind = _kind(candidates, questions)
    members = _members(candidates, kind)
    support = _needed(candidates, members)
    kept = {each.name for each in (*members, *support)}
    rest = [each for each in candidates if each.name not in kept]
    unclear = []
    for service in rest:
        if service.tool:
            left[service.name] = f"a tool: {service.tool}"
        elif service.ends:
            left[service.name] = "a job, which ends"
        else:
            unclear.append(service.name)
    added = _asked(unclear, questions)
    foreign = {each.name: f"it runs {each.foreign}" for each in rest if each.foreign}
    for name in unclear:
        if name not in added:
            left[name] = foreign.get(name, "no member needs it")
    support = [each for each in candidates if each in support or each.name in added]
    return Selection(kind, members, support, left)


def _kind(services: Sequence[Service], questions: Questions) -> Kind | None:
    counts = Counter(
        each.recognized.kind
        for each in services
        if each.recognized is not None and each.recognized.kind is not SENTINEL
    )
    others = [each for each in services if each.recognized is None and not each.tool]
    if not counts:
        foreign = [each for each in others if each.foreign]
        if foreign:
            raise UsageError(
                f"{foreign[0].name} runs {foreign[0].foreign}, whose protocol the harness does not "
                'speak; declare it by hand, with protocol = "program" (docs/your-system.md, A '
                "helper program)"
            )
        if not any(map(_may_serve, others)):
            raise UsageError(
                "no service looks like a server that clients could talk to; give it `ports` or "
                "`expose` in the Compose file"
            )
        return None
    kinds = list(counts)
    if len(kinds) == 1:
        return kinds[0]
    on_top = [kind for kind in kinds if not _is_used(kind, services)]
    usual = max(on_top or kinds, key=lambda kind: counts[kind])
    names = [kind.name for kind in kinds]
    name = questions.one_of("The servers that clients talk to", usual.name, names)
    return next(kind for kind in kinds if kind.name == name.value)


def _may_serve(service: Service) -> bool:
    return _is_open(service) and bool(service.ports)


def _is_open(service: Service) -> bool:
    return not (service.tool or service.ends or service.recognized)


def _is_used(kind: Kind, services: Sequence[Service]) -> bool:
    """Whether a server of another kind names a server of this kind in its settings."""
    return any(
        user.recognized is not None and user.kind_name != kind.name and user.mentions(used.name)
        for user in services
        for used in services
        if used.kind_name == kind.name
    )


def _members(services: Sequence[Service], kind: Kind | None) -> list[Service]:
    if kind is not None:
        return [each for each in services if each.kind_name == kind.name]
    served = [each.image or each.built for each in services if _may_serve(each)]
    group = Counter(served).most_common(1)[0][0]
    return [each for each in services if (each.image or each.built) == group and _is_open(each)]


def _needed(services: Sequence[Service], members: Sequence[Service]) -> list[Service]:
    kept = list(members)
    for user in kept:  # `kept` grows during the loop
        for other in services:
            watches = other.kind_name == SENTINEL.name and user.kind_name == REDIS.name
            if other not in kept and not other.tool and (watches or _uses(user, other)):
                kept.append(other)
    return [each for each in services if each in kept and each not in members]


def _uses(user: Service, other: Service) -> bool:
    return user.mentions(other.name) and not other.ends


def _asked(names: Sequence[str], questions: Questions) -> list[str]:
    if not names:
        return []
    return questions.some_of("Other services that belong to the system", names)
