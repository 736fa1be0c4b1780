"""The moments at which a replay stops, and their syntax on the command line.

| moment                        | where the replay stops                              |
|-------------------------------|-----------------------------------------------------|
| op=812                        | right after op 812 was recorded                     |
| time=8.4                      | before the first event at or after 8.4 s of the run |
| event=leader                  | while a node announces its event `leader`           |
| event=leader:2,node=m2,term=3 | the second event with these fields                  |
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from harness.case import Trigger
from harness.errors import UsageError
from harness.ops import NS_PER_S

FORMS: Final = "op=812, time=8.4 or event=KIND[:NTH][,FIELD=VALUE ...]"
NTH_MAX: Final = 1_000_000_000
STEPS_MAX: Final = 1_000_000
_TIME_S_MAX: Final = 1e9
_KIND: Final = re.compile(r"(?P<kind>[A-Za-z][\w-]*)(?::(?P<nth>[0-9]+))?")


class AtOp(msgspec.Struct, frozen=True):
    """The moment right after an op was recorded, by its index in the history."""

    index: int

    def __str__(self) -> str:
        return f"op={self.index}"


class AtTime(msgspec.Struct, frozen=True):
    """The moment before the first event at or after a time of the run."""

    time_ns: int

    def __str__(self) -> str:
        return f"time={self.time_ns / NS_PER_S:.10g}"


class AtEvent(msgspec.Struct, frozen=True):
    """The moment at which a node announces an event. The field `node` is the node's name."""

    trigger: Trigger

    def __str__(self) -> str:
        nth = "" if self.trigger.nth == 1 else f":{self.trigger.nth}"
        where = "".join(f",{name}={value}" for name, value in self.trigger.where.items())
        return f"event={self.trigger.event}{nth}{where}"


class Steps(msgspec.Struct, frozen=True):
    """The moment after this many more events of a node, or of the whole world."""

    count: int = 1
    node: str | None = None

    def __str__(self) -> str:
        return f"step {self.node or ''} {self.count}".replace("  ", " ")


class End(msgspec.Struct, frozen=True):
    """The moment at the end of the run."""


class Quit(msgspec.Struct, frozen=True):
    """Ends the replay at once."""


Until = AtOp | AtTime | AtEvent
Order = Until | Steps | End | Quit


def parse_until(text: str) -> Until:
    """Parse a moment. Raises a `UsageError` that states the mistake."""
    what, equals, value = text.partition("=")
    if what == "op" and equals:
        if not re.fullmatch(r"[0-9]{1,12}", value):
            raise _wrong(text, "the index of an op is a whole number, such as op=812")
        return AtOp(int(value))
    if what == "time" and equals:
        try:
            time_s = float(value.removesuffix("s"))
        except ValueError:
            time_s = -1.0
        if not 0 <= time_s <= _TIME_S_MAX:
            raise _wrong(text, "a time is a number of seconds of the run, such as time=8.4")
        return AtTime(round(time_s * NS_PER_S))
    if what == "event" and equals:
        return AtEvent(_trigger(text, value))
    raise _wrong(text, f"write {FORMS}")


def _trigger(text: str, value: str) -> Trigger:
    first, *rest = value.split(",")
    match = _KIND.fullmatch(first)
    if match is None:
        raise _wrong(text, "an event has a kind and perhaps a number, such as event=leader:2")
    nth = int(match["nth"] or 1)
    if not 1 <= nth <= NTH_MAX:
        raise _wrong(text, f"the number of an event is in 1 .. {NTH_MAX}")
    where: dict[str, str] = {}
    for part in rest:
        name, equals, wanted = (word.strip() for word in part.partition("="))
        if not name or not equals:
            raise _wrong(text, f"{part!r} is not FIELD=VALUE, such as node=m2")
        where[name] = wanted
    return Trigger(event=match["kind"], where=where, nth=nth)


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"{text!r} is not a moment of a run: {why}")
