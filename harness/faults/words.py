"""Faults in words, as `--fault`, case files and the page of nemeses have them.

    kill leader
    power-cut all
    cut leader from members every 10s for 4s
    cut one@members to members at 12s for 3s
    shape client from leader delay=200ms jitter=50ms loss=20%
    reset leader from followers

A verb, whom it hits (`harness.faults.selectors`), what a `shape` does, and, if the case's
`--interval` and `--duration` are not to decide, when.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from harness.case import FAULT_S_MIN, NS_PER_S
from harness.cluster import CLIENT, LinkQuality
from harness.errors import UsageError
from harness.faults.kinds import Cut, FaultKind, Kill, Pause, Reset, Restart, Shape
from harness.faults.schedules import Schedule
from harness.faults.selectors import LINK_SHAPES, WORDS, Links, Nodes

__all__ = ["EXAMPLES", "Sentence", "are_words", "parse"]

EXAMPLES: Final = (
    "kill leader",
    "power-cut leader",
    "restart leader",
    "pause leader",
    "cut leader from members",
    "cut leader to members",
    "shape leader from members delay=200ms",
    "shape leader from members rate=64kB/s",
    "shape leader from members loss=20%",
    "shape leader from members duplicate=5%",
    "shape leader from members reorder=10%",
    "reset leader from members",
)
"""One fault of each sort, as far as environments differ in what they can do."""

_NODE_VERBS: Final[dict[str, FaultKind]] = {
    "kill": Kill(),
    "power-cut": Kill(power_cut=True, torn=True),
    "restart": Restart(),
    "pause": Pause(),
}
_LINK_VERBS: Final = ("cut", "shape", "reset")
_TIMES: Final = ("every", "at", "for")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_LENGTH_MAX: Final = 300
_DELAY_MS_MAX: Final = 60_000
_RATE_KB_S_MAX: Final = 1_000_000


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in words, understood."""

    text: str
    kind: FaultKind
    whom: Nodes | Links
    schedule: Schedule


def are_words(name: str) -> bool:
    """Whether a name among a case's nemeses is a fault in words; no plug-in's name has a space."""
    return " " in name


def parse(text: str) -> Sentence:
    """Understand one fault in words; raises `UsageError` that quotes what is wrong."""
    words = text.split()
    if len(text) > _LENGTH_MAX or not words:
        raise _wrong(text[:60], f"has {len(text)} characters", f"write 1 to {_LENGTH_MAX}")
    times = next((n for n, word in enumerate(words) if word in _TIMES), len(words))
    verb, body = words[0], words[1:times]
    if verb in _NODE_VERBS:
        kind = _NODE_VERBS[verb]
        if len(body) != 1:
            raise _wrong(text, f"has {' '.join(body)!r} behind {verb}", f"write `{verb} WHOM`")
        whom: Nodes | Links = _nodes(text, body[0], client=False)
    elif verb in _LINK_VERBS:
        kind, whom = _link_fault(text, verb, body)
    else:
        known = ", ".join([*_NODE_VERBS, *_LINK_VERBS])
        raise _wrong(text, f"begins with {verb!r}", f"begin with one of: {known}")
    return Sentence(
        text=" ".join(words), kind=kind, whom=whom, schedule=_schedule(text, words[times:])
    )


def _wrong(text: str, what: str, fix: str) -> UsageError:
    return UsageError(f"the fault {text!r} {what}; {fix}")


def _link_fault(text: str, verb: str, body: list[str]) -> tuple[FaultKind, Links]:
    settings = [word for word in body if "=" in word]
    links = _links(text, verb, [word for word in body if "=" not in word])
    if verb == "shape":
        return Shape(quality=_quality(text, settings)), links
    if settings:
        raise _wrong(text, f"has {settings[0]!r}", f"{verb} takes no settings, only `shape` does")
    if verb == "reset":
        return Reset(), links
    return Cut(one_way=links.one_way or links.shape == "ring"), links


def _links(text: str, verb: str, body: list[str]) -> Links:
    if len(body) == 1 and body[0] in LINK_SHAPES:
        return Links(shape=body[0])
    if len(body) != 3 or body[1] not in {"from", "to"}:
        raise _wrong(
            text,
            f"has {' '.join(body)!r} where links are named",
            f"write `{verb} A from B` (both ways), `{verb} A to B` (what A sends), or `{verb}` and "
            f"one of {', '.join(LINK_SHAPES)}",
        )
    left, right = (_nodes(text, word, client=True) for word in (body[0], body[2]))
    if left.word == right.word == CLIENT:
        raise _wrong(text, "has clients on both ends", "name nodes on one end")
    if left.word == "others":
        raise _wrong(text, "begins its links with 'others'", "write `A from others`")
    return Links(left=left, right=right, one_way=body[1] == "to")


def _nodes(text: str, word: str, *, client: bool) -> Nodes:
    found = re.fullmatch(r"(?:(node|role):([\w.-]+)|([a-z]+)(?:@([\w.-]+))?)", word)
    if found is not None and found[1]:
        return Nodes(word=found[1], name=found[2])
    if found is not None and found[3] == CLIENT and not found[4] and client:
        return Nodes(word=CLIENT)
    known = [word for word in WORDS if client or word != "others"]
    if found is None or found[3] not in known:
        known += [CLIENT] if client else []
        raise _wrong(
            text,
            f"names {word!r}",
            f"write one of {', '.join(known)}, node:NAME or role:NAME; @members, @nonmembers or "
            "@ROLE behind it says among whom",
        )
    return Nodes(word=found[3], among=found[4] or "")


def _quality(text: str, settings: list[str]) -> LinkQuality:
    fields: dict[str, float] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        field, amount = _setting(text, name, value)
        if field in fields:
            raise _wrong(text, f"sets {name} twice", "set it once")
        fields[field] = amount
    if not fields:
        raise _wrong(
            text,
            "says nothing of how the links get worse",
            "add one of delay=200ms, jitter=50ms, loss=20%, duplicate=5%, reorder=10%, rate=64kB/s",
        )
    return msgspec.convert(fields, LinkQuality)


def _setting(text: str, name: str, value: str) -> tuple[str, float]:
    shares = {"loss": "drop", "duplicate": "duplicate", "reorder": "reorder"}
    if name in {"delay", "jitter"}:
        amount = _duration_s(text, value) * 1000
        if amount > _DELAY_MS_MAX:
            raise _wrong(text, f"has {name}={value}", f"at most {_DELAY_MS_MAX // 1000}s")
        return f"{name}_ms", amount
    if name in shares:
        found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)%", value)
        if found is None or not 0 < float(found[1]) <= 100:
            raise _wrong(text, f"has {name}={value}", f"write a share such as {name}=20%")
        return shares[name], float(found[1]) / 100
    if name == "rate":
        found = re.fullmatch(r"(\d{1,7})kB/s", value)
        if found is None or not 1 <= int(found[1]) <= _RATE_KB_S_MAX:
            raise _wrong(text, f"has rate={value}", "write a whole number such as rate=64kB/s")
        return "rate_kb_s", int(found[1])
    known = "delay, jitter, loss, duplicate, reorder, rate"
    raise _wrong(text, f"sets {name!r}", f"links have {known}")


def _duration_s(text: str, value: str) -> float:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)", value)
    if found is None:
        raise _wrong(text, f"has the time {value!r}", "write a number and ms, s or m: 4s, 200ms")
    return float(found[1]) * _SECONDS[found[2]]


def _schedule(text: str, words: list[str]) -> Schedule:
    rule = "write `every 10s for 4s`, `at 12s for 3s`, or neither"
    names, values = words[::2], words[1::2]
    if not words:
        return Schedule()
    if len(names) != len(values) or sorted(names) not in (["every", "for"], ["at", "for"]):
        raise _wrong(text, f"has {' '.join(words)!r} where it says when", rule)
    found = {
        name: round(_duration_s(text, value) * NS_PER_S)
        for name, value in zip(names, values, strict=True)
    }
    least_ns = round(FAULT_S_MIN * NS_PER_S)
    if found["for"] < least_ns or found.get("every", least_ns) < least_ns:
        raise _wrong(text, "is too short", f"at least {FAULT_S_MIN:g}s")
    if "every" in found and found["for"] >= found["every"]:
        raise _wrong(text, "never ends before it begins again", "make `for` shorter than `every`")
    return Schedule(every_ns=found.get("every", 0), at_ns=found.get("at"), for_ns=found["for"])
