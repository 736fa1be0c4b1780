"""The `name=value` part of a fault in words: the severity of faults of links, clocks, processors
and disks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.errors import UsageError, choices_near
from harness.nodes.degradation import (
    Capability,
    DiskQuality,
    Effect,
    LinkQuality,
    StreamQuality,
    seconds_in,
)
from harness.nodes.faults import Clock, Condition, Cpu, Disk, Shape, Stream

CONDITIONS: Final = ("clock", "cpu", "disk")
"""The verbs that need settings and hit nodes; `shape` needs settings, too, but hits links."""


def wrong(text: str, what: str, fix: str) -> UsageError:
    """The error for a mistake in the fault in words `text`."""
    return UsageError(f"the fault {text!r} {what}; {fix}")


def duration_s(text: str, value: str) -> float:
    """A time such as 200ms, 4s or 2m, in s; raises `UsageError`."""
    time_s = seconds_in(value)
    if time_s is None:
        raise wrong(text, f"has the time {value!r}", "write a number and ms, s or m: 4s, 200ms")
    return time_s


_EFFECTS: Final[Mapping[str, Mapping[str, Effect]]] = {
    "shape": {**LinkQuality.EFFECTS, **StreamQuality.EFFECTS},
    "clock": Clock.EFFECTS,
    "cpu": Cpu.EFFECTS,
    "disk": DiskQuality.EFFECTS,
}
_OF_STREAMS: Final = [effect.word for effect in StreamQuality.EFFECTS.values()]


def examples(verb: str) -> list[str]:
    """One setting of this verb for each capability that differs between environments."""
    settings: dict[Capability, str] = {}
    for effect in _EFFECTS[verb].values():
        if effect.word and effect.needs is not None:
            settings.setdefault(effect.needs, effect.example)
    return list(settings.values())


def _fields(text: str, verb: str, settings: Sequence[str]) -> dict[str, Any]:
    names = {effect.word: name for name, effect in _EFFECTS[verb].items() if effect.word}
    fields: dict[str, Any] = {}
    for setting in settings:
        word, _, value = setting.partition("=")
        if word not in names:
            raise wrong(text, f"sets {word!r}", choices_near(word, names))
        field = names[word]
        if field in fields:
            raise wrong(text, f"sets {word} twice", "set it once")
        effect = _EFFECTS[verb][field]
        fields[field] = effect.read(value)
        if fields[field] is None:
            raise wrong(text, f"has {setting}", f"write {effect.rule}")
    if not fields:
        raise wrong(text, "does not set how bad it gets", f"add one of {', '.join(names)}")
    return fields


def shape(text: str, settings: Sequence[str]) -> Shape | Stream:
    """The fault of links, or of the streams on them; raises `UsageError`."""
    fields = _fields(text, "shape", settings)
    of_streams = fields.keys() & StreamQuality.EFFECTS.keys()
    if not of_streams:
        return Shape(quality=msgspec.convert(fields, LinkQuality))
    if of_streams != fields.keys():
        fix = f"make {', '.join(_OF_STREAMS)} a fault of their own, with a --fault each"
        raise wrong(text, "worsens both links and the streams on them", fix)
    if "gap_ms" in fields and "slice_bytes" not in fields:
        raise wrong(text, "has a gap between no pieces", "add their size: slice=128B")
    return Stream(quality=msgspec.convert(fields, StreamQuality))


def condition(text: str, verb: str, settings: Sequence[str]) -> Condition:
    """The fault of a clock, a processor or a disk; raises `UsageError`."""
    fields = _fields(text, verb, settings)
    match verb:
        case "clock":
            if "strobe_ms" in fields and "offset_ms" not in fields:
                raise wrong(text, "strobes without an offset", "add the jump: offset=1s")
            return Clock(**fields)
        case "cpu":
            return Cpu(**fields)
        case _:
            return Disk(quality=msgspec.convert(fields, DiskQuality))
