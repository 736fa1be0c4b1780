"""The parser of faults in words, which `--fault`, case files and the page of nemeses use.

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
    do step-down on leader every 10s
    reset leader from followers

A verb, its targets (`harness.faults.selectors`), its settings (`harness.faults.parameters`) and,
unless the case's `--interval` and `--duration` decide, its time: a moment, or the next event of a
node.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from harness.case import FAULT_S_MIN, Trigger
from harness.cluster import CLIENT, Capability
from harness.errors import choices_near
from harness.faults.parameters import CONDITIONS, condition, duration_s, examples, shape, wrong
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
from harness.nodes.faults import Cut, FaultKind, Kill, Operate, Pause, Reset, Restart
from harness.ops import NS_PER_S

EXAMPLES: Final = (
    "kill leader",
    "power-cut leader",
    "restart leader",
    "pause leader",
    "cut leader from members",
    "cut leader to members",
    "cut client:1 from leader",
    *(f"shape leader from members {setting}" for setting in examples("shape")),
    "reset leader from members",
    *(f"{verb} leader {setting}" for verb in CONDITIONS for setting in examples(verb)),
    "kill it when event leader",
    "do rolling-restart on all",
)
"""One example of each sort of fault that differs between environments."""

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
    """One fault in words, parsed."""

    text: str
    kind: FaultKind
    whom: Nodes | Links
    schedule: Schedule
    trigger: Trigger | None = None

    @property
    def requires(self) -> frozenset[Capability]:
        """The capabilities that the fault needs from an environment."""
        more = {Capability.AIM_AT_EVENTS} if self.trigger is not None else set()
        more |= {Capability.SINGLE_CLIENTS} if self.whom.single_clients else set()
        return self.kind.requires | more

    @property
    def clients_min(self) -> int:
        """The number of clients that must exist: up to the last client that the fault names."""
        ends = self.whom.ends if isinstance(self.whom, Links) else []
        names = [int(end.name) for end in ends if end.word == CLIENT and end.name]
        return max(names, default=-1) + 1


_SEE: Final = " (`harness list faults` has examples)"


def are_words(name: str) -> bool:
    """Whether a name among a case's nemeses is a fault in words; names of plug-ins contain no
    space.
    """
    return " " in name


def parse(text: str) -> Sentence:
    """Parse one fault in words; raises `UsageError` that quotes the mistake."""
    words = text.split()
    if len(text) > _LENGTH_MAX or not words:
        raise wrong(text[:60], f"has {len(text)} characters", f"write 1 to {_LENGTH_MAX}")
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
        kind, whom = condition(text, verb, body[1:]), _whom(text, verb, body[:1])
    elif verb in _NODE_VERBS:
        kind, whom = _NODE_VERBS[verb], _whom(text, verb, body)
    else:
        verbs = [*_NODE_VERBS, *CONDITIONS, *_LINK_VERBS, "do"]
        raise wrong(text, f"begins with {verb!r}", choices_near(verb, verbs) + _SEE)
    trigger = _trigger(text, words[event:times]) if event < times else None
    if whom.names_it and trigger is None:
        raise wrong(text, "hits 'it', the node of an event", "add `when event KIND`")
    at_once = isinstance(kind, Operate | Reset)
    schedule = _schedule(text, words[times:], waits=trigger is not None, at_once=at_once)
    return Sentence(text=" ".join(words), kind=kind, whom=whom, schedule=schedule, trigger=trigger)


def _trigger(text: str, words: list[str]) -> Trigger:
    if len(words) < 3 or words[1] != "event":
        raise wrong(text, f"has {' '.join(words)!r}", "write `when event KIND`")
    where: dict[str, str] = {}
    nth = 1
    for word in words[3:]:
        name, equals, value = word.partition("=")
        if not name or not equals or not value:
            raise wrong(text, f"has {word!r} behind an event", "write FIELD=VALUE or nth=3")
        if name == "nth":
            if not re.fullmatch(r"[1-9]\d{0,5}", value):
                raise wrong(text, f"has nth={value}", "write a whole number from 1, such as nth=3")
            nth = int(value)
        else:
            where[name] = value
    return Trigger(event=words[2], where=where, nth=nth)


def _whom(text: str, verb: str, body: list[str]) -> Nodes:
    if len(body) != 1:
        raise wrong(text, f"has {' '.join(body)!r} behind {verb}", f"write `{verb} WHOM`")
    return _nodes(text, body[0], client=False)


def _operation(text: str, body: list[str]) -> tuple[Operate, Nodes]:
    rule = "write `do OPERATION on WHOM`, and perhaps variant=NAME"
    if len(body) not in {3, 4} or body[1] != "on":
        raise wrong(text, f"has {' '.join(body)!r} behind do", rule)
    variant = re.fullmatch(r"variant=([\w.-]+)", body[3]) if len(body) == 4 else None
    if len(body) == 4 and variant is None:
        raise wrong(text, f"has {body[3]!r}", rule)
    what = Operate(name=body[0], variant=variant[1] if variant else "")
    return what, _nodes(text, body[2], client=False)


def _link_fault(text: str, verb: str, body: list[str]) -> tuple[FaultKind, Links]:
    settings = [word for word in body if "=" in word]
    links = _links(text, verb, [word for word in body if "=" not in word])
    if verb == "shape":
        return shape(text, settings), links
    if settings:
        raise wrong(text, f"has {settings[0]!r}", f"{verb} takes no settings, only `shape` does")
    if verb == "reset":
        return Reset(), links
    return Cut(one_way=links.one_way or links.shape == "ring"), links


def _links(text: str, verb: str, body: list[str]) -> Links:
    if len(body) == 1 and body[0] in LINK_SHAPES:
        return Links(shape=body[0])
    if body[1:] == ["with", CLIENTS] and body[0] in SHAPES_OF_CLIENTS:
        return Links(shape=body[0], with_clients=True)
    if len(body) != 3 or body[1] not in {"from", "to"}:
        raise wrong(
            text,
            f"has {' '.join(body)!r} where links are named",
            f"write `{verb} A from B` (both ways), `{verb} A to B` (what A sends), or `{verb}` and "
            f"one of {', '.join(LINK_SHAPES)}, of which {' and '.join(SHAPES_OF_CLIENTS)} may have "
            "`with clients` behind them",
        )
    left, right = (_nodes(text, word, client=True) for word in (body[0], body[2]))
    if left.is_clients and right.is_clients:
        raise wrong(text, "has clients on both ends", "name nodes on one end")
    if left.word == "others":
        raise wrong(text, "begins its links with 'others'", "write `A from others`")
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
            raise wrong(text, f"names {word!r}", near)
        raise wrong(
            text,
            f"names {word!r}",
            f"write one of {', '.join(words)}, node:NAME or role:NAME; @members, @nonmembers or "
            "@ROLE behind it limits the choice",
        )
    if among == CLIENTS and not client:
        raise wrong(text, f"names {word!r}", "clients are ends of links: cut, shape or reset those")
    return Nodes(word=match[3], among=match[4] or "")


def _schedule(text: str, words: list[str], *, waits: bool, at_once: bool) -> Schedule:
    rule = "write `every 10s for 4s`, `at 12s for 3s`, or neither"
    names, values = words[::2], words[1::2]
    if not words:
        return Schedule()
    if at_once and names in (["every"], ["at"]):
        names, values = [*names, "for"], [*values, f"{round(FAULT_S_MIN * 1000)}ms"]
    if waits and names == ["for"]:  # one wait, from the start of the chaos phase
        names, values = ["at", "for"], ["0s", *values]
    if len(names) != len(values) or sorted(names) not in (["every", "for"], ["at", "for"]):
        raise wrong(text, f"has {' '.join(words)!r} as its time", rule)
    times_ns = {
        name: round(duration_s(text, value) * NS_PER_S)
        for name, value in zip(names, values, strict=True)
    }
    least_ns = round(FAULT_S_MIN * NS_PER_S)
    if times_ns["for"] < least_ns or times_ns.get("every", least_ns) < least_ns:
        raise wrong(text, "is too short", f"at least {FAULT_S_MIN:g}s")
    if "every" in times_ns and times_ns["for"] >= times_ns["every"]:
        raise wrong(text, "never ends before it begins again", "make `for` shorter than `every`")
    return Schedule(
        every_ns=times_ns.get("every", 0), at_ns=times_ns.get("at"), for_ns=times_ns["for"]
    )
