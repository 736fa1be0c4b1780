"""The parser of faults in words, which `--fault`, case files and the built-in nemeses use.

    kill leader
    power-cut all
    cut leader from members every 10s for 4s
    cut one@members to members at 12s for 3s
    cut half@clients from leader
    cut halves with clients
    shape client from leader delay=200ms jitter=50ms loss=20%
    clock one offset=-5s strobe=500ms
    disk leader error=5%
    kill it when event leader group=master nth=3 for 2s
    power-cut it when event voted after=5ms for 1s
    do step-down on leader every 10s
    reset leader from followers

A fault in words has a verb, targets (`harness.faults.selectors`), settings (the severity), and a
time: a moment, or the next event of a node. Without a time, the case's `--interval` and
`--duration` decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.case import FAULT_S_MIN, Trigger
from harness.cluster import CLIENT, Capability
from harness.errors import UsageError, choices_near
from harness.faults.schedules import Schedule
from harness.faults.selectors import (
    CLIENTS,
    LINK_SHAPES,
    OF_CLIENTS,
    SHAPES_OF_CLIENTS,
    WORDS,
    Links,
    Nodes,
)
from harness.nodes.degradation import DiskQuality, Effect, LinkQuality, StreamQuality, seconds_in
from harness.nodes.faults import (
    Clock,
    Condition,
    Cpu,
    Cut,
    Disk,
    FaultKind,
    Kill,
    Operate,
    Pause,
    Reset,
    Restart,
    Shape,
    Stream,
)
from harness.ops import NS_PER_S

CONDITIONS: Final = ("clock", "cpu", "disk")
"""The verbs that need settings and affect nodes. `shape` also needs settings, but affects links."""
_EFFECTS: Final[Mapping[str, Mapping[str, Effect]]] = {
    "shape": {**LinkQuality.EFFECTS, **StreamQuality.EFFECTS},
    "clock": Clock.EFFECTS,
    "cpu": Cpu.EFFECTS,
    "disk": DiskQuality.EFFECTS,
}
_OF_STREAMS: Final = [effect.word for effect in StreamQuality.EFFECTS.values()]


def _examples(verb: str) -> list[str]:
    """Return one setting of this verb as an example for each capability that its settings need."""
    settings: dict[Capability, str] = {}
    for effect in _EFFECTS[verb].values():
        if effect.word and effect.needs is not None:
            settings.setdefault(effect.needs, effect.example)
    return list(settings.values())


EXAMPLES: Final = (
    "kill leader",
    "power-cut leader",
    "restart leader",
    "pause leader",
    "cut leader from members",
    "cut leader to members",
    "cut client:1 from leader",
    *(f"shape leader from members {setting}" for setting in _examples("shape")),
    "reset leader from members",
    *(f"{verb} leader {setting}" for verb in CONDITIONS for setting in _examples(verb)),
    "kill it when event leader",
    "do rolling-restart on all",
)
"""An example of each sort of fault that some environments do not support."""

_NODE_VERBS: Final[dict[str, FaultKind]] = {
    "kill": Kill(),
    "power-cut": Kill(power_cut=True, torn=True),
    "restart": Restart(),
    "pause": Pause(),
}
_LINK_VERBS: Final = ("cut", "shape", "reset")
_TIMES: Final = ("every", "at", "for")
_LENGTH_MAX: Final = 300


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed fault in words."""

    text: str
    kind: FaultKind
    whom: Nodes | Links
    schedule: Schedule
    trigger: Trigger | None = None

    @property
    def requires(self) -> frozenset[Capability]:
        more = {Capability.AIM_AT_EVENTS} if self.trigger is not None else set()
        more |= {Capability.SINGLE_CLIENTS} if self.whom.single_clients else set()
        return self.kind.requires | more

    @property
    def untimed(self) -> str:
        """The text without its times. An event that the fault waits for stays in the text."""
        words = self.text.split()
        end = next((n for n, word in enumerate(words) if word in _TIMES), len(words))
        return " ".join(words[:end])

    @property
    def clients_min(self) -> int:
        """The number of clients that a run needs, so that all clients in the sentence exist."""
        ends = self.whom.ends if isinstance(self.whom, Links) else []
        names = [int(end.name) for end in ends if end.word == CLIENT and end.name]
        return max(names, default=-1) + 1


_SEE: Final = " (`harness list faults` has examples)"


def are_words(name: str) -> bool:
    """Whether a case's nemesis is a fault in words. A plug-in's name contains no space."""
    return " " in name


def parse(text: str) -> Sentence:
    """Parse one fault in words. Raises a `UsageError` that quotes the mistake."""
    words = text.split()
    if len(text) > _LENGTH_MAX or not words:
        raise _wrong(text[:60], f"has {len(text)} characters", f"write 1 to {_LENGTH_MAX}")
    times = next((n for n, word in enumerate(words) if word in _TIMES), len(words))
    event = words.index("when") if "when" in words[:times] else times
    verb, body = words[0], words[1:event]
    kind: FaultKind
    whom: Nodes | Links
    if verb in _LINK_VERBS:
        kind, whom = _link_fault(text, verb, body)
    elif verb == "do":
        kind, whom = _operation(text, body)
    elif verb in CONDITIONS:
        kind, whom = _condition(text, verb, body[1:]), _whom(text, verb, body[:1])
    elif verb in _NODE_VERBS:
        kind, whom = _NODE_VERBS[verb], _whom(text, verb, body)
    else:
        verbs = [*_NODE_VERBS, *CONDITIONS, *_LINK_VERBS, "do"]
        raise _wrong(text, f"begins with {verb!r}", choices_near(verb, verbs) + _SEE)
    trigger = _trigger(text, words[event:times]) if event < times else None
    if whom.names_it and trigger is None:
        raise _wrong(text, "hits 'it', the node of an event", "add `when event KIND`")
    at_once = isinstance(kind, Operate | Reset)
    schedule = _schedule(text, words[times:], waits=trigger is not None, at_once=at_once)
    return Sentence(text=" ".join(words), kind=kind, whom=whom, schedule=schedule, trigger=trigger)


def _wrong(text: str, what: str, fix: str) -> UsageError:
    return UsageError(f"the fault {text!r} {what}; {fix}")


def _trigger(text: str, words: list[str]) -> Trigger:
    if len(words) < 3 or words[1] != "event":
        raise _wrong(text, f"has {' '.join(words)!r}", "write `when event KIND`")
    where: dict[str, str] = {}
    nth, after_ns = 1, 0
    for word in words[3:]:
        name, equals, value = word.partition("=")
        if not name or not equals or not value:
            fix = "write FIELD=VALUE, nth=3 or after=5ms"
            raise _wrong(text, f"has {word!r} after an event", fix)
        if name == "nth":
            if not re.fullmatch(r"[1-9]\d{0,5}", value):
                raise _wrong(text, f"has nth={value}", "write a whole number from 1, such as nth=3")
            nth = int(value)
        elif name == "after":
            after_ns = round(_duration_s(text, value) * NS_PER_S)
        else:
            where[name] = value
    return Trigger(event=words[2], where=where, nth=nth, after_ns=after_ns)


def _whom(text: str, verb: str, body: list[str]) -> Nodes:
    if len(body) != 1:
        raise _wrong(text, f"has {' '.join(body)!r} after {verb}", f"write `{verb} WHOM`")
    return _nodes(text, body[0], client=False)


def _operation(text: str, body: list[str]) -> tuple[Operate, Nodes]:
    rule = "write `do OPERATION on WHOM`, and perhaps variant=NAME"
    if len(body) not in {3, 4} or body[1] != "on":
        raise _wrong(text, f"has {' '.join(body)!r} after do", rule)
    variant = re.fullmatch(r"variant=([\w.-]+)", body[3]) if len(body) == 4 else None
    if len(body) == 4 and variant is None:
        raise _wrong(text, f"has {body[3]!r}", rule)
    what = Operate(name=body[0], variant=variant[1] if variant else "")
    return what, _nodes(text, body[2], client=False)


def _link_fault(text: str, verb: str, body: list[str]) -> tuple[FaultKind, Links]:
    settings = [word for word in body if "=" in word]
    links = _links(text, verb, [word for word in body if "=" not in word])
    if verb == "shape":
        return _shape(text, settings), links
    if settings:
        raise _wrong(text, f"has {settings[0]!r}", f"{verb} takes no settings, only `shape` does")
    if verb == "reset":
        return Reset(), links
    return Cut(one_way=links.one_way or links.shape == "ring"), links


def _links(text: str, verb: str, body: list[str]) -> Links:
    if len(body) == 1 and body[0] in LINK_SHAPES:
        return Links(shape=body[0])
    if body[1:] == ["with", CLIENTS] and body[0] in SHAPES_OF_CLIENTS:
        return Links(shape=body[0], with_clients=True)
    if len(body) != 3 or body[1] not in {"from", "to"}:
        raise _wrong(
            text,
            f"names no links in {' '.join(body)!r}",
            f"write `{verb} A from B` (both directions), `{verb} A to B` (only what A sends to B), "
            f"or `{verb}` and one of {', '.join(LINK_SHAPES)}; {' and '.join(SHAPES_OF_CLIENTS)} "
            f"also take `with {CLIENTS}`",
        )
    left, right = (_nodes(text, word, client=True) for word in (body[0], body[2]))
    if left.is_clients and right.is_clients:
        raise _wrong(text, "has clients on both ends", "name nodes on one end")
    if left.word == "others":
        raise _wrong(text, "begins its links with 'others'", "write `A from others`")
    return Links(left=left, right=right, one_way=body[1] == "to")


def _nodes(text: str, word: str, *, client: bool) -> Nodes:
    match = re.fullmatch(r"(?:(node|role):([\w.-]+)|([a-z]+)(?:@([\w.-]+))?)", word)
    if match is not None and match[1]:
        return Nodes(word=match[1], name=match[2])
    of_client = re.fullmatch(rf"{CLIENT}(?::(0|[1-9]\d{{0,4}}))?", word)
    if of_client is not None and client:
        return Nodes(word=CLIENT, name=of_client[1] or "")
    words = [word for word in WORDS if client or word != "others"]
    among = match[4] if match is not None else ""
    if match is None or match[3] not in (OF_CLIENTS if among == CLIENTS and client else words):
        words += [CLIENT, f"{CLIENT}:NUMBER"] if client else []
        words += [f"{name}@{CLIENTS}" for name in OF_CLIENTS if client]
        near = choices_near(word, words)
        if near.startswith("did"):
            raise _wrong(text, f"names {word!r}", near)
        raise _wrong(
            text,
            f"names {word!r}",
            f"write one of {', '.join(words)}, node:NAME or role:NAME; @members, @nonmembers or "
            "@ROLE after it limits the choice",
        )
    if among == CLIENTS and not client:
        raise _wrong(
            text, f"names {word!r}", "clients are ends of links: cut, shape or reset those"
        )
    return Nodes(word=match[3], among=match[4] or "")


def _fields(text: str, verb: str, settings: Sequence[str]) -> dict[str, Any]:
    names = {effect.word: name for name, effect in _EFFECTS[verb].items() if effect.word}
    fields: dict[str, Any] = {}
    for setting in settings:
        word, _, value = setting.partition("=")
        if word not in names:
            raise _wrong(text, f"sets {word!r}", choices_near(word, names))
        field = names[word]
        if field in fields:
            raise _wrong(text, f"sets {word} twice", "set it once")
        effect = _EFFECTS[verb][field]
        fields[field] = effect.read(value)
        if fields[field] is None:
            raise _wrong(text, f"has {setting}", f"write {effect.rule}")
    if not fields:
        raise _wrong(text, "has no setting for its severity", f"add one of {', '.join(names)}")
    return fields


def _shape(text: str, settings: Sequence[str]) -> Shape | Stream:
    """Make the fault of `shape`, on links or on their byte streams; raises `UsageError`."""
    fields = _fields(text, "shape", settings)
    of_streams = fields.keys() & StreamQuality.EFFECTS.keys()
    if not of_streams:
        return Shape(quality=msgspec.convert(fields, LinkQuality))
    if of_streams != fields.keys():
        fix = f"make {', '.join(_OF_STREAMS)} a fault of their own, with a --fault each"
        raise _wrong(text, "worsens both links and the streams on them", fix)
    if "gap_ms" in fields and "slice_bytes" not in fields:
        raise _wrong(text, "has a gap, but no size of pieces", "add the size: slice=128B")
    return Stream(quality=msgspec.convert(fields, StreamQuality))


def _condition(text: str, verb: str, settings: Sequence[str]) -> Condition:
    """Make the fault of a clock, a processor or a disk; raises `UsageError`."""
    fields = _fields(text, verb, settings)
    match verb:
        case "clock":
            if "strobe_ms" in fields and "offset_ms" not in fields:
                raise _wrong(text, "strobes without an offset", "add the jump: offset=1s")
            return Clock(**fields)
        case "cpu":
            return Cpu(**fields)
        case _:
            return Disk(quality=msgspec.convert(fields, DiskQuality))


def _schedule(text: str, words: list[str], *, waits: bool, at_once: bool) -> Schedule:
    rule = "write `every 10s for 4s`, `at 12s for 3s`, or neither"
    names, values = words[::2], words[1::2]
    if not words:
        return Schedule()
    if at_once and names in (["every"], ["at"]):
        names, values = [*names, "for"], [*values, f"{round(FAULT_S_MIN * 1000)}ms"]
    if waits and names == ["for"]:  # wait once for the event, from the start of the chaos phase
        names, values = ["at", "for"], ["0s", *values]
    if len(names) != len(values) or sorted(names) not in (["every", "for"], ["at", "for"]):
        raise _wrong(text, f"has {' '.join(words)!r} as its time", rule)
    times_ns = {
        name: round(_duration_s(text, value) * NS_PER_S)
        for name, value in zip(names, values, strict=True)
    }
    least_ns = round(FAULT_S_MIN * NS_PER_S)
    if times_ns["for"] < least_ns or times_ns.get("every", least_ns) < least_ns:
        raise _wrong(text, "is too short", f"give it at least {FAULT_S_MIN:g}s")
    if "every" in times_ns and times_ns["for"] >= times_ns["every"]:
        raise _wrong(text, "never ends before it begins again", "make `for` shorter than `every`")
    return Schedule(
        every_ns=times_ns.get("every", 0), at_ns=times_ns.get("at"), for_ns=times_ns["for"]
    )


def _duration_s(text: str, value: str) -> float:
    """Convert a time such as 200ms, 4s or 2m to seconds; raises `UsageError`."""
    time_s = seconds_in(value)
    if time_s is None:
        raise _wrong(text, f"has the time {value!r}", "write a number and ms, s or m: 4s, 200ms")
    return time_s
