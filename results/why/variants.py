"""Makes variants of a failing case: for each part that may be a cause, the case without this part.

The parts are: all faults together; the faults of each nemesis; each fault; the operations of each
kind; knobs and options that differ from their defaults; and each bug switch. Operations can only be
left out of an explicit list. A case without such a list gets the list of the operations that the
run invoked. This is the case with *recorded* operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from harness.case import Case, Fault
from harness.errors import UsageError, counted
from harness.faults.parser import are_words
from harness.ops import NS_PER_S, History
from harness.plan.planning import plan_case
from harness.plan.random_case import NONE
from harness.plugins import Environment, Target, Workload
from harness.plugins.options import Option
from harness.registry import load_plugin
from harness.timeline import faults_of
from harness.trials.recorded import after_warm_up, recorded_ops

FAULTS_EACH_MAX: Final = 12
"""With more faults than this, consecutive faults are left out together."""
WORDS_MAX: Final = 70
_FIELDS: Final = ("rate", "concurrency", "op_timeout_s", "damage")


class Variant(NamedTuple):
    """A case without one part. If this is impossible, `case` is `None`, and `why_not` says why."""

    kind: str
    name: str
    words: str
    case: Case | None
    recorded: bool = False
    why_not: str = ""


def with_recorded_ops(case: Case, history: History) -> Case:
    """Return the case with an explicit list of the operations that were invoked in `history`."""
    if case.ops is not None:
        return case
    ops = tuple(op for op, _ in recorded_ops(case, history))
    return msgspec.structs.replace(after_warm_up(case), ops=ops)


def variants_of(case: Case, history: History, environment: Environment) -> list[Variant]:
    """Return all variants of a planned case. `history` comes from a run of the case.

    Each variant is checked, because a part that the rest of the case needs cannot be left out.
    """
    variants = [
        *_without_faults(case, history),
        *_without_bugs(case),
        *_without_operations(case, history),
        *_without_knobs(case),
        *_without_options(case),
        *_without_fields(case),
    ]
    return [_checked(variant, environment) for variant in variants]


def _checked(variant: Variant, environment: Environment) -> Variant:
    assert variant.case is not None, "only this function clears a case"
    try:
        plan_case(variant.case, environment)
    except UsageError as error:
        return variant._replace(case=None, why_not=str(error))
    return variant


def _without_faults(case: Case, history: History) -> Iterator[Variant]:
    faults = case.faults or ()
    if not faults:
        return
    nemeses = list(dict.fromkeys(fault.nemesis for fault in faults))
    words = _FaultWords(history)

    def without(left_out: Sequence[Fault]) -> Case:
        ids = {fault.id for fault in left_out}
        rest = tuple(fault for fault in faults if fault.id not in ids)
        planned = {fault.nemesis for fault in rest}
        idle = {fault.nemesis for fault in left_out} - planned
        # If all faults of a nemesis are left out, the case must not name the nemesis either: a run
        # whose nemesis never strikes is `unknown`.
        active = tuple(nemesis for nemesis in case.nemeses if nemesis not in idle)
        return msgspec.structs.replace(case, faults=rest, nemeses=active or (NONE,))

    if len(faults) > 1:
        yield Variant("all-faults", "", _all(faults), without(faults))
    for nemesis in nemeses if len(nemeses) > 1 else ():
        of_nemesis = [fault for fault in faults if fault.nemesis == nemesis]
        if len(of_nemesis) > 1:
            text = f"{_all(of_nemesis)} {_quoted(nemesis)}"
            yield Variant("faults", nemesis, text, without(of_nemesis))
    size = -(-len(faults) // FAULTS_EACH_MAX)
    for first in range(0, len(faults), size):
        group = faults[first : first + size]
        yield Variant("fault", group[0].id, words.of(group), without(group))


def _all(faults: Sequence[Fault]) -> str:
    return "both faults" if len(faults) == 2 else f"all {len(faults)} faults"


def _quoted(nemesis: str) -> str:
    return f"“{_cut(nemesis)}”" if are_words(nemesis) else _cut(nemesis)


class _FaultWords:
    """Describes faults by the times and targets that they actually had in the run."""

    def __init__(self, history: History) -> None:
        self._begun = {fault.id: fault for fault in faults_of(history, most=None)}

    def of(self, group: Sequence[Fault]) -> str:
        first = group[0]
        text = f"{_quoted(first.nemesis)}{self._when(first)}"
        return text if len(group) == 1 else f"{counted(len(group), 'fault')} from {text}"

    def _when(self, fault: Fault) -> str:
        begun = self._begun.get(fault.id)
        if begun is None:
            return f", planned for {fault.at_ns / NS_PER_S:.1f} s of the chaos"
        targets = f" on {', '.join(begun.targets[:3])}" if begun.targets else " without a target"
        return f"{targets} at {begun.start / NS_PER_S:.1f} s"


def _without_bugs(case: Case) -> Iterator[Variant]:
    for bug in case.bugs:
        rest = tuple(other for other in case.bugs if other != bug)
        yield Variant("bug", bug, f"the bug {bug}", msgspec.structs.replace(case, bugs=rest))


def _without_operations(case: Case, history: History) -> Iterator[Variant]:
    recorded = with_recorded_ops(case, history)
    ops = recorded.ops or ()
    counts: dict[str, int] = {}
    for op in ops:
        counts[op.f] = counts.get(op.f, 0) + 1
    for f, count in counts.items() if len(counts) > 1 else ():
        rest = tuple(op for op in ops if op.f != f)
        yield Variant(
            "operations",
            f,
            f"all {count:,} {f} operations" if count > 1 else f"the {f} operation",
            msgspec.structs.replace(recorded, ops=rest),
            recorded=case.ops is None,
        )


def _without_knobs(case: Case) -> Iterator[Variant]:
    """Yield variants without a group of knobs, such as the disk's, which depend on each other."""
    groups: dict[str, list[str]] = {}
    for name in case.knobs:
        groups.setdefault(name.split("_")[0], []).append(name)
    for name, knobs in groups.items():
        rest = {knob: value for knob, value in case.knobs.items() if knob not in knobs}
        text = ", ".join(f"{knob}={case.knobs[knob]}" for knob in knobs)
        yield Variant("knobs", name, _cut(text), msgspec.structs.replace(case, knobs=rest))


def _without_options(case: Case) -> Iterator[Variant]:
    target: Target = load_plugin("targets", case.target)
    workload: Workload = load_plugin("workloads", case.workload)
    for field, options in (
        ("target_options", target.options),
        ("workload_options", workload.options),
    ):
        for option in options:
            yield from _without_option(case, field, option)


def _without_option(case: Case, field: str, option: Option) -> Iterator[Variant]:
    values: dict[str, Any] = getattr(case, field)
    name = option.key
    value = values.get(name, option.default)
    if value == option.default:
        return
    changed = msgspec.structs.replace(case, **{field: {**values, name: option.default}})
    words = f"--{option.name} {value} (default {option.default})"
    yield Variant("option", option.name, _cut(words), changed)


def _without_fields(case: Case) -> Iterator[Variant]:
    plain = Case(seed=0)
    for field in _FIELDS:
        value, default = getattr(case, field), getattr(plain, field)
        if value == default or (field == "rate" and case.ops is not None):
            continue
        name = field.removesuffix("_s").replace("_", "-")
        words = f"--{name} {value} (default {default})"
        yield Variant("option", name, words, msgspec.structs.replace(case, **{field: default}))


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"
