"""Makes variations of a case: moves, adds and removes faults, aims them at events, and more.

A variation is a case that contains all of its faults as data, so it can be replayed and shrunk like
any other. If it has the seed and options of its parent, its run equals the parent's run up to the
first change. So a fault that is moved to a moment of the parent's run begins in exactly that
situation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import Case, Fault
from harness.errors import UsageError
from harness.faults.nemesis_from_text import AimedNemesis, load_nemesis
from harness.faults.parser import Sentence, parse
from harness.faults.selectors import Links
from harness.nodes.faults import Operate
from harness.ops import NS_PER_S
from harness.plan.random_case import NONE
from harness.search.uniform import of_kind

FAULTS_MAX: Final = 24
CHANGES_MAX: Final = 4
DURATION_S: Final = (0.05, 10.0)
NEAR_NS: Final = (10_000, 20_000_000)
"""The range of distances, in ns, between an event and a fault that is moved close to it."""
NTH_MAX: Final = 6
_TIMES: Final = ("when", "every", "at", "for")
_OPTIONS: Final = (
    ("knobs",),
    ("target_options",),
    ("workload_options",),
    ("concurrency", "op_timeout_s"),
)
"""Fields of a case that change together."""


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """The material from which a variation is drawn.

    `candidates` are the nemeses of the soak. `moments` come from the parent's run. `other` is
    another case of the corpus, and `fresh` is a case drawn for this seed.
    """

    candidates: tuple[str, ...]
    moments: Mapping[str, Sequence[int]]
    other: Case
    fresh: Case


Change = Callable[[random.Random, Case, Material], Case | None]
"""A change of a case. It returns `None` if it does not apply to the case."""


def vary(rng: random.Random, case: Case, material: Material) -> tuple[Case, tuple[str, ...]]:
    """Return a variation of `case` with 1 to `CHANGES_MAX` changes, and the names of the changes.

    The variation is not checked: its options may exclude some of its faults.
    """
    names: list[str] = []
    wanted = 1
    while wanted < CHANGES_MAX and rng.randrange(2):
        wanted += 1
    for _ in range(4 * CHANGES_MAX):
        if len(names) == wanted:
            break
        name = rng.choice(tuple(CHANGES))
        changed = CHANGES[name](rng, case, material)
        if changed is not None and changed != case:
            case = changed
            names.append(name)
    return _renumbered(case), tuple(names)


# --- faults --------------------------------------------------------------------------------------


def _move(rng: random.Random, case: Case, material: Material) -> Case | None:
    """Move a fault to another moment, often close to an event of the parent's run."""
    return _edit(rng, case, lambda _: {"at_ns": _moment(rng, case, material)})


def _stretch(rng: random.Random, case: Case, _: Material) -> Case | None:
    """Change the duration of a fault. A late fault may then outlive the chaos phase."""
    horizon_ns = int(case.time_limit_s * NS_PER_S)

    def change(fault: Fault) -> dict[str, Any]:
        left_ns = max(0, horizon_ns - fault.at_ns)
        over_ns = left_ns if 2 * left_ns < horizon_ns and not rng.randrange(3) else 0
        return {"duration_ns": over_ns + _duration_ns(rng, case)}

    return _edit(rng, case, change)


def _retarget(rng: random.Random, case: Case, _: Material) -> Case | None:
    return _edit(rng, case, lambda fault: of_kind(rng, case, fault.nemesis))


def _swap(rng: random.Random, case: Case, material: Material) -> Case | None:
    if not material.candidates:
        return None
    return _edit(rng, case, lambda _: of_kind(rng, case, rng.choice(material.candidates)))


def _add(rng: random.Random, case: Case, material: Material) -> Case | None:
    faults = case.faults or ()
    if not material.candidates or len(faults) >= FAULTS_MAX:
        return None
    added = Fault(
        id="",
        at_ns=_moment(rng, case, material),
        duration_ns=_duration_ns(rng, case),
        **of_kind(rng, case, rng.choice(material.candidates)),
    )
    return msgspec.structs.replace(case, faults=(*faults, added))


def _remove(rng: random.Random, case: Case, _: Material) -> Case | None:
    faults = list(case.faults or ())
    if len(faults) < 2:
        return None
    del faults[rng.randrange(len(faults))]
    return msgspec.structs.replace(case, faults=tuple(faults))


def _at_event(rng: random.Random, case: Case, material: Material) -> Case | None:
    """Let a fault wait for an event of a node, and often affect that node."""
    if not material.moments:
        return None
    kind = rng.choice(sorted(material.moments))
    at_ns = 0 if rng.randrange(2) else _anywhere(rng, case)

    def change(fault: Fault) -> dict[str, Any]:
        text = _triggered(rng, fault, kind)
        if text is None:
            return {}
        return {**of_kind(rng, case, text), "at_ns": at_ns, "duration_ns": _duration_ns(rng, case)}

    return _edit(rng, case, change)


def _splice(rng: random.Random, case: Case, material: Material) -> Case | None:
    """Replace all faults after a random moment by the faults of another case."""
    others = material.other.faults or ()
    at_ns = _anywhere(rng, case)
    kept = [fault for fault in case.faults or () if fault.at_ns < at_ns]
    kept += [fault for fault in others if fault.at_ns >= at_ns]
    if not kept or len(kept) > FAULTS_MAX:
        return None
    return msgspec.structs.replace(case, faults=tuple(kept))


# --- everything else -----------------------------------------------------------------------------


def _reseed(_: random.Random, case: Case, material: Material) -> Case | None:
    """Take the seed of the fresh case. This changes latencies and operations, but not faults."""
    return msgspec.structs.replace(case, seed=material.fresh.seed)


def _set_options(rng: random.Random, case: Case, material: Material) -> Case | None:
    """Take some options or knobs of the fresh case or of another case of the corpus."""
    source = rng.choice((material.fresh, material.other))
    fields = rng.choice(_OPTIONS)
    return msgspec.structs.replace(case, **{name: getattr(source, name) for name in fields})


CHANGES: Final[dict[str, Change]] = {
    "move": _move,
    "stretch": _stretch,
    "retarget": _retarget,
    "swap": _swap,
    "add": _add,
    "remove": _remove,
    "at-event": _at_event,
    "splice": _splice,
    "reseed": _reseed,
    "options": _set_options,
}


def _edit(rng: random.Random, case: Case, change: Callable[[Fault], dict[str, Any]]) -> Case | None:
    """Change fields of one fault. The fault is drawn at random. Returns `None` without faults."""
    faults = list(case.faults or ())
    if not faults:
        return None
    at = rng.randrange(len(faults))
    faults[at] = msgspec.structs.replace(faults[at], **change(faults[at]))
    return msgspec.structs.replace(case, faults=tuple(faults))


def _anywhere(rng: random.Random, case: Case) -> int:
    return rng.randrange(int(case.time_limit_s * NS_PER_S))


def _moment(rng: random.Random, case: Case, material: Material) -> int:
    """Draw a moment shortly before or after an event. Each kind of event is equally likely."""
    if not material.moments or not rng.randrange(3):
        return _anywhere(rng, case)
    at_ns = rng.choice(material.moments[rng.choice(sorted(material.moments))])
    low, high = map(math.log, NEAR_NS)
    near_ns = int(math.exp(rng.uniform(low, high)))
    return max(0, at_ns + (near_ns if rng.randrange(2) else -near_ns))


def _duration_ns(rng: random.Random, case: Case) -> int:
    """Draw a duration such that all orders of magnitude are equally likely.

    It is at most a quarter of the chaos phase, because a system that is down most of the time shows
    few bugs.
    """
    least_s, most_s = DURATION_S
    low, high = math.log(least_s), math.log(max(least_s, min(most_s, case.time_limit_s / 4)))
    return int(math.exp(rng.uniform(low, high)) * NS_PER_S)


def _triggered(rng: random.Random, fault: Fault, kind: str) -> str | None:
    """Return the fault in words, with `when event KIND` in place of its time.

    Returns `None` if the fault cannot be written in words.
    """
    nemesis = load_nemesis(fault.nemesis)
    if not isinstance(nemesis, AimedNemesis):
        return None
    sentence = rng.choice(nemesis.sentences)
    words = sentence.text.split()
    end = next((at for at, word in enumerate(words) if word in _TIMES), len(words))
    words = words[:end]
    if _may_hit_it(sentence) and rng.randrange(3):
        words[1] = "it"
    nth = 1 + rng.randrange(NTH_MAX) if rng.randrange(2) else 1
    text = " ".join([*words, "when", "event", kind, *([f"nth={nth}"] if nth > 1 else [])])
    try:
        parse(text)
    except UsageError:
        return None
    return text


def _may_hit_it(sentence: Sentence) -> bool:
    """Whether the second word of the sentence names nodes, so that `it` can replace it."""
    whom = sentence.whom
    pair = not isinstance(whom, Links) or not whom.shape
    return pair and not isinstance(sentence.kind, Operate)


def _renumbered(case: Case) -> Case:
    """Sort the faults by time, renumber them, and list exactly the nemeses that they need."""
    faults = sorted(case.faults or (), key=lambda fault: fault.at_ns)
    numbered = tuple(
        msgspec.structs.replace(fault, id=f"f{number}") for number, fault in enumerate(faults)
    )
    used = tuple(dict.fromkeys(fault.nemesis for fault in faults)) or (NONE,)
    return msgspec.structs.replace(case, faults=numbered, nemeses=used)
